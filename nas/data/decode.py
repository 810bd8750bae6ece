"""Encoded image files to square uint8 arrays, in a thread pool (Pillow releases the interpreter lock)."""

import io
import os
import struct
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from nas.data.portable import MAX_PIXELS, open_image, squared, to_rgb
from nas.data_options import Fit
from nas.errors import UserError
from nas.machine import available_memory_bytes
from nas.text import memory_size

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff")
MIN_RESOLUTION = 32
"""Smaller images are enlarged to this: the search spaces' skeletons start there."""

Reader = Callable[[], bytes]
"""Gives the bytes of an encoded image."""

# UnidentifiedImageError is an OSError; a TypeError comes of TIFF's tags with values of another type.
DAMAGED = (OSError, SyntaxError, ValueError, EOFError, TypeError, struct.error, Image.DecompressionBombError)
"""Exceptions that opening or decoding an image raises when the file is at fault."""


def ensure_fits(size_bytes: int, what: str) -> None:
    """Raise UserError where `size_bytes` is more than 80 % of the memory that is free now, also in a container."""
    free = available_memory_bytes()
    if size_bytes > 0.8 * free:
        raise UserError(
            f"{what} needs {memory_size(size_bytes)} of memory, {memory_size(free)} is free",
            "use a part of the images, or store them at a lower resolution",
        )


def stored_resolution(sizes: Sequence[tuple[int, int]], cap: int, fit: Fit = "crop") -> int:
    """Resolution to store pictures of these (rows, columns) at, within MIN_RESOLUTION..cap: the median of the sides
    that become it, the shorter ones, or with bars the longer ones."""
    side = min if fit == "crop" else max
    return int(min(max(median(map(side, sizes)), MIN_RESOLUTION), cap))


def square(image: Image.Image, size: int, fit: Fit = "crop") -> NDArray[np.uint8]:
    """(size, size, 3) uint8 RGB, see `squared`. The orientation stored in EXIF is applied; transparency is dropped."""
    return np.asarray(squared(to_rgb(ImageOps.exif_transpose(image)), size, fit), dtype=np.uint8)


def decode(read: Reader, name: str, size: int, *, exact: bool = False, fit: Fit = "crop") -> NDArray[np.uint8]:
    """One encoded image as (size, size, 3) uint8 RGB; `exact` where it has to be the very pixels that a bundle makes.

    Raises:
        UserError: `read` fails or does not give an image; the message has `name`.
    """
    try:
        with open_image(io.BytesIO(read())) as image:
            if not exact:  # JPEG can be decoded at 1/2, 1/4 or 1/8; twice the size keeps the antialiasing
                image.draft("RGB", (2 * size, 2 * size))
            return square(image, size, fit)
    except DAMAGED as error:
        raise unreadable(name, error) from error


def picture_size(read: Reader, name: str) -> tuple[int, int]:
    """(rows, columns) in pixels as they are stored, from the header only; raises like `decode`."""
    try:
        with open_image(io.BytesIO(read())) as image:
            return image.height, image.width
    except DAMAGED as error:
        raise unreadable(name, error) from error


def usual_size(sizes: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """(rows, columns) of the picture with the median number of pixels."""
    return sorted(sizes, key=lambda size: (size[0] * size[1], size))[len(sizes) // 2]


def decode_all(
    readers: Sequence[Reader], names: Sequence[str], size: int, *, exact: bool = False, fit: Fit = "crop"
) -> NDArray[np.uint8]:
    """(n, size, size, 3) uint8, in order, as `decode` makes each; the first unreadable image raises UserError with its
    name."""
    ensure_fits(len(readers) * size * size * 3, f"{len(readers)} images at {size} px")
    out = np.empty((len(readers), size, size, 3), np.uint8)

    def work(index: int) -> None:
        out[index] = decode(readers[index], names[index], size, exact=exact, fit=fit)

    run_in_threads(work, len(readers))
    return out


def run_in_threads(work: Callable[[int], None], count: int) -> None:
    """Call `work(0) .. work(count - 1)` in a thread pool; the first error (in order) stops the rest."""
    pool = ThreadPoolExecutor(max_workers=min(16, os.cpu_count() or 1))
    try:
        for _ in pool.map(work, range(count)):
            pass
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def unreadable(name: str, error: Exception) -> UserError:
    """The error to report about image `name`, one of `DAMAGED` having been raised."""
    if isinstance(error, Image.DecompressionBombError):
        most = MAX_PIXELS // 10**6
        return UserError(f"image {name!r} has more than {most} million pixels", "store it smaller, or cut it up")
    if isinstance(error, PermissionError | FileNotFoundError):  # the latter: a link that leads nowhere
        return UserError(f"cannot read image {name!r}: {error.strerror}", "make it readable, or remove it")
    return UserError(f"cannot read image {name!r}", "replace or remove the file: it is damaged or not an image")
