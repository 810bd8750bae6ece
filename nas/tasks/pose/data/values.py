"""The values of pose data: letterboxed images, the boxes on them, and the points in each box.

Dimensions in docstrings: n images, k boxes of an image, K points of a box. Pixels are those of
`nas.tasks.detection.data.values`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from nas.data.images import SplitName, image_side
from nas.tasks.detection.data.values import Boxes, DetectionData, DetectionSplit
from nas.tasks.pose.data.skeleton import Skeleton
from search_spaces.signature import Size, TensorSpec

AREA_OF_BOX = 0.53
"""Area of a person over that of the box around it, where nobody measured it: what COCO's own are on average, as
super-gradients and faster-coco-eval take it."""


@dataclass(frozen=True, slots=True, eq=False)
class Poses(Boxes):
    """The objects of one image with their points."""

    points: NDArray[np.float32]
    """(k, K, 3) float32: x and y in pixels, and 0 (not labelled; x and y mean nothing), 1 (hidden) or 2 (visible).

    A labelled point lies in the image, but not always in its box.
    """
    area: NDArray[np.float32]
    """(k,) float32, square pixels, positive: what distances of points are measured by."""

    def __post_init__(self) -> None:
        Boxes.__post_init__(self)
        k, shape = len(self.classes), self.points.shape
        if len(shape) != 3 or shape[0] != k or shape[2] != 3 or self.area.shape != (k,):
            raise ValueError(f"{k} boxes, but points {shape} and areas {self.area.shape}")

    def content(self) -> bytes:
        """All of it, for fingerprints."""
        return Boxes.content(self) + self.points.tobytes() + self.area.tobytes()

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """(k,) whether some point is labelled, and the object is no crowd: what poses are judged on."""
        return np.asarray((self.points[..., 2] > 0).any(axis=1) & ~self.crowd, np.bool_)

    def scaled(self, factor: float) -> "Poses":
        """The same objects in an image `factor` times as large."""
        by = np.array([factor, factor, 1.0], np.float32)
        return Poses(
            self.xyxy * np.float32(factor),
            self.classes,
            self.crowd,
            self.points * by,
            self.area * np.float32(factor**2),
        )


@dataclass(frozen=True, slots=True, eq=False)
class PoseSplit(DetectionSplit):
    """Letterboxed square images with the poses on them."""

    boxes: tuple[Poses, ...]
    skeleton: Skeleton = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class PoseTraits:
    """Facts beside the images that a training has to know."""

    flip_ok: bool
    """Whether a mirrored image is one, with points swapped as the skeleton says."""
    skeleton: Skeleton


@dataclass(frozen=True, slots=True, eq=False)
class PoseData(DetectionData):
    """A pose data set, always with three splits, used as those of `nas.data.images.ImageData` are."""

    train: PoseSplit
    val: PoseSplit
    test: PoseSplit

    @property
    def skeleton(self) -> Skeleton:
        return self.train.skeleton

    @property
    def traits(self) -> PoseTraits:  # type: ignore[override]  # what a training of this task has to know
        """See `PoseTraits`."""
        return PoseTraits(self.flip_ok and self.skeleton.mirror is not None, self.skeleton)

    @property
    def task(self) -> str:
        """Key in `nas.tasks.TASKS`."""
        return "pose"

    @property
    def output_size(self) -> Size:
        """Size of a network's answer for these data: `(1, points)`."""
        return (1, len(self.skeleton))

    def for_input(self, split: SplitName, input: TensorSpec) -> PoseSplit:
        """`split` as a network takes it; kept in memory, so that a second call costs nothing."""
        return self.at(split, image_side(input))

    def at(self, split: SplitName, resolution: int) -> PoseSplit:
        """`split` at `resolution`; kept in memory, so that a second call costs nothing."""
        found = DetectionData.at(self, split, resolution)
        assert isinstance(found, PoseSplit)
        return found


def joined(parts: Sequence[Poses]) -> Poses:
    """The objects of all of `parts` (at least one) on one image."""
    names = ("xyxy", "classes", "crowd", "points", "area")
    return Poses(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def no_poses(points: int) -> Poses:
    """An image without objects."""
    return Poses(
        np.empty((0, 4), np.float32), np.empty(0, np.int64), np.empty(0, np.bool_),
        np.empty((0, points, 3), np.float32), np.empty(0, np.float32),
    )  # fmt: skip
