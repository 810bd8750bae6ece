"""A pose data set from a folder or an archive, whatever its format."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from nas.data.images import SPLITS
from nas.errors import UserError
from nas.tasks.detection.data.load import MAX_RESOLUTION, load_annotated, open_tree
from nas.tasks.detection.data.values import DetectionData
from nas.tasks.pose.data.annotations import PoseAnnotations, place_poses
from nas.tasks.pose.data.coco import read_coco_poses
from nas.tasks.pose.data.skeleton import ASSUMED_SIGMA, Skeleton
from nas.tasks.pose.data.values import PoseData, PoseSplit
from nas.tasks.pose.data.yolo import read_yolo_poses

LEAST_OBJECTS = 10
"""Training objects with labelled points, below which there is nothing to learn."""
_LAYOUTS = (
    "give COCO keypoints json (annotations/person_keypoints_train.json, images/train/*.jpg) or a YOLO pose folder "
    "(images/train/*.jpg, labels/train/*.txt, data.yaml with kpt_shape)"
)


def load_pose(path: str | Path, *, seed: int = 0, max_resolution: int = MAX_RESOLUTION) -> PoseData:
    """Load images with boxes and points into memory, with three splits.

    Args:
        path: a folder, or a tar or zip of one, in one of two formats, which is recognised (`docs/pose.md`).
        seed: of the held-out splits.
        max_resolution: as in `nas.tasks.detection.data.load.load_detection`.

    Raises:
        UserError: a missing path, an unknown format, boxes without points, too few objects with points, or
            annotations or images that cannot be used (named).
    """
    tree = open_tree(path, _LAYOUTS)
    annotations: PoseAnnotations | None = None
    for read in (read_coco_poses, read_yolo_poses):
        annotations = annotations or read(tree)
    if annotations is None:
        raise UserError(f"no annotations of points of training images in '{path}'", _LAYOUTS)
    found = load_annotated(path, annotations, place_poses, seed=seed, max_resolution=max_resolution)
    return _checked(_with_points(found, annotations.skeleton))


def _with_points(data: DetectionData, skeleton: Skeleton) -> PoseData:
    known: dict[str, Any] = {field.name: getattr(data, field.name) for field in fields(data) if field.init}
    for name in SPLITS:
        split = known[name]
        known[name] = PoseSplit(split.images, split.boxes, split.extents, split.sources, skeleton=skeleton)
    return PoseData(**{**known, "notes": (*data.notes, *_notes(skeleton))})


def _notes(skeleton: Skeleton) -> tuple[str, ...]:
    notes = []
    if skeleton.assumed:
        notes.append(f"nobody says how exact the points are: sigmas are assumed ({ASSUMED_SIGMA} where COCO has none)")
    if skeleton.mirror is None:
        notes.append("nobody says which points change places in a mirror image, so none is made")
    return tuple(notes)


def _checked(data: PoseData) -> PoseData:
    """Raises `UserError` where a split has too few objects with points."""
    for name in SPLITS:
        split: PoseSplit = getattr(data, name)
        count = int(np.sum([poses.labelled.sum() for poses in split.boxes]))
        least = LEAST_OBJECTS if name == "train" else 1
        if count < least:
            raise UserError(
                f"data set {data.name!r} has {count} objects with labelled points in {name}, {least} are needed",
                "label more of them: a flag of 0 means that a point is not labelled",
            )
    return data
