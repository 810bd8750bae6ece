"""Augmentation of whole batches with tensor operations, so that no worker processes are needed to keep up."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch.nn.functional import affine_grid, grid_sample, interpolate

from nas.training.recipe import AugmentationSettings, SizeStep

_ZOOM_FROM_RESOLUTION = 64  # from here on `light` zooms; smaller images are only shifted
_LEAST_SIDE, _SIDE_STEP = 32, 16  # of images in the parts of a training on smaller ones
_LOG_RATIO = math.log(4 / 3)
_GROUP = 8
"""Images that share their RandAugment operations: torchvision applies one to a whole tensor."""


class Augmenter:
    """A recipe's augmentation; draws from torch's global state and the generator it is given.

    Without `mixes` nothing is mixed, whatever the recipe says.
    """

    def __init__(self, settings: AugmentationSettings, num_classes: int, *, flip_ok: bool, mixes: bool = True) -> None:
        self.settings = settings
        self.flip = flip_ok if settings.flip == "auto" else settings.flip
        self.randaugment: Callable[[torch.Tensor], torch.Tensor] | None = None
        self.mixers: list[Callable[..., tuple[torch.Tensor, torch.Tensor]]] = []
        mixes = mixes and (settings.mixup_alpha > 0 or settings.cutmix_alpha > 0)
        if settings.randaugment_ops or mixes:
            from torchvision.transforms import v2  # takes seconds

            if ops := settings.randaugment_ops:
                self.randaugment = v2.RandAugment(num_ops=ops, magnitude=settings.randaugment_magnitude)
        if mixes:
            mixers = ((v2.MixUp, settings.mixup_alpha), (v2.CutMix, settings.cutmix_alpha))
            self.mixers = [mixer(alpha=alpha, num_classes=num_classes) for mixer, alpha in mixers if alpha > 0]

    def images(self, images: torch.Tensor, generator: torch.Generator, side: int | None = None) -> torch.Tensor:
        """(n, h, h, 3) uint8 -> (n, side, side, 3), uint8 or float32 in 0..255; `side` None: h."""
        side = side or images.shape[1]
        if self.randaugment is not None:
            groups = images.permute(0, 3, 1, 2).split(_GROUP)  # type: ignore[no-untyped-call]
            images = torch.cat([self.randaugment(group) for group in groups]).permute(0, 2, 3, 1)
        if self.settings.crop == "light" and images.shape[1] >= _ZOOM_FROM_RESOLUTION:
            return random_resized_crop(
                images, generator, flip=self.flip, smallest=self.settings.smallest_crop, side=side
            )
        if side != images.shape[1]:
            planes = interpolate(images.permute(0, 3, 1, 2), size=(side, side), mode="bilinear", antialias=True)
            images = planes.permute(0, 2, 3, 1)
        if self.settings.crop == "light":
            images = random_shift(images, generator, flip=self.flip)
        elif self.settings.crop == "shift":
            farthest = round(self.settings.shift_fraction * side)
            images = random_shift(images, generator, flip=self.flip, farthest=farthest, mirror_borders=True)
        elif self.flip:
            mirrored = (torch.rand(len(images), generator=generator) < 0.5).to(images.device)
            images = torch.where(mirrored[:, None, None, None], images.flip(2), images)
        return images

    def mixed(
        self, images: torch.Tensor, targets: torch.Tensor, generator: torch.Generator, progress: float = 0.0
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Boxes erased and images mixed: (n, 3, h, w) normalised -> the same, with targets (n,) or (n, c).

        `progress`: share of the training that is done.
        """
        if self.settings.erasing_probability:
            images = erased(images, self.settings.erasing_probability, generator)
        mixes = self.mixers and progress <= self.settings.mix_until
        if mixes and float(torch.rand((), generator=generator)) < self.settings.mix_probability:
            mixer = self.mixers[int(torch.randint(len(self.mixers), (), generator=generator))]
            images, targets = mixer(images, targets)
        return images, targets


def side_at(steps: Sequence[SizeStep], progress: float, whole: int) -> int:
    """Rows and columns of the training images when `progress` of the training is done; `whole` is that of its end."""
    scale = next((step.scale for step in steps if progress < step.until), 1.0)
    return min(whole, max(_LEAST_SIDE, round(whole * scale / _SIDE_STEP) * _SIDE_STEP))


def erased(images: torch.Tensor, probability: float, generator: torch.Generator) -> torch.Tensor:
    """Some of the images with a random box of zeros (the mean), 2-33 % of the area (Zhong et al. 2017).

    (n, c, h, w) normalised. For all images at once; timm's has a loop and draws from Python's global random state.
    """
    n, _, height, width = images.shape
    draws = torch.rand(5, n, generator=generator)
    area = 0.02 + draws[0] * (1 / 3 - 0.02)
    ratio = torch.exp((2 * draws[1] - 1) * np.log(1 / 0.3))
    box_height, box_width = (area * ratio).sqrt().clamp(max=1) * height, (area / ratio).sqrt().clamp(max=1) * width
    top, left = draws[2] * (height - box_height), draws[3] * (width - box_width)
    rows, columns = torch.arange(height), torch.arange(width)
    inside_rows = (rows >= top[:, None]) & (rows < (top + box_height)[:, None])
    inside_columns = (columns >= left[:, None]) & (columns < (left + box_width)[:, None])
    box = inside_rows[:, :, None] & inside_columns[:, None, :] & (draws[4] < probability)[:, None, None]
    return images.masked_fill(box[:, None].to(images.device), 0.0)


