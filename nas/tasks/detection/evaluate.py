"""Objects that a detector finds in a split, in torch or in any runtime, and how good that is."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from nas.data.images import Preprocess
from nas.errors import UserError
from nas.tasks.detection.data.values import DetectionSplit
from nas.tasks.detection.heads import HEADS, Head
from nas.tasks.detection.metrics import MOST_DETECTIONS, MeanAveragePrecision, mean_average_precision
from nas.tasks.detection.postprocess import NOTHING, Found, detections
from nas.training.precision import Precision, autocast, resolve_device

LEAST_SCORE = 0.01
"""Score from which detections count for the metric. Lower than what one would show to people: average precision is a
mean over all recalls, and a threshold cuts the last of them off."""


def metrics_of(
    model: nn.Module,
    split: DetectionSplit,
    preprocess: Preprocess,
    *,
    head_kind: str | None = None,
    batch_size: int = 32,
    device: str = "auto",
    precision: Precision = "fp32",
) -> MeanAveragePrecision:
    """Mean average precision on `split`, at the split's own resolution; arguments as in `found_by`.

    Raises:
        UserError: the split has no images, or no objects.
    """
    found, classes = found_by(
        model, split, preprocess, head_kind=head_kind, batch_size=batch_size, device=device, precision=precision
    )
    return mean_average_precision(found, split.boxes, classes)


def metrics_in_runtime(
    run: Callable[[NDArray[np.float32]], NDArray[np.float32]],
    split: DetectionSplit,
    preprocess: Preprocess,
    *,
    head_kind: str,
    batch: int = 1,
) -> MeanAveragePrecision:
    """Mean average precision of an exported network on `split`; arguments as in `found_in_runtime`.

    Raises:
        UserError: the split has no images, or no objects.
    """
    found, classes = found_in_runtime(run, split, preprocess, head_kind=head_kind, batch=batch)
    return mean_average_precision(found, split.boxes, classes)


def found_by(
    model: nn.Module,
    split: DetectionSplit,
    preprocess: Preprocess,
    *,
    head_kind: str | None = None,
    batch_size: int = 32,
    device: str = "auto",
    precision: Precision = "fp32",
    least_score: float = LEAST_SCORE,
) -> tuple[list[Found], int]:
    """Objects that `model` finds in each image of `split`, and the number of classes it knows.

    The model must be on `device` (`auto`: the GPU where there is one); it is left in evaluation mode. Images whose raw
    output is not finite have nothing found.

    Args:
        head_kind: how raw outputs are read; None: the model's own `head_kind`.

    Raises:
        UserError: the split has no images.
    """
    _require_images(split)
    head = HEADS[head_kind or str(model.head_kind)]
    where = resolve_device(device)
    model.eval()
    found: list[Found] = []
    classes = 0
    with torch.inference_mode(), autocast(where, precision):
        for start in range(0, len(split), batch_size):
            images = torch.from_numpy(split.images[start : start + batch_size]).to(where)
            raw = model(preprocess.tensor(images)).float().cpu().numpy()
            part, classes = _read(head, raw, split.resolution, least_score)
            found += part
    return found, classes


def found_in_runtime(
    run: Callable[[NDArray[np.float32]], NDArray[np.float32]],
    split: DetectionSplit,
    preprocess: Preprocess,
    *,
    head_kind: str,
    batch: int = 1,
    least_score: float = LEAST_SCORE,
) -> tuple[list[Found], int]:
    """Objects that an exported network finds in each image of `split`, and the number of classes it knows.

    Args:
        run: (batch, 3, h, h) float32 -> (batch, A, d) float32. It always gets exactly `batch` images, since exported
            files may have a fixed batch: the last one is filled up with copies, which do not count.
        head_kind: how raw outputs are read.

    Raises:
        UserError: the split has no images.
    """
    _require_images(split)
    head = HEADS[head_kind]
    found: list[Found] = []
    classes = 0
    for start in range(0, len(split), batch):
        images = split.images[start : start + batch]
        filled = np.concatenate([images, np.repeat(images[-1:], batch - len(images), axis=0)])
        raw = run(preprocess.array(filled))[: len(images)]
        part, classes = _read(head, raw, split.resolution, least_score)
        found += part
    return found, classes


def _read(head: Head, raw: NDArray[np.float32], resolution: int, least_score: float) -> tuple[list[Found], int]:
    boxes, scores = head.decode(raw, resolution)
    found = detections(boxes, scores, score=least_score, most=MOST_DETECTIONS)
    finite = [bool(np.isfinite(outputs).all()) for outputs in raw]
    return [these if fine else NOTHING for these, fine in zip(found, finite, strict=True)], scores.shape[2]


def _require_images(split: DetectionSplit) -> None:
    if len(split) == 0:
        raise UserError("there are no images to find objects in", "give a split with at least one image")
