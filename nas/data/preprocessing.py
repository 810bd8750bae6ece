"""`preprocess.json`: how a network's input is made of an image, written beside its weights and in bundles."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nas.data.images import Preprocess
from nas.data_options import FITS
from nas.errors import UserError

PREPROCESS = "preprocess.json"
LARGEST = 8192
"""Rows and columns of an input beyond which a file is damaged, not the network large."""


def preprocess_document(preprocess: Preprocess, resolution: int, **resizing: Any) -> dict[str, Any]:
    """Instructions to make a network's input, for people and programs; `resizing` says what happens before scaling."""
    return {
        "layout": "NCHW float32",
        "resolution": resolution,
        **resizing,
        "scale": "x / 255, then (x - mean) / std per channel (RGB)",
        "mean": list(preprocess.mean),
        "std": list(preprocess.std),
    }


def read_instructions(folder: Path) -> Mapping[str, Any]:
    """The document in a folder's `preprocess.json`, found good enough to make inputs by.

    Raises:
        UserError: there is none, or it is damaged.
    """
    if read_preprocess(folder) is None:
        raise UserError(f"cannot read '{folder / PREPROCESS}': there is no such file", "export the network again")
    document: Mapping[str, Any] = json.loads((folder / PREPROCESS).read_text(encoding="utf-8"))
    for name, least, most in (("resolution", 1, LARGEST), ("padding", 0, 255)):
        value = document.get(name, least)
        if type(value) is not int or not least <= value <= most:
            raise UserError(
                f"'{folder / PREPROCESS}' says {name} {value!r:.60}, not {least} to {most}", "export the network again"
            )
    if "resolution" not in document:
        raise UserError(f"'{folder / PREPROCESS}' has no resolution", "export the network again")
    return document


def read_preprocess(folder: Path) -> Preprocess | None:
    """The pre-processing in a folder's `preprocess.json`; None without one. Raises `UserError` for a damaged file."""
    path = folder / PREPROCESS
    if not path.is_file():
        return None
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(document, dict):
            raise TypeError(document)
        mean, std = (tuple(float(value) for value in document[name]) for name in ("mean", "std"))
        (r, g, b), (r_std, g_std, b_std) = mean, std
        if not all(map(math.isfinite, (*mean, *std))) or not all(std):
            raise ValueError("numbers that nothing can be normalised by")
        framing = document.get("fit", FITS[0])  # what bundles of before do
        if framing not in FITS:
            raise ValueError(framing)
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:  # no JSON is a ValueError
        raise UserError(
            f"'{path}' has no mean and std of three channels, or an unknown fit", "remove it, or export again"
        ) from error
    return Preprocess((r, g, b), (r_std, g_std, b_std), framing)
