"""The values of image classification data: splits in memory, their normalisation, and how splits are made.

Dimensions in docstrings: n images, h rows, w columns, c classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from nas.data.contents import Contents, content_of, contents_of_arrays, labelled
from nas.data.decoded import decoded
from nas.data.memo import Memo
from nas.data.originals import Originals
from nas.data.portable import PADDING, affine, normalised
from nas.data.store import Wanted, stored_images, too_large_for_memory
from nas.data.stored import Images, StoredImages, take
from nas.data_options import Fit
from nas.errors import UserError
from search_spaces.signature import Size, TensorSpec

if TYPE_CHECKING:
    import torch

SplitName = Literal["train", "val", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "val", "test")


def image_input(side: int) -> TensorSpec:
    """Input of a network for square RGB images of `side` rows and columns."""
    return TensorSpec((3, side, side))


def square_input(input: TensorSpec, side: int) -> TensorSpec:
    """An input for images like those of `input`, of `side` rows and columns."""
    return TensorSpec((input.shape[0], side, side), input.dtype, input.values)


def is_image_input(input: TensorSpec) -> bool:
    """True if it is for square RGB images."""
    return input == image_input(input.shape[-1])


def image_side(input: TensorSpec) -> int:
    """Rows and columns of the images that a network takes; raises `ValueError` where it takes no square RGB image."""
    if not is_image_input(input):
        raise ValueError(f"this network takes no square RGB image: {input}")
    return input.shape[-1]


@dataclass(frozen=True, slots=True, eq=False)
class ImageSplit:
    """Labelled square images, in memory or, where they are too many for it, in a file."""

    images: Images
    """(n, h, w, 3) uint8, RGB, h == w."""
    labels: NDArray[np.int64]
    """(n,) int64, indices into the data set's `classes`."""
    originals: Originals | None = None
    """The files that the images were made from, where there were any."""
    sources: Contents | None = None
    """(n,) contents of what the images were made from; None: of the images themselves."""
    balanced: bool = False
    """True if accuracies on these images are balanced: every class counts as much as any other."""

    def __post_init__(self) -> None:
        n, shape = len(self.labels), self.images.shape
        if self.images.ndim != 4 or shape[0] != n or shape[1] != shape[2] or shape[3] != 3:
            raise ValueError(f"images must have shape (n, h, h, 3) with n = {n} labels, got {shape}")
        if self.images.dtype != np.uint8 or self.labels.dtype != np.int64:
            raise ValueError(f"images must be uint8 and labels int64, got {self.images.dtype} and {self.labels.dtype}")

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def contents(self) -> Contents:
        """(n,) what the images are, see `nas.data.contents`; the same at any resolution."""
        return contents_of_arrays(self.images[:]) if self.sources is None else self.sources

    @property
    def fingerprints(self) -> Contents:
        """(n,) of each image with its label: by them data that changed are recognised."""
        return labelled(self.contents, [label.tobytes() for label in self.labels])

    @property
    def resolution(self) -> int:
        """Rows (and columns) of each image."""
        return int(self.images.shape[1])

    @property
    def input(self) -> TensorSpec:
        """Input of networks for these images."""
        return image_input(self.resolution)

    def some(self, count: int, seed: int = 0) -> "ImageSplit":
        """`count` random images (all, where there are fewer), the same for the same seed.

        The first ones would not do: image folders are ordered by class.
        """
        return self.take(np.sort(np.random.default_rng(seed).permutation(len(self))[:count]))

    def take(self, indices: NDArray[np.int64] | Sequence[int]) -> "ImageSplit":
        """The images at `indices`, in that order."""
        originals = None if self.originals is None else self.originals.take(indices)
        sources = None if self.sources is None else self.sources[indices]
        return ImageSplit(take(self.images, indices), self.labels[indices], originals, sources, self.balanced)


FITTED_BYTES = 2 * 2**30
"""Pixel values that a normalisation is fitted on, at most: more cost minutes and change its fourth digit."""


