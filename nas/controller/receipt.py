"""The papers that go with a winner's files: what it is, how to feed it, and what was measured."""

import hashlib
from pathlib import Path
from typing import Any

from nas.data import ImageData
from nas.export.checkpoint import write_json


def write_receipt(folder: Path, document: dict[str, Any], winner: dict[str, Any], data: ImageData) -> None:
    """Write `architecture.json`, `labels.json`, `preprocess.json` and `receipt.json` beside a winner's model files."""
    write_json(folder / "architecture.json", winner["architecture"])
    write_json(folder / "labels.json", list(data.classes))
    write_json(
        folder / "preprocess.json",
        {
            "layout": "NCHW float32",
            "resolution": winner["resolution"],
            "resize": "shorter side, bilinear with antialiasing, centre crop",
            "scale": "x / 255, then (x - mean) / std per channel (RGB)",
            "mean": list(data.preprocess.mean),
            "std": list(data.preprocess.std),
        },
    )
    shared = ("command", "created", "nas_version", "target", "device", "limit_ms", "data", "recipe", "seed")
    files = sorted(p for p in folder.iterdir() if p.is_file() and p.name != "receipt.json")
    write_json(
        folder / "receipt.json",
        {
            **{name: document[name] for name in shared},
            **{k: v for k, v in winner.items() if k != "architecture"},
            "sha256": {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in files},
        },
    )
