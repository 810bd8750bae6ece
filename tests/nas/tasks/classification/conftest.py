"""Tiny generated image folders."""

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

MakeFolder = Callable[..., Path]


def write_images(folder: Path, count: int, seed: int, size: tuple[int, int] = (40, 36)) -> None:
    """`count` random PNG files of `size` (width, height) in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    for i in range(count):
        pixels = rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i}.png")


@pytest.fixture
def make_folder(tmp_path: Path) -> MakeFolder:
    """Factory: `make_folder(splits=("train", "val"), classes=("cat", "dog"), count=5)`; no splits: class folders."""

    def make(splits: Iterable[str] = ("train", "val"), classes: Iterable[str] = ("cat", "dog"), count: int = 5) -> Path:
        root = tmp_path / "photos"
        for i, split in enumerate(list(splits) or [""]):
            for j, name in enumerate(classes):
                write_images(root / split / name, count, seed=100 * i + j)
        return root

    return make
