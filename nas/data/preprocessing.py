"""`preprocess.json`: how a network's input is made of an image, written beside its weights and in bundles."""

import json
from pathlib import Path
from typing import Any

from nas.data.images import Preprocess
from nas.errors import UserError

PREPROCESS = "preprocess.json"


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


def read_preprocess(folder: Path) -> Preprocess | None:
    """The normalisation in a folder's `preprocess.json`; None without one. Raises `UserError` for a damaged file."""
    path = folder / PREPROCESS
    if not path.is_file():
        return None
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(document, dict):
            raise TypeError(document)
        mean, std = (tuple(float(value) for value in document[name]) for name in ("mean", "std"))
        (r, g, b), (r_std, g_std, b_std) = mean, std
    except (KeyError, TypeError, ValueError) as error:  # text that is no JSON is a ValueError
        raise UserError(f"'{path}' has no mean and std of three channels", "remove it, or export again") from error
    return Preprocess((r, g, b), (r_std, g_std, b_std))
