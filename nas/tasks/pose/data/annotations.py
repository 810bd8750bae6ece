"""Pictures with boxes and points as they were written down, and where they come to lie in a letterboxed image."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nas.tasks.detection.data.annotations import Annotated, Annotations
from nas.tasks.detection.data.letterbox import Finding, Frame, placed, upright
from nas.tasks.pose.data.skeleton import Skeleton
from nas.tasks.pose.data.values import AREA_OF_BOX, Poses


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PoseAnnotated(Annotated):
    """One picture with its k boxes and their points, in the annotation's own units."""

    points: NDArray[np.float64]
    """(k, K, 3) float64: x, y and 0, 1 or 2; what could not be read is nan."""
    areas: NDArray[np.float64]
    """(k,) float64, in square units; nan where it is not known."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PoseAnnotations(Annotations):
    """A pose data set as a format's reader found it."""

    skeleton: Skeleton


def place_poses(item: Annotated, image: Frame) -> tuple[Poses, list[Finding]]:
    """The objects of `item`, a `PoseAnnotated`, in the pixels of `image`, and what was mended.

    Points outside the picture become unlabelled, never points at its edge. Objects without an area are as large as
    their box lets expect. Raises as `nas.tasks.detection.data.letterbox.placed`.
    """
    assert isinstance(item, PoseAnnotated)
    found = placed(item, image)
    findings = list(found.findings)
    width, height = image.upright
    rows, columns = image.extent
    k, count, _ = item.points.shape

    wanted = item.points[..., 2] > 0  # false for nan
    readable = np.isfinite(item.points[..., :2]).all(axis=2)
    _report(findings, "points that are no finite numbers are not labelled", item, wanted & ~readable)
    labelled = wanted & readable
    given = np.where(labelled[..., None], item.points[..., :2], 0.0).reshape(-1, 2)
    # A point turns and scales as a box does that has no size; the picture's own findings were told already.
    places = upright(item, image, np.tile(given, 2), [])[:, :2].reshape(k, count, 2)
    inside = ((places >= 0) & (places <= (width, height))).all(axis=2)
    _report(findings, "points outside their image are not labelled", item, labelled & ~inside)
    labelled &= inside

    factors = np.array([columns / width, rows / height])
    points = np.zeros((k, count, 3), np.float32)
    points[..., :2] = np.where(labelled[..., None], places * factors, 0.0)
    points[..., 2] = np.where(labelled, np.clip(np.nan_to_num(item.points[..., 2]), 0, 2), 0)

    box_areas = np.prod(found.xyxy[:, 2:] - found.xyxy[:, :2], axis=1)
    with np.errstate(invalid="ignore"):
        known = np.isfinite(item.areas) & (item.areas > 0)
    has_points = labelled.any(axis=1) & found.keep
    if (has_points & ~known).any():
        what = f"areas that are missing or 0 are taken for {AREA_OF_BOX} of the box's"
        findings.append((what, f"in '{item.name}'", int((has_points & ~known).sum())))
    in_picture = item.areas * _square_pixels(item, image) * factors.prod()
    area = np.where(known, in_picture, AREA_OF_BOX * box_areas).astype(np.float32)
    keep = found.keep
    return (
        Poses(found.xyxy[keep], item.classes[keep], item.crowd[keep], points[keep], np.maximum(area, 1e-3)[keep]),
        findings,
    )


def _square_pixels(item: Annotated, image: Frame) -> float:
    """Square pixels of the upright picture in a square unit of the annotation."""
    if item.relative:
        return float(np.prod(image.upright))
    return 1.0 if item.size is None else float(np.prod(image.stored) / np.prod(item.size))


def _report(findings: list[Finding], what: str, item: Annotated, which: NDArray[np.bool_]) -> None:
    if which.any():
        box, point = (int(number) for number in np.argwhere(which)[0])
        findings.append((what, f"point {point + 1} of object {box + 1} in '{item.name}'", int(which.sum())))
