"""The part of a bundle's pre-processing that tasks on images share."""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from nas.data.decode import DAMAGED, unreadable
from nas.data.portable import read_rgb, to_rgb
from nas.errors import UserError

SAMPLE_IMAGE = "sample.png"


def image_of(example: Any) -> Image.Image:
    """An 8-bit RGB image from a path, a file's bytes, a binary file object, a Pillow image or an array (h, w, 3) uint8.

    Files and Pillow images are turned upright as their EXIF says.

    Raises:
        UserError: a file that is no image, or an array of another shape or type.
    """
    if isinstance(example, np.ndarray):
        if example.dtype != np.uint8 or example.ndim != 3 or example.shape[2] != 3 or not example.size:
            raise UserError(
                f"an array of shape {example.shape} and type {example.dtype} is no image", "give (h, w, 3) uint8, RGB"
            )
        return Image.fromarray(example)
    if not (isinstance(example, str | Path | bytes | Image.Image) or hasattr(example, "read")):
        raise UserError(
            f"a {type(example).__name__} is no image", "give a path, a file's bytes, a Pillow image or an array"
        )
    name = str(example) if isinstance(example, str | Path) else f"({type(example).__name__})"
    try:
        if isinstance(example, Image.Image):
            return to_rgb(ImageOps.exif_transpose(example))
        return read_rgb(io.BytesIO(example) if isinstance(example, bytes) else example)
    except DAMAGED as error:
        raise unreadable(name, error) from error


def read_document(folder: Path, name: str) -> Any:
    """A JSON document of a bundle; raises `UserError` where it is missing or damaged."""
    path = folder / name
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"cannot read '{path}': {error}", "export the network again") from error


def read_labels(folder: Path, name: str) -> list[str]:
    """The names of the classes in a document of a bundle; raises `UserError` where it is missing or no such list."""
    found = read_document(folder, name)
    if not isinstance(found, list) or not found or not all(isinstance(label, str) for label in found):
        raise UserError(f"'{folder / name}' is no list of names of classes", "export the network again")
    return found


def sample_entries(folder: Path, pixels: NDArray[np.uint8], picture_size: tuple[int, int] | None) -> dict[str, Any]:
    """Write an image (h, w, 3) uint8 losslessly into a bundle; returns the entries of `sample.json` that name it and
    say how many rows and columns a usual picture has (None: as many as the image)."""
    Image.fromarray(pixels).save(folder / SAMPLE_IMAGE)
    return {"image": SAMPLE_IMAGE, "picture_size": list(picture_size or pixels.shape[:2])}


def usual_picture(folder: Path, sample: Mapping[str, Any]) -> Image.Image:
    """The sample's image at the size of a usual picture, decoded, as an application has it in memory."""
    rows, columns = (int(side) for side in sample["picture_size"])
    return read_rgb(folder / Path(sample["image"]).name).resize((columns, rows), Image.Resampling.BILINEAR)
