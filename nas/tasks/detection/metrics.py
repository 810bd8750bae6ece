"""Mean average precision as COCO defines it, computed by faster-coco-eval.

Rules of COCO that matter when figures are compared (Lin et al. 2014, https://cocodataset.org/#detection-eval):
precision is interpolated at 101 recalls; the mean is over classes that have objects; of each class at most 100
detections an image count; what is found in a crowd region of its class is neither right nor wrong. IoU has no scale, so
letterboxed images give the figures that the original ones would.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nas.errors import UserError
from nas.tasks.detection.data.values import Boxes
from nas.tasks.detection.postprocess import Found

MOST_DETECTIONS = 100
"""Largest number of detections that count, of each class in an image, best first."""


@dataclass(frozen=True, slots=True)
class MeanAveragePrecision:
    """Fractions, 0..1."""

    map50: float
    """Mean average precision at an IoU of 0.5."""
    map50_95: float
    """Mean over the IoUs 0.5, 0.55, ..., 0.95."""
    per_class_ap50: tuple[float, ...]
    """Average precision of each class at an IoU of 0.5; NaN for classes without objects."""


def mean_average_precision(found: Sequence[Found], truth: Sequence[Boxes], num_classes: int) -> MeanAveragePrecision:
    """Mean average precision of `found` against `truth`, image by image.

    Raises:
        UserError: no image has an object (crowd regions are none), so there is no class to take a mean over.
        ValueError: the lists differ in length, or a class is not below `num_classes`.
    """
    if len(found) != len(truth):
        raise ValueError(f"{len(found)} images were searched, {len(truth)} have truth")
    labels = np.concatenate([np.empty(0, np.int64), *(f.classes for f in found), *(t.classes for t in truth)])
    if len(labels) and not 0 <= labels.min() <= labels.max() < num_classes:
        raise ValueError(f"classes {labels.min()} to {labels.max()} do not fit {num_classes} classes")
    if all(boxes.crowd.all() for boxes in truth):
        raise UserError(
            f"none of the {len(truth)} images has an object to find, so there is no mean average precision",
            "give a split with at least one box",
        )
    # (T, R, K): IoU thresholds, recalls, classes; -1 for classes without objects
    precision = np.asarray(_evaluated(found, truth, num_classes)["precision"])[..., 0, 0]
    judged = (precision > -1).all(axis=(0, 1))
    ap50 = np.where(judged, precision[0].mean(axis=0), np.nan)
    return MeanAveragePrecision(
        map50=float(np.nanmean(ap50)),
        map50_95=float(precision[..., judged].mean()),
        per_class_ap50=tuple(ap50.tolist()),
    )


def _evaluated(found: Sequence[Found], truth: Sequence[Boxes], num_classes: int) -> dict[str, Any]:
    from faster_coco_eval import COCO, COCOeval_faster

    # Ids start at 1: the library takes 0 for "unmatched".
    images = [{"id": image} for image in range(1, len(truth) + 1)]
    categories = [{"id": label, "name": str(label)} for label in range(num_classes)]
    objects = [
        {**_annotation(image, boxes, at), "iscrowd": int(boxes.crowd[at])}
        for image, boxes in enumerate(truth, 1)
        for at in range(len(boxes))
    ]
    for number, annotation in enumerate(objects, 1):
        annotation["id"] = number
    results = [
        {**_annotation(image, these, at), "score": float(these.scores[at])}
        for image, these in enumerate(found, 1)
        for at in range(len(these))
    ]
    coco = COCO({"images": images, "categories": categories, "annotations": objects})
    evaluation = COCOeval_faster(coco, coco.loadRes(results), "bbox", print_function=_silent)
    evaluation.params.areaRng, evaluation.params.areaRngLbl = [[0, 1e10]], ["all"]
    evaluation.params.maxDets = [MOST_DETECTIONS]
    evaluation.evaluate()
    evaluation.accumulate()
    result: dict[str, Any] = evaluation.eval
    return result


def _annotation(image: int, boxes: Found | Boxes, at: int) -> dict[str, Any]:
    x0, y0, x1, y1 = (float(edge) for edge in boxes.xyxy[at])
    box = [x0, y0, x1 - x0, y1 - y0]
    return {"image_id": image, "category_id": int(boxes.classes[at]), "bbox": box, "area": box[2] * box[3]}


def _silent(*_: object) -> None:
    """The library reports its progress through this."""