def random_shift(
    images: torch.Tensor,
    generator: torch.Generator,
    *,
    flip: bool,
    farthest: int | None = None,
    mirror_borders: bool = False,
) -> torch.Tensor:
    """Pad each side, crop at a random place, mirror half of the images (if `flip`).

    Args:
        images: (n, h, h, 3), uint8 or float32.
        generator: a CPU generator.
        flip: whether half of them are mirrored.
        farthest: pixels by which each side is padded; None: an eighth.
        mirror_borders: whether the padding mirrors the image (without its outermost pixels) instead of being 0.

    Returns:
        The same shape and dtype.
    """
    n, size = images.shape[:2]
    pad = size // 8 if farthest is None else farthest
    offsets = torch.randint(0, 2 * pad + 1, (2, n, 1), generator=generator)
    mirrored = torch.rand(n, 1, generator=generator) < 0.5 if flip else torch.zeros(n, 1, dtype=torch.bool)
    steps = torch.arange(size)
    rows = (offsets[0] + steps).to(images.device)
    columns = torch.where(mirrored, offsets[1] + size - 1 - steps, offsets[1] + steps).to(images.device)
    if mirror_borders:
        # As positions in the image itself: torch has no such padding for bytes.
        rows, columns = ((size - 1 - (at - pad).abs().sub(size - 1).abs()).abs() for at in (rows, columns))
        padded = images
    else:
        padded = torch.nn.functional.pad(images, (0, 0, pad, pad, pad, pad))
    return padded[torch.arange(n, device=images.device)[:, None, None], rows[:, :, None], columns[:, None, :]]


def random_resized_crop(
    images: torch.Tensor,
    generator: torch.Generator,
    *,
    flip: bool,
    smallest: float = 0.35,
    side: int | None = None,
) -> torch.Tensor:
    """Crop a part of the area at an aspect ratio of 3/4..4/3, bilinearly resized (after Szegedy et al. 2015).

    Args:
        images: (n, h, h, 3) uint8.
        generator: a CPU generator.
        flip: whether half of them are mirrored.
        smallest: share of the area that a crop keeps at least.
        side: rows and columns of the result; None: h.

    Returns:
        (n, side, side, 3); on a CPU uint8, from crops of whole pixels, elsewhere float32 in 0..255.
    """
    n = len(images)
    draws = torch.rand(5, n, generator=generator)
    area = smallest + draws[0] * (1 - smallest)
    ratio = torch.exp((2 * draws[1] - 1) * _LOG_RATIO)
    # Shares of the image's sides, never beyond the image.
    width, height = (area * ratio).sqrt().clamp(max=1), (area / ratio).sqrt().clamp(max=1)
    mirrored = draws[4] < 0.5 if flip else torch.zeros(n, dtype=torch.bool)
    resized = _resized_one_by_one if images.device.type == "cpu" else _resized_together
    return resized(images, width, height, draws[2], draws[3], mirrored, side or images.shape[1])


def _resized_one_by_one(
    images: torch.Tensor, width: torch.Tensor, height: torch.Tensor, across: torch.Tensor, down: torch.Tensor,
    mirrored: torch.Tensor, side: int,
) -> torch.Tensor:  # fmt: skip
    """torch's kernel for a single image of bytes costs a fraction of `grid_sample` on a batch of floats."""
    size = images.shape[1]
    widths, heights = ((extent * size).round().long() for extent in (width, height))
    lefts, tops = (across * (size - widths + 1)).long(), (down * (size - heights + 1)).long()
    boxes = zip(mirrored.tolist(), *(each.tolist() for each in (lefts, tops, widths, heights)), strict=True)
    # As planes once, not image by image: every view costs a good part of what the resizing does.
    planes = images.permute(0, 3, 1, 2).split(1)  # type: ignore[no-untyped-call]
    resized = []
    for image, (mirror, left, top, w, h) in zip(planes, boxes, strict=True):
        crop = image.narrow(2, top, h).narrow(3, left, w)
        # Without `antialias` another, slower kernel is used, also where crops are only enlarged.
        large = interpolate(crop, size=(side, side), mode="bilinear", antialias=True)
        resized.append(large.flip(3) if mirror else large)
    return torch.cat(resized).permute(0, 2, 3, 1)


def _resized_together(
    images: torch.Tensor, width: torch.Tensor, height: torch.Tensor, across: torch.Tensor, down: torch.Tensor,
    mirrored: torch.Tensor, side: int,
) -> torch.Tensor:  # fmt: skip
    """A few kernels for the whole batch, as a GPU likes it."""
    n, size = images.shape[:2]
    # In grid_sample's coordinates the image spans -1..1.
    centre_x, centre_y = (2 * across - 1) * (1 - width), (2 * down - 1) * (1 - height)
    sign = torch.where(mirrored, -1.0, 1.0)
    zero = torch.zeros(n)
    theta = torch.stack([torch.stack([sign * width, zero, centre_x], 1), torch.stack([zero, height, centre_y], 1)], 1)
    grid = affine_grid(theta.to(images.device), [n, 3, size, size], align_corners=False)
    pixels = images.permute(0, 3, 1, 2).to(torch.float32)
    cropped = grid_sample(pixels, grid, mode="bilinear", padding_mode="reflection", align_corners=False)
    if side != size:  # apart, since a sampled grid of fewer points would leave pixels out
        cropped = interpolate(cropped, size=(side, side), mode="bilinear", antialias=True)
    return cropped.permute(0, 2, 3, 1)
