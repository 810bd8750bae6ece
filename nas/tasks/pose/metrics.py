"""Mean average precision by object keypoint similarity, as COCO defines it, computed by faster-coco-eval.

Rules of COCO that matter when figures are compared (https://cocodataset.org/#keypoints-eval): precision is interpolated
at 101 recalls; at most 20 poses an image count; hidden points (1) count as visible ones do; an object without labelled
points and a crowd region are neither found nor missed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nas.errors import UserError
from nas.tasks.pose.data.values import Poses
from nas.tasks.pose.decoding import FoundPoses

MOST_POSES = 20
"""Largest number of poses that count in an image, best first."""


@dataclass(frozen=True, slots=True)
class OksPrecision:
    """Fractions, 0..1."""

    map50_95: float
    """Mean over the similarities 0.5, 0.55, ..., 0.95."""
    map50: float
    """Average precision at a similarity of 0.5."""


def oks_precision(found: Sequence[FoundPoses], truth: Sequence[Poses], sigmas: Sequence[float]) -> OksPrecision:
    """Mean average precision of `found` against `truth`, image by image.

    Raises:
        UserError: no image has an object with labelled points.
        ValueError: the lists differ in length.
    """
    if len(found) != len(truth):
        raise ValueError(f"{len(found)} images were searched, {len(truth)} have truth")
    if not any(poses.labelled.any() for poses in truth):
        raise UserError(
            f"none of the {len(truth)} images has an object with labelled points, so there is no average precision",
            "give a split with at least one pose",
        )
    if not any(map(len, found)):
        return OksPrecision(0.0, 0.0)
    # (T, R): similarities, recalls
    precision = np.asarray(evaluated(found, truth, sigmas)["precision"])[..., 0, 0, 0]
    return OksPrecision(float(precision.mean()), float(precision[0].mean()))


def evaluated(found: Sequence[FoundPoses], truth: Sequence[Poses], sigmas: Sequence[float]) -> dict[str, Any]:
    """What the library accumulates."""
    from faster_coco_eval import COCO, COCOeval_faster

    coco, results = COCO(document(truth)), results_of(found)
    evaluation = COCOeval_faster(
        coco, coco.loadRes(results), "keypoints", print_function=_silent, kpt_oks_sigmas=list(sigmas)
    )
    evaluation.params.areaRng, evaluation.params.areaRngLbl = [[0, 1e10]], ["all"]
    evaluation.params.maxDets = [MOST_POSES]
    evaluation.evaluate()
    evaluation.accumulate()
    result: dict[str, Any] = evaluation.eval
    return result


def document(truth: Sequence[Poses]) -> dict[str, Any]:
    """`truth` as COCO writes it. Ids start at 1: the library takes 0 for "unmatched"."""
    annotations: list[dict[str, Any]] = []
    for image, poses in enumerate(truth, 1):
        for at in range(len(poses)):
            x0, y0, x1, y1 = (float(edge) for edge in poses.xyxy[at])
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": image,
                    "category_id": 1,
                    "bbox": [x0, y0, x1 - x0, y1 - y0],
                    "area": float(poses.area[at]),
                    "iscrowd": int(poses.crowd[at]),
                    "num_keypoints": int((poses.points[at, :, 2] > 0).sum()),
                    "keypoints": poses.points[at].astype(float).ravel().tolist(),
                }
            )
    images = [{"id": image} for image in range(1, len(truth) + 1)]
    return {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "object"}]}


def results_of(found: Sequence[FoundPoses]) -> list[dict[str, Any]]:
    """`found` as COCO wants results: without boxes, since the library would judge those in place of the points."""
    return [
        {
            "image_id": image,
            "category_id": 1,
            "keypoints": these.points[at].astype(float).ravel().tolist(),
            "score": float(these.scores[at]),
        }
        for image, these in enumerate(found, 1)
        for at in range(len(these))
    ]


def _silent(*_: object) -> None:
    """The library reports its progress through this."""
