"""Small bundles to be served, and pictures to be sent."""

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from nas.files.writing import sha256_of


def _classifier(folder: Path) -> Path:
    from tests.nas.small_bundles import digits, write_bundle  # torch takes seconds to import

    return write_bundle(folder, data=digits())


def _detector(folder: Path) -> Path:
    """It shows what it is hardly sure of, for it has learnt nothing."""
    from tests.nas.detectors import rectangle_data, smallest, write_detector

    bundle = write_detector(folder, smallest(), data=rectangle_data())
    rules = bundle / "postprocess.json"
    rules.write_text(json.dumps({**json.loads(rules.read_text()), "score": 0.005}))
    receipt = json.loads((bundle / "receipt.json").read_text())
    receipt["sha256"][rules.name] = sha256_of(rules)
    (bundle / "receipt.json").write_text(json.dumps(receipt))
    return bundle


MADE: Mapping[str, Callable[[Path], Path]] = {"classification": _classifier, "detection": _detector}


def picture(rows: int = 60, columns: int = 90, seed: int = 0) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Noise (rows, columns, 3) uint8."""
    return np.random.default_rng(seed).integers(0, 256, (rows, columns, 3), dtype=np.uint8)


def encoded(form: str = "JPEG", image: Image.Image | None = None, **options: Any) -> bytes:
    """The bytes of an image file."""
    file = io.BytesIO()
    (image or Image.fromarray(picture())).save(file, form, **options)
    return file.getvalue()
