"""Accuracy of a network, in torch or in any runtime."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from nas.data.images import ImageSplit, Preprocess
from nas.errors import UserError
from nas.tasks.classification import balanced_accuracy, loss, top1_hits
from nas.training.precision import Precision, autocast, resolve_device


def evaluate_accuracy(
    model: nn.Module,
    split: ImageSplit,
    preprocess: Preprocess,
    *,
    batch_size: int = 128,
    device: str = "auto",
    precision: Precision = "fp32",
) -> float:
    """Top-1 accuracy (fraction) on `split`, as `accuracy_and_loss` says."""
    return accuracy_and_loss(model, split, preprocess, batch_size=batch_size, device=device, precision=precision)[0]


def accuracy_and_loss(
    model: nn.Module,
    split: ImageSplit,
    preprocess: Preprocess,
    *,
    batch_size: int = 128,
    device: str = "auto",
    precision: Precision = "fp32",
) -> tuple[float, float]:
    """Top-1 accuracy (fraction, see `accuracy_of`) and mean cross-entropy on `split`, at its own resolution.

    The model must be on `device` (`auto`: the GPU where there is one); it is left in evaluation mode.

    Raises:
        UserError: the split is empty.
    """
    _require_images(split)
    where = resolve_device(device)
    model.eval()
    hits, total = [], 0.0
    with torch.inference_mode(), autocast(where, precision):
        for start in range(0, len(split), batch_size):
            images = torch.from_numpy(split.images[start : start + batch_size]).to(where)
            targets = torch.from_numpy(split.labels[start : start + batch_size]).to(where)
            logits = model(preprocess.tensor(images))
            hits.append(top1_hits(logits, targets).cpu().numpy())
            total += float(loss(logits, targets)) * len(targets)
    return accuracy_of(np.concatenate(hits), split), total / len(split)


def accuracy_of(hits: NDArray[np.bool_], split: ImageSplit) -> float:
    """Share (n,) of right answers, balanced over the classes where the split asks for it."""
    return balanced_accuracy(hits, split.labels) if split.balanced else int(hits.sum()) / len(split)


def hits_in_runtime(
    run: Callable[[NDArray[np.float32]], NDArray[np.float32]],
    split: ImageSplit,
    preprocess: Preprocess,
    *,
    batch: int = 1,
) -> NDArray[np.bool_]:
    """(n,) whether an exported network answers right, for each image of `split`.

    Args:
        run: (batch, 3, h, w) float32 -> (batch, c) float32. It always gets exactly `batch` images, since exported
            files may have a fixed batch: the last one is filled up with copies, which do not count.

    Raises:
        UserError: the split is empty.
    """
    _require_images(split)
    found = np.zeros(len(split), np.bool_)
    for start in range(0, len(split), batch):
        images, labels = split.images[start : start + batch], split.labels[start : start + batch]
        filled = np.concatenate([images, np.repeat(images[-1:], batch - len(images), axis=0)])
        logits = run(preprocess.array(filled))[: len(images)]
        found[start : start + batch] = right_answers(logits, labels)
    return found


def right_answers(logits: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(n,) whether (n, c) logits are largest at their labels (n,); what is not finite is wrong."""
    right: NDArray[np.bool_] = (logits.argmax(axis=1) == labels) & np.isfinite(logits).all(axis=1)
    return right


def _require_images(split: ImageSplit) -> None:
    if len(split) == 0:
        raise UserError("there are no images to measure accuracy on", "give a split with at least one image")
