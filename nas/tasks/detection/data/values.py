"""The values of object detection data: letterboxed images, in memory or in a file, and the boxes on them.

Dimensions in docstrings: n images, h rows, w columns, k boxes of an image, c classes. Boxes are (x0, y0, x1, y1) in
pixels, x to the right, y down, the edges of pixel i at i and i + 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from nas.data.contents import Contents, contents_of_arrays, labelled
from nas.data.images import ImageTraits, Preprocess, SplitName, image_input, image_side, resized_images
from nas.data.memo import Memo
from nas.data.stored import Images, take
from search_spaces.signature import Size, TensorSpec


@dataclass(frozen=True, slots=True, eq=False)
class Boxes:
    """The objects of one image."""

    xyxy: NDArray[np.float32]
    """(k, 4) float32 with x0 < x1 and y0 < y1, inside the image."""
    classes: NDArray[np.int64]
    """(k,) int64, indices into the data set's `classes`."""
    crowd: NDArray[np.bool_]
    """(k,) whether it is a region of many objects: no target of training, no error where something is found there."""

    def __post_init__(self) -> None:
        k = len(self.classes)
        if self.xyxy.shape != (k, 4) or self.crowd.shape != (k,):
            raise ValueError(f"{k} classes, but boxes {self.xyxy.shape} and crowd {self.crowd.shape}")

    def __len__(self) -> int:
        return len(self.classes)

    def content(self) -> bytes:
        """All of it, for fingerprints."""
        return self.xyxy.tobytes() + self.classes.tobytes() + self.crowd.tobytes()

    def scaled(self, factor: float) -> Self:
        """The same boxes in an image `factor` times as large."""
        return replace(self, xyxy=self.xyxy * np.float32(factor))


@dataclass(frozen=True, slots=True, eq=False)
class DetectionSplit:
    """Letterboxed square images, in memory or, where they are too many for it, in a file, with their boxes."""

    images: Images
    """(n, h, h, 3) uint8, RGB: the picture at the top left, the rest `PADDING`."""
    boxes: tuple[Boxes, ...]
    """n entries, in pixels of `images`."""
    extents: NDArray[np.int64]
    """(n, 2) int64: rows and columns of each image that hold the picture."""
    sources: Contents | None = None
    """(n,) contents of the files that the images were made from; None: of the images themselves."""

    def __post_init__(self) -> None:
        n, shape = len(self.boxes), self.images.shape
        if self.images.ndim != 4 or shape[0] != n or shape[1] != shape[2] or shape[3] != 3:
            raise ValueError(f"images {shape} do not fit {n} lists of boxes, (n, h, h, 3) is needed")
        if self.extents.shape != (n, 2):
            raise ValueError(f"extents {self.extents.shape} do not fit {n} images")

    def __len__(self) -> int:
        return len(self.boxes)

    @property
    def fingerprints(self) -> Contents:
        """(n,) of each image with its boxes: by them data that changed are recognised."""
        contents = contents_of_arrays(self.images[:]) if self.sources is None else self.sources
        return labelled(contents, [boxes.content() for boxes in self.boxes])

    @property
    def resolution(self) -> int:
        """Rows (and columns) of each image."""
        return int(self.images.shape[1])

    @property
    def input(self) -> TensorSpec:
        """Input of networks for these images."""
        return image_input(self.resolution)

    def some(self, count: int, seed: int = 0) -> Self:
        """`count` random images (all, where there are fewer), the same for the same seed."""
        return self.take(np.sort(np.random.default_rng(seed).permutation(len(self))[:count]))

    def take(self, indices: NDArray[np.int64] | Sequence[int]) -> Self:
        """The images at `indices`, in that order."""
        boxes = tuple(self.boxes[int(i)] for i in indices)
        sources = None if self.sources is None else self.sources[indices]
        images = take(self.images, indices)
        return replace(self, images=images, boxes=boxes, extents=self.extents[indices], sources=sources)

    def resized(self, resolution: int) -> Self:
        """All images at (resolution, resolution), boxes along."""
        factor = resolution / self.resolution
        extents = np.clip(np.rint(self.extents * factor), 1, resolution).astype(np.int64)
        images, boxes = resized_images(self.images, resolution), tuple(b.scaled(factor) for b in self.boxes)
        return replace(self, images=images, boxes=boxes, extents=extents, sources=None)


@dataclass(frozen=True, slots=True, eq=False)
class DetectionData:
    """A detection data set, always with three splits, used as those of `nas.data.images.ImageData` are."""

    name: str
    classes: tuple[str, ...]
    train: DetectionSplit
    val: DetectionSplit
    test: DetectionSplit
    native_resolution: int
    """Rows and columns of the stored letterboxed images."""
    preprocess: Preprocess
    """Fitted on `train`."""
    flip_ok: bool = True
    notes: tuple[str, ...] = ()
    """Origin of the splits and the flaws that were mended or left out, for reports."""
    picture_size: tuple[int, int] | None = None
    """Rows and columns of a usual picture before it was letterboxed; None: it was so already."""
    _memo: Memo = field(default_factory=Memo, init=False, repr=False)
    """`at` by its arguments."""

    @property
    def traits(self) -> ImageTraits:
        """Facts beside the images that a training has to know."""
        return ImageTraits(self.flip_ok)

    @property
    def task(self) -> str:
        """Key in `nas.tasks.TASKS`."""
        return "detection"

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def output_size(self) -> Size:
        """Size of a network's answer for these data: `(classes,)`."""
        return (self.num_classes,)

    def for_input(self, split: SplitName, input: TensorSpec) -> DetectionSplit:
        """`split` as a network takes it; kept in memory, so that a second call costs nothing."""
        return self.at(split, image_side(input))

    def inputs(self, split: DetectionSplit) -> NDArray[np.float32]:
        """The images of `split` as a network takes them, (n, 3, h, h) float32."""
        return self.preprocess.array(split.images[:])

    def at(self, split: SplitName, resolution: int) -> DetectionSplit:
        """`split` at `resolution`; kept in memory, so that a second call costs nothing."""
        original: DetectionSplit = getattr(self, split)
        if resolution == original.resolution:
            return original
        key = (split, resolution)
        if key not in self._memo:
            self._memo[key] = original.resized(resolution)
        found: DetectionSplit = self._memo[key]
        return found

    def with_splits(self, *, train: DetectionSplit, val: DetectionSplit, test: DetectionSplit) -> Self:
        """The same data with other examples."""
        return replace(self, train=train, val=val, test=test)

    def with_preprocess(self, preprocess: Preprocess) -> Self:
        """The same data, normalised otherwise."""
        return replace(self, preprocess=preprocess)
