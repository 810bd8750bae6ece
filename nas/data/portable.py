"""From an image file to a network's input with numpy and Pillow alone.

The source of these functions is written into the `run.py` of bundles, see `nas.tasks.script`; the same functions serve
training and `nas` itself, so that there is one way to make an input.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

MAX_PIXELS = 50_000_000
"""Largest picture in a file that is decoded: a few kilobytes can claim to be as large as they like."""
PADDING = 114
"""Grey level (0..255) beside a picture that does not fill its square (the usual value, Jocher et al., YOLOv5)."""


def to_rgb(image: Image.Image) -> Image.Image:
    """`image` as 8-bit RGB: transparency is dropped, 16-bit grey scaled (convert("RGB") would cut it off at 255)."""
    if image.mode.startswith("I"):  # 16-bit grey; "I" is how some formats hold it in 32 bits
        grey = np.clip(np.asarray(image), 0, 65535) / 257
        image = Image.fromarray(np.rint(grey).astype(np.uint8))
    if image.mode == "P":  # a palette may hold transparency, which convert("RGB") would warn about
        image = image.convert("RGBA")
    return image.convert("RGB")


def open_image(source: Any) -> Image.Image:
    """The image in a file (a path or a binary file object), by formats that hold pixels alone: Pillow would also start
    the interpreter of a page description that is called photo.jpg.

    Only the header is read. Raises `Image.DecompressionBombError` where it announces more than `MAX_PIXELS`.
    """
    image = Image.open(source, formats=("JPEG", "PNG", "WEBP", "BMP", "GIF", "PPM", "TIFF"))
    if image.width * image.height > MAX_PIXELS:
        with image:  # closes the file, where it is not the caller's
            raise Image.DecompressionBombError(f"{image.width} x {image.height} pixels, at most {MAX_PIXELS} are read")
    return image


def read_rgb(source: Any) -> Image.Image:
    """The image in a file (a path or a binary file object) as 8-bit RGB, upright as its EXIF says."""
    with open_image(source) as image:
        return to_rgb(ImageOps.exif_transpose(image))


def squared(image: Image.Image, side: int, fit: str = "crop") -> Image.Image:
    """An RGB image as a square of `side` pixels, bilinear with antialiasing.

    `crop`: the shorter side is resized to it, and the middle is taken. `letterbox`: the longer side is, and what is
    left on both sides of the picture is grey of `PADDING`.
    """
    if image.size == (side, side):
        return image
    if fit == "crop":
        return ImageOps.fit(image, (side, side), Image.Resampling.BILINEAR)
    width, height = (max(1, round(extent * (side / max(image.size)))) for extent in image.size)
    square = Image.new("RGB", (side, side), (PADDING,) * 3)
    square.paste(image.resize((width, height), Image.Resampling.BILINEAR), ((side - width) // 2, (side - height) // 2))
    return square


def affine(mean: Sequence[float], std: Sequence[float]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Factor and summand of each channel for pixels in 0..255: one multiply-add instead of three operations."""
    return (1 / (255 * np.asarray(std))).astype(np.float32), (-np.asarray(mean) / np.asarray(std)).astype(np.float32)


def normalised(images: NDArray[np.uint8], mean: Sequence[float], std: Sequence[float]) -> NDArray[np.float32]:
    """(n, h, w, 3) uint8 -> contiguous (n, 3, h, w) float32, `(x / 255 - mean) / std` of each channel."""
    scale, shift = affine(mean, std)
    # Bytes are turned round first, a quarter of what floats would be: several times faster, to the same numbers.
    planes = np.ascontiguousarray(images.transpose(0, 3, 1, 2)).astype(np.float32)
    planes *= scale[:, None, None]
    planes += shift[:, None, None]
    return planes
