"""Augmentation of whole batches with tensor operations, so that no worker processes are needed to keep up."""

import math

import numpy as np
import torch
from torch.nn.functional import affine_grid, grid_sample, interpolate
from torchvision.transforms import v2

from nas.training.recipe import AugmentationSettings

_ZOOM_FROM_RESOLUTION = 64  # from here on `light` zooms; smaller images are only shifted
_AREA = (0.35, 1.0)  # share of the area that a crop keeps
_LOG_RATIO = math.log(4 / 3)
_GROUP = 8
"""Images that share their RandAugment operations: torchvision applies one to a whole tensor."""


class Augmenter:
    """A recipe's augmentation; draws from torch's global state and the generator it is given."""

    def __init__(self, settings: AugmentationSettings, num_classes: int, *, flip_ok: bool) -> None:
        self.settings = settings
        self.flip = flip_ok if settings.flip == "auto" else settings.flip
        ops = settings.randaugment_ops
        self.randaugment = v2.RandAugment(num_ops=ops, magnitude=settings.randaugment_magnitude) if ops else None
        mixers = ((v2.MixUp, settings.mixup_alpha), (v2.CutMix, settings.cutmix_alpha))
        self.mixers = [mixer(alpha=alpha, num_classes=num_classes) for mixer, alpha in mixers if alpha > 0]

    def images(self, images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """(n, h, h, 3) uint8 -> the same shape, uint8 or float32 in 0..255."""
        if self.randaugment is not None:
            groups = images.permute(0, 3, 1, 2).split(_GROUP)  # type: ignore[no-untyped-call]
            images = torch.cat([self.randaugment(group) for group in groups]).permute(0, 2, 3, 1)
        if self.settings.crop == "light":
            images = augment(images, generator, flip=self.flip)
        elif self.flip:
            mirrored = (torch.rand(len(images), generator=generator) < 0.5).to(images.device)
            images = torch.where(mirrored[:, None, None, None], images.flip(2), images)
        return images

    def mixed(
        self, images: torch.Tensor, targets: torch.Tensor, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Boxes erased and images mixed: (n, 3, h, w) normalised -> the same, with targets (n,) or (n, c)."""
        if self.settings.erasing_probability:
            images = erased(images, self.settings.erasing_probability, generator)
        if self.mixers and float(torch.rand((), generator=generator)) < self.settings.mix_probability:
            mixer = self.mixers[int(torch.randint(len(self.mixers), (), generator=generator))]
            images, targets = mixer(images, targets)
        return images, targets


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


def augment(images: torch.Tensor, generator: torch.Generator, *, flip: bool) -> torch.Tensor:
    """`light` augmentation: a shift by up to an eighth below 64 px, else a random resized crop; perhaps a flip.

    Args:
        images: (n, h, h, 3) uint8.
        generator: a CPU generator; the draws are the same on every device.

    Returns:
        (n, h, h, 3), uint8 or float32 in 0..255.
    """
    if images.shape[1] < _ZOOM_FROM_RESOLUTION:
        return random_shift(images, generator, flip=flip)
    return random_resized_crop(images, generator, flip=flip)


def random_shift(images: torch.Tensor, generator: torch.Generator, *, flip: bool) -> torch.Tensor:
    """Pad each side by an eighth with zeros, crop at a random place, mirror half of the images (if `flip`).

    (n, h, h, 3) uint8 -> the same shape and dtype.
    """
    n, size = images.shape[:2]
    pad = size // 8
    offsets = torch.randint(0, 2 * pad + 1, (2, n, 1), generator=generator)
    mirrored = torch.rand(n, 1, generator=generator) < 0.5 if flip else torch.zeros(n, 1, dtype=torch.bool)
    steps = torch.arange(size)
    rows = (offsets[0] + steps).to(images.device)
    columns = torch.where(mirrored, offsets[1] + size - 1 - steps, offsets[1] + steps).to(images.device)
    padded = torch.nn.functional.pad(images, (0, 0, pad, pad, pad, pad))
    return padded[torch.arange(n, device=images.device)[:, None, None], rows[:, :, None], columns[:, None, :]]


def random_resized_crop(images: torch.Tensor, generator: torch.Generator, *, flip: bool) -> torch.Tensor:
    """Crop 35-100 % of the area at an aspect ratio of 3/4..4/3, bilinearly resized back (after Szegedy et al. 2015).

    (n, h, h, 3) uint8 -> the same shape; on a CPU uint8, from crops of whole pixels, elsewhere float32 in 0..255.
    """
    n = len(images)
    draws = torch.rand(5, n, generator=generator)
    area = _AREA[0] + draws[0] * (_AREA[1] - _AREA[0])
    ratio = torch.exp((2 * draws[1] - 1) * _LOG_RATIO)
    # Shares of the image's sides, never beyond the image.
    width, height = (area * ratio).sqrt().clamp(max=1), (area / ratio).sqrt().clamp(max=1)
    mirrored = draws[4] < 0.5 if flip else torch.zeros(n, dtype=torch.bool)
    resized = _resized_one_by_one if images.device.type == "cpu" else _resized_together
    return resized(images, width, height, draws[2], draws[3], mirrored)


def _resized_one_by_one(
    images: torch.Tensor, width: torch.Tensor, height: torch.Tensor, across: torch.Tensor, down: torch.Tensor,
    mirrored: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    """torch's kernel for a single image of bytes costs a fraction of `grid_sample` on a batch of floats."""
    size = images.shape[1]
    widths, heights = ((side * size).round().long() for side in (width, height))
    lefts, tops = (across * (size - widths + 1)).long(), (down * (size - heights + 1)).long()
    boxes = zip(mirrored.tolist(), *(side.tolist() for side in (lefts, tops, widths, heights)), strict=True)
    # As planes once, not image by image: every view costs a good part of what the resizing does.
    planes = images.permute(0, 3, 1, 2).split(1)  # type: ignore[no-untyped-call]
    resized = []
    for image, (mirror, left, top, w, h) in zip(planes, boxes, strict=True):
        crop = image.narrow(2, top, h).narrow(3, left, w)
        # Without `antialias` another, slower kernel is used; crops are only enlarged, so that it changes nothing.
        large = interpolate(crop, size=(size, size), mode="bilinear", antialias=True)
        resized.append(large.flip(3) if mirror else large)
    return torch.cat(resized).permute(0, 2, 3, 1)


def _resized_together(
    images: torch.Tensor, width: torch.Tensor, height: torch.Tensor, across: torch.Tensor, down: torch.Tensor,
    mirrored: torch.Tensor,
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
    return cropped.permute(0, 2, 3, 1)
