"""One real bundle and one folder of real images for all tests of this folder."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.nas.scoring import fatal

COUNT = 70
"""Good images in `images`."""


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.nas.small_bundles import digits, write_bundle

    return write_bundle(tmp_path_factory.mktemp("scoring") / "classifier", data=digits())


@pytest.fixture(scope="session")
def fatal_bundle(bundle: Path) -> Path:
    """The same network, whose processor dies at some names of files."""
    folder = shutil.copytree(bundle, bundle.with_name("fatal"))
    receipt = json.loads((folder / "receipt.json").read_text())
    (folder / "receipt.json").write_text(json.dumps({**receipt, "task": fatal.REFERENCE}))
    return folder


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images in two folders, and what is none."""
    folder = tmp_path_factory.mktemp("images")
    write_images(folder / "a", COUNT // 2)
    write_images(folder / "b" / "c", COUNT - COUNT // 2, seed=1)
    (folder / "b" / "text.jpg").write_text("hello")
    (folder / "b" / "empty.png").write_bytes(b"")
    (folder / "notes.txt").write_text("no image, and none by its name")
    (folder / ".hidden.jpg").write_bytes(b"")
    return folder


def write_images(folder: Path, count: int, seed: int = 0) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    paths = [folder / f"{number:05d}.jpg" for number in range(count)]
    for path in paths:
        Image.fromarray(rng.integers(0, 255, (24, 40, 3), dtype=np.uint8)).save(path)
    return paths
