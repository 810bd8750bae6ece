"""Accuracy of a network, in torch or in any runtime, and batch-norm statistics measured afresh."""

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from nas.data.images import ImageSplit, Preprocess
from nas.errors import UserError
from nas.tasks.classification import top1_correct
from nas.training.config import Precision
from nas.training.precision import autocast, resolve_device

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def evaluate_accuracy(
    model: nn.Module,
    split: ImageSplit,
    preprocess: Preprocess,
    *,
    batch_size: int = 128,
    device: str = "auto",
    precision: Precision = "fp32",
) -> float:
    """Top-1 accuracy (fraction) on `split`, at the split's own resolution.

    The model must be on `device` (`auto`: the GPU where there is one); it is left in evaluation mode.

    Raises:
        UserError: the split is empty.
    """
    _require_images(split)
    where = resolve_device(device)
    model.eval()
    correct = 0
    with torch.inference_mode(), autocast(where, precision):
        for start in range(0, len(split), batch_size):
            images = torch.from_numpy(split.images[start : start + batch_size]).to(where)
            targets = torch.from_numpy(split.labels[start : start + batch_size]).to(where)
            correct += top1_correct(model(preprocess.tensor(images)), targets)
    return correct / len(split)


def accuracy_in_runtime(
    run: Callable[[NDArray[np.float32]], NDArray[np.float32]],
    split: ImageSplit,
    preprocess: Preprocess,
    *,
    batch: int = 1,
) -> float:
    """Top-1 accuracy (fraction) of an exported network on `split`.

    Args:
        run: (batch, 3, h, w) float32 -> (batch, c) float32. It always gets exactly `batch` images, since exported
            files may have a fixed batch: the last one is filled up with copies, which do not count.

    Raises:
        UserError: the split is empty.
    """
    _require_images(split)
    correct = 0
    for start in range(0, len(split), batch):
        images, labels = split.images[start : start + batch], split.labels[start : start + batch]
        filled = np.concatenate([images, np.repeat(images[-1:], batch - len(images), axis=0)])
        logits = run(preprocess.array(filled))[: len(images)]
        finite = np.isfinite(logits).all(axis=1)
        correct += int(((logits.argmax(axis=1) == labels) & finite).sum())
    return correct / len(split)


class Pictures(Protocol):
    """Images in memory, of whatever task."""

    @property
    def images(self) -> NDArray[np.uint8]:
        """(n, h, h, 3) uint8."""
        ...

    def __len__(self) -> int: ...


def recalibrate_batch_norm(
    model: nn.Module,
    split: Pictures,
    preprocess: Preprocess,
    *,
    images: int = 1024,
    batch_size: int = 64,
    device: str = "auto",
    seed: int = 0,
) -> None:
    """Replace the running statistics of every batch norm by averages over `images` random training images.

    For weights whose statistics are stale: subnets of a supernet (Yu & Huang 2019), averaged weights. Other layers
    stay in evaluation mode (no dropout); weights are not touched. Does nothing where there is no batch norm.
    """
    norms = [m for m in model.modules() if isinstance(m, _BATCH_NORMS) and m.track_running_stats]
    if not norms:
        return
    where = resolve_device(device)
    chosen = np.random.default_rng(seed).permutation(len(split))[:images]
    momenta = [norm.momentum for norm in norms]
    model.eval()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # cumulative average over the batches
        norm.train()
    with torch.no_grad():
        for part in np.array_split(chosen, max(1, len(chosen) // batch_size)):
            model(preprocess.tensor(torch.from_numpy(split.images[part]).to(where)))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()


def _require_images(split: ImageSplit) -> None:
    if len(split) == 0:
        raise UserError("there are no images to measure accuracy on", "give a split with at least one image")
