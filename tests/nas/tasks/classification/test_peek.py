"""The side of images from a look at one of them, and the space that follows from it."""

import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nas.controller.config import SearchConfig
from nas.controller.usual_space import usual_space
from nas.limits import Limits
from nas.tasks.classification.data.peek import image_side
from nas.tasks.classification.data.registry import DATASETS
from tests.nas.fake_device import fake_profile, save_fake_profile


def photos(folder: Path, height: int, width: int) -> Path:
    """A folder of two classes, one image each."""
    for name in ("a", "b"):
        (folder / "train" / name).mkdir(parents=True)
        Image.new("RGB", (width, height)).save(folder / "train" / name / "1.png")
        (folder / "train" / name / ".DS_Store").write_bytes(b"no image")
    return folder


def test_one_image_tells(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos", 40, 60)
    assert image_side(str(folder)) == 40
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        archive.writestr("readme.txt", "no image")
        archive.write(folder / "train/a/1.png", "train/a/1.png")
    assert image_side(str(tmp_path / "photos.zip")) == 40
    with tarfile.open(tmp_path / "photos.tar.gz", "w:gz") as tape:
        tape.add(folder, "photos")
    assert image_side(str(tmp_path / "photos.tar.gz")) == 40
    np.savez_compressed(tmp_path / "data.npz", y_train=np.zeros(2), x_train=np.zeros((2, 28, 30, 3), np.uint8))
    assert image_side(str(tmp_path / "data.npz")) == 28
    assert image_side("cifar10") == 32
    assert all(source.side > 0 for source in DATASETS.values())


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off", b"\x1f\x8b no tape"])
@pytest.mark.parametrize("name", ["data.npz", "data.zip", "data.tar.gz", "data.png", "none/at all"])
def test_what_cannot_be_read_is_not_known(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    if path.parent == tmp_path:
        path.write_bytes(content)
    assert image_side(str(path)) is None
    (tmp_path / "empty").mkdir(exist_ok=True)
    assert image_side(str(tmp_path / "empty")) is None


def test_small_images_are_searched_in_the_compact_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    small, large = (str(photos(tmp_path / str(side), side, side)) for side in (64, 65))
    for name, host, spaces in (
        ("knows", False, ("mixed", "compact")), ("here", True, ("mixed",)), ("elsewhere", False, ("mixed",)),
    ):  # fmt: skip
        save_fake_profile(tmp_path / "cache", fake_profile(name, host=host, spaces=spaces))
    for target, space in (("knows", "compact"), ("here", "compact"), ("elsewhere", "mixed"), ("nowhere", "compact")):
        assert usual_space("classification", small, target) == space
        assert usual_space("classification", large, target) == "mixed"
    assert usual_space("detection", small, "knows") == "detect"
    limits = Limits.of(latency_ms=5.0)
    assert SearchConfig(limits=limits, data=small, target="knows").space == "compact"
    assert SearchConfig(limits=limits, data=small, target="knows", space="dense").space == "dense"
