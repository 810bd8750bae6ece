"""Poses that a network finds in a split, in torch or in any runtime, and how good they are."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from nas.data.images import Preprocess
from nas.errors import UserError
from nas.tasks.detection.evaluate import LEAST_SCORE
from nas.tasks.detection.geometry import cells_of
from nas.tasks.detection.metrics import mean_average_precision
from nas.tasks.detection.postprocess import CANDIDATES
from nas.tasks.pose.data.values import PoseSplit
from nas.tasks.pose.decoding import FoundPoses, decode_poses, found_poses
from nas.tasks.pose.metrics import oks_precision
from nas.training.precision import Precision, autocast, resolve_device

JUDGED_IOU = 0.6
"""Largest overlap of two poses that are judged, as in detection."""
MOST_JUDGED = 100
"""Most poses of an image that are judged; of points 20 count, of boxes all of them."""
SHOWN_SCORE = 0.25
"""Least score of a pose that people are shown; average precision counts more."""


@dataclass(frozen=True, slots=True)
class PoseFigures:
    """Fractions, 0..1."""

    map50_95: float
    """Mean average precision by object keypoint similarity, mean over 0.5 to 0.95."""
    map50: float
    """The same at 0.5."""
    box_map50: float
    """Mean average precision of the boxes at an IoU of 0.5."""


def figures_of(found: "list[FoundPoses]", split: PoseSplit) -> PoseFigures:
    """Raises `UserError` where no object of the split has labelled points."""
    points = oks_precision(found, split.boxes, split.skeleton.sigmas)
    return PoseFigures(points.map50_95, points.map50, mean_average_precision(found, split.boxes, 1).map50)


def found_by(
    model: nn.Module,
    split: PoseSplit,
    preprocess: Preprocess,
    *,
    batch_size: int = 32,
    device: str = "auto",
    precision: Precision = "fp32",
    least_score: float = LEAST_SCORE,
) -> list[FoundPoses]:
    """Poses that `model` finds in each image of `split`, at the split's own resolution.

    The model must be on `device` (`auto`: the GPU where there is one); it is left in evaluation mode.

    Raises:
        UserError: the split has no images.
    """
    _require_images(split)
    where = resolve_device(device)
    model.eval()
    found: list[FoundPoses] = []
    with torch.inference_mode(), autocast(where, precision):
        for start in range(0, len(split), batch_size):
            images = torch.from_numpy(split.images[start : start + batch_size]).to(where)
            raw = model(preprocess.tensor(images)).float().cpu().numpy()
            found += poses_of(raw, split.resolution, least_score)
    return found


def found_in_runtime(
    run: Callable[[NDArray[np.float32]], NDArray[np.float32]],
    split: PoseSplit,
    preprocess: Preprocess,
    *,
    batch: int = 1,
    least_score: float = LEAST_SCORE,
) -> list[FoundPoses]:
    """Poses that an exported network finds in each image of `split`.

    `run` maps (batch, 3, h, h) float32 to (batch, A, d) float32, and always gets exactly `batch` images: the last one
    is filled up with copies, which do not count.

    Raises:
        UserError: the split has no images.
    """
    _require_images(split)
    found: list[FoundPoses] = []
    for start in range(0, len(split), batch):
        images = split.images[start : start + batch]
        filled = np.concatenate([images, np.repeat(images[-1:], batch - len(images), axis=0)])
        raw = run(preprocess.array(filled))[: len(images)]
        found += poses_of(raw, split.resolution, least_score)
    return found


def decoded(
    raw: NDArray[np.float32], resolution: int
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """Boxes (n, A, 4), scores (n, A, 1) and points (n, A, K, 3) of raw outputs (n, A, 5 + 3 * K)."""
    cells = cells_of(resolution)
    if raw.ndim != 3 or raw.shape[1] != len(cells):
        raise ValueError(f"raw {raw.shape} does not fit {len(cells)} cells")
    return decode_poses(raw, cells.centres, np.stack([cells.strides] * 2, axis=1), resolution)


def poses_of(
    raw: NDArray[np.float32], resolution: int, least_score: float, *, iou: float = JUDGED_IOU, most: int = MOST_JUDGED
) -> list[FoundPoses]:
    """The poses of each of raw outputs (n, A, 5 + 3 * K)."""
    boxes, scores, points = decoded(raw, resolution)
    return [
        found_poses(*of_image, least_score, iou, most, CANDIDATES)
        for of_image in zip(boxes, scores, points, strict=True)
    ]


def _require_images(split: PoseSplit) -> None:
    if len(split) == 0:
        raise UserError("there are no images to find poses in", "give a split with at least one image")
