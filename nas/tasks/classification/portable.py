"""Classifying an image with numpy and Pillow alone: in `run.py` of a bundle, and in this package."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from nas.data.portable import normalised, squared


def preprocess(image: Image.Image, how: Mapping[str, Any]) -> NDArray[np.float32]:
    """(1, 3, r, r) float32 of an RGB image, made square as `preprocess.json` (`how`) says; without a word it is cut."""
    square = squared(image, how["resolution"], how.get("fit", "crop"))
    return normalised(np.asarray(square)[None], how["mean"], how["std"])


def postprocess(output: NDArray[np.float32], labels: Sequence[str]) -> list[dict[str, Any]]:
    """Every class with its probability, the most probable first, of logits (c,); of equal ones the first, as accuracies
    count them: the answers of an int8 network have few values."""
    shares = np.exp(output - output.max())
    shares = shares / shares.sum()
    order = np.argsort(-output, kind="stable")
    return [
        {"label": labels[at], "score": score} for at, score in zip(order.tolist(), shares[order].tolist(), strict=True)
    ]
