"""What tasks on images share of a bundle's pre-processing."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from nas.data.decode import DAMAGED, unreadable
from nas.data.portable import read_rgb, to_rgb
from nas.errors import UserError


def image_of(example: Any) -> Image.Image:
    """An 8-bit RGB image from a path, a binary file object, a Pillow image or an array (h, w, 3) uint8.

    Raises:
        UserError: a file that is no image.
    """
    if isinstance(example, np.ndarray):
        return Image.fromarray(example)
    if isinstance(example, Image.Image):
        return to_rgb(example)
    try:
        return read_rgb(example)
    except DAMAGED as error:
        raise unreadable(str(example), error) from error


def read_document(folder: Path, name: str) -> Any:
    """A JSON document of a bundle; raises `UserError` where it is missing or damaged."""
    path = folder / name
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read '{path}': {error}", "export the network again") from error