@dataclass(frozen=True, slots=True)
class Preprocess:
    """The one definition of a network's input, for training, calibration and deployment.

    uint8 NHWC -> float32 NCHW, `(x / 255 - mean) / std` per channel; mean and std are in units of [0, 1].
    """

    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    framing: Fit = "crop"
    """How a picture of any aspect becomes a square image."""

    def array(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """(n, h, w, 3) uint8 -> contiguous (n, 3, h, w) float32."""
        return normalised(images, self.mean, self.std)

    def tensor(self, images: "torch.Tensor") -> "torch.Tensor":
        """(n, h, w, 3) uint8 or float in 0..255 -> (n, 3, h, w) float32 in channels-last memory, on its device."""
        import torch

        n, height, width, _ = images.shape
        # Tiled over a row: broadcasting over the three channels alone is several times slower on a CPU.
        scale, shift = (torch.from_numpy(a).to(images.device).repeat(width) for a in affine(self.mean, self.std))
        # In one new tensor: on a CPU fresh memory costs more than the arithmetic.
        rows = images.reshape(n, height, width * 3).to(torch.float32, copy=True).mul_(scale).add_(shift)
        return rows.view(n, height, width, 3).permute(0, 3, 1, 2)

    @classmethod
    def fit(cls, images: Images, framing: Fit = "crop") -> "Preprocess":
        """Mean and standard deviation of each channel over `images`, (n, h, w, 3) uint8, which `framing` has made; over
        every so many of them where they have more than `FITTED_BYTES`."""
        step = -(-len(images) * int(np.prod(images.shape[1:])) // FITTED_BYTES)
        if step > 1:  # of images in memory no copy is made
            stored = isinstance(images, StoredImages)
            images = take(images, np.arange(0, len(images), step)) if stored else images[::step]
        return replace(cls.of_histogram(histogram(images)), framing=framing)

    @classmethod
    def of_histogram(cls, counts: NDArray[np.int64]) -> "Preprocess":
        """The same from how often each channel has each value, (3, 256) int64: exact, without floats of a whole set."""
        values = np.arange(256) / 255
        means, stds = [], []
        for channel in range(3):
            mean = float(np.average(values, weights=counts[channel]))
            variance = float(np.average((values - mean) ** 2, weights=counts[channel]))
            means.append(mean)
            # A constant channel (synthetic data) must not divide by zero.
            stds.append(max(variance**0.5, 1 / 255))
        return cls((means[0], means[1], means[2]), (stds[0], stds[1], stds[2]))


def histogram(images: Images) -> NDArray[np.int64]:
    """(3, 256) int64: how often each channel of `images`, (n, h, w, 3) uint8, has each value."""
    counts = np.zeros((3, 256), np.int64)
    chunk = 64  # np.bincount makes an int64 copy of what it counts
    for start in range(0, len(images), chunk):
        part = images[start : start + chunk]
        for channel in range(3):
            counts[channel] += np.bincount(part[..., channel].ravel(), minlength=256)
    return counts


@dataclass(frozen=True, slots=True)
class ImageTraits:
    """Facts beside the images that a training has to know of them."""

    flip_ok: bool = True
    """True if a mirrored image is still what its label says (not so for digits)."""
    class_weights: tuple[float, ...] | None = None
    """Weight of each class in the loss; None: all the same."""


@dataclass(frozen=True, slots=True, eq=False)
class RawImages:
    """Output of a source, before missing splits are held out of `train`."""

    classes: tuple[str, ...]
    train: ImageSplit
    val: ImageSplit | None = None
    test: ImageSplit | None = None
    flip_ok: bool = True
    picture_size: tuple[int, int] | None = None
    """See `ImageData.picture_size`; None: that of the stored images."""
    framing: Fit = "crop"
    """How pictures became squares."""


@dataclass(frozen=True, slots=True, eq=False)
class ImageData:
    """A classification data set, always with three splits.

    - `train`: weights are fitted on it, int8 ranges are calibrated on it.
    - `val`: every decision of a search (proxies, short trainings, early stopping, choice of precision) uses it.
    - `test`: the final number only; nothing may be chosen by it.
    """

    name: str
    classes: tuple[str, ...]
    train: ImageSplit
    val: ImageSplit
    test: ImageSplit
    native_resolution: int
    """Rows and columns of the stored images; larger resolutions are interpolated."""
    preprocess: Preprocess
    """Fitted on `train`."""
    flip_ok: bool = True
    """True if a mirrored image keeps its class (not so for digits)."""
    class_weights: tuple[float, ...] | None = None
    """Weight of each class in the loss; None: all the same."""
    notes: tuple[str, ...] = ()
    """Origin of the splits, for reports."""
    picture_size: tuple[int, int] | None = None
    """Rows and columns of a usual picture before it was made a stored image; None: it was one already."""
    _memo: Memo = field(default_factory=Memo, init=False, repr=False)
    """`at` by its arguments."""

    @property
    def traits(self) -> ImageTraits:
        """Facts beside the images that a training has to know."""
        return ImageTraits(self.flip_ok, self.class_weights)

    @property
    def task(self) -> Literal["classification"]:
        """Key in `nas.tasks.TASKS`."""
        return "classification"

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def output_size(self) -> Size:
        """Size of a network's answer for these data: `(classes,)`."""
        return (self.num_classes,)

    def for_input(self, split: SplitName, input: TensorSpec) -> ImageSplit:
        """`split` as a network takes it; kept in memory, so that a second call costs nothing.

        What networks are judged on (`val` and `test`) is made of the original files where there are any, just as a
        bundle makes it: images that were stored at another size first are less sharp.
        """
        return self.at(split, image_side(input))

    def inputs(self, split: ImageSplit) -> NDArray[np.float32]:
        """The examples of `split` as a network takes them, (n, 3, h, w) float32."""
        return self.preprocess.array(split.images[:])

    def at(self, split: SplitName, resolution: int) -> ImageSplit:
        """`split` resized to `resolution`; kept in memory, so that a second call costs nothing."""
        original: ImageSplit = getattr(self, split)
        judged = split != "train" and original.originals is not None
        if resolution == original.resolution and not (judged and self._decoded_in_part(resolution)):
            return original
        key = (split, resolution)
        if key not in self._memo:
            self._memo[key] = (
                from_originals(original, resolution, self.preprocess.framing)
                if judged
                else resized(original, resolution)
            )
        found: ImageSplit = self._memo[key]
        return found

    def _decoded_in_part(self, resolution: int) -> bool:
        """True if usual pictures are so large that decoding skipped some of their detail (see `decode`)."""
        return self.picture_size is not None and min(self.picture_size) >= 4 * resolution

    def with_splits(self, *, train: ImageSplit, val: ImageSplit, test: ImageSplit) -> "ImageData":
        """The same data with other examples."""
        return replace(self, train=train, val=val, test=test)

    def with_preprocess(self, preprocess: Preprocess) -> "ImageData":
        """The same data, normalised otherwise.

        Raises:
            UserError: what it is of has seen pictures that became squares in another way.
        """
        if preprocess.framing != self.preprocess.framing:
            raise UserError(
                f"this network has seen pictures by --fit {preprocess.framing}, the data {self.name!r} were read with "
                f"--fit {self.preprocess.framing}",
                "name the network by its run (RUN#1) or bundle, which know it, or give the same --fit",
            )
        return replace(self, preprocess=preprocess)


def resized(split: ImageSplit, resolution: int) -> ImageSplit:
    """`split` at (resolution, resolution), by antialiased bilinear interpolation."""
    images = resized_images(split.images, resolution)
    return ImageSplit(images, split.labels, sources=split.contents, balanced=split.balanced)


def resized_images(images: Images, resolution: int) -> Images:
    """The images at (resolution, resolution), see `resize_images`: in the store where they are too many for memory.

    Raises:
        UserError: a disk without room.
    """
    if not too_large_for_memory(len(images) * resolution * resolution * 3):
        return resize_images(images, resolution)

    def make(start: int, stop: int) -> tuple[NDArray[np.uint8], Contents]:
        return resize_images(images[start:stop], resolution), np.arange(start, stop, dtype=np.uint64)

    wanted = Wanted(source=_source(images), identity=_identity(images), images=len(images), side=resolution)
    return stored_images(wanted, make)[0]


def _source(images: Images) -> str:
    """What images that are resized into the store are, for people."""
    side = images.shape[1]
    return f"{images.file.parent.name} ({side} px)" if isinstance(images, StoredImages) else f"images of {side} px"


def _identity(images: Images) -> str:
    """Which images these are; those in a file are known by it."""
    if isinstance(images, StoredImages):
        return f"resized {images.file.parent.name} {content_of(images.rows.tobytes())}"
    return f"resized {content_of(np.ascontiguousarray(images).data)}"


def from_originals(split: ImageSplit, resolution: int, fit: Fit = "crop") -> ImageSplit:
    """`split` at (resolution, resolution), decoded from its original files as a bundle does it.

    Raises:
        UserError: a file is no longer there, or no image.
    """
    files = split.originals
    assert files is not None
    images, _ = decoded(files, files.readers(), files.labels(), resolution, exact=True, fit=fit)
    return ImageSplit(images, split.labels, files, split.sources, split.balanced)


def resize_images(images: Images, resolution: int, fit: Fit = "crop") -> NDArray[np.uint8]:
    """(n, h, w, 3) uint8 -> (n, resolution, resolution, 3), as `nas.data.portable.squared` says of single pictures."""
    import torch
    from torch.nn.functional import interpolate

    height, width = images.shape[1:3]
    scale = resolution / (min if fit == "crop" else max)(height, width)
    least = resolution if fit == "crop" else 1
    size = (max(least, round(height * scale)), max(least, round(width * scale)))
    top, left = (abs(side - resolution) // 2 for side in size)
    out = np.full((len(images), resolution, resolution, 3), PADDING, np.uint8)
    chunk = 256  # bounds the memory of the intermediate copies
    for start in range(0, len(images), chunk):
        # np.array copies: a read-only memory map must not become a tensor
        batch = torch.from_numpy(np.array(images[start : start + chunk])).permute(0, 3, 1, 2)
        small = interpolate(batch, size=size, mode="bilinear", antialias=True, align_corners=False)
        small = small.permute(0, 2, 3, 1)
        if fit == "crop":
            out[start : start + chunk] = small[:, top : top + resolution, left : left + resolution].numpy()
        else:
            out[start : start + chunk, top : top + size[0], left : left + size[1]] = small.numpy()
    return out
