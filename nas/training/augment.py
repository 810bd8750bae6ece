"""Augmentation of whole batches with tensor operations, so that no worker processes are needed to keep up."""

import math

import torch
from torch.nn.functional import affine_grid, grid_sample

_ZOOM_FROM_RESOLUTION = 64  # from here on `light` zooms; smaller images are only shifted
_AREA = (0.35, 1.0)  # share of the area that a crop keeps
_LOG_RATIO = math.log(4 / 3)


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

    (n, h, h, 3) uint8 -> (n, h, h, 3) float32 in 0..255.
    """
    n, size = images.shape[:2]
    draws = torch.rand(5, n, generator=generator)
    area = _AREA[0] + draws[0] * (_AREA[1] - _AREA[0])
    ratio = torch.exp((2 * draws[1] - 1) * _LOG_RATIO)
    # Half extents in grid_sample's coordinates (the image spans -1..1), never beyond the image.
    half_width, half_height = (area * ratio).sqrt().clamp(max=1), (area / ratio).sqrt().clamp(max=1)
    centre_x, centre_y = (2 * draws[2] - 1) * (1 - half_width), (2 * draws[3] - 1) * (1 - half_height)
    sign = torch.where(draws[4] < 0.5, -1.0, 1.0) if flip else torch.ones(n)
    zero = torch.zeros(n)
    theta = torch.stack(
        [torch.stack([sign * half_width, zero, centre_x], 1), torch.stack([zero, half_height, centre_y], 1)], 1
    ).to(images.device)
    grid = affine_grid(theta, [n, 3, size, size], align_corners=False)
    pixels = images.permute(0, 3, 1, 2).to(torch.float32)
    cropped = grid_sample(pixels, grid, mode="bilinear", padding_mode="reflection", align_corners=False)
    return cropped.permute(0, 2, 3, 1)
