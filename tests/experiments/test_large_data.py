"""Many images out of a few real ones, and what is noted of a process."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from experiments.large_data import SIDE, make_images, searched, throughput
from nas.data import store


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for name in ("cats", "dogs"):
        (tmp_path / "few" / name).mkdir(parents=True)
        for number in range(3):
            picture = Image.fromarray(rng.integers(0, 255, (8, 9, 3), dtype=np.uint8)).resize((90, 80))
            picture.save(tmp_path / "few" / name / f"{number}.jpg")
    return tmp_path / "few"


def test_images_are_made_once_and_differ(photos: Path, tmp_path: Path) -> None:
    make_images(photos, tmp_path / "many", 21)
    files = sorted((tmp_path / "many").rglob("*.jpg"))
    assert len(files) == 21
    assert len({file.read_bytes() for file in files}) == 21
    with Image.open(files[0]) as picture:
        assert picture.size == (SIDE, SIDE)
    times = [file.stat().st_mtime_ns for file in files]
    make_images(photos, tmp_path / "many", 21)
    assert [file.stat().st_mtime_ns for file in files] == times


def test_memory_of_a_command_is_noted(tmp_path: Path) -> None:
    found = searched(["targets"], tmp_path / "log")
    assert found["exit_code"] == 0
    assert found["private_bytes"] >= found["private_bytes_of_one_process"] > 0
    assert "local" in (tmp_path / "log").read_text()


def test_a_command_is_put_into_a_group(tmp_path: Path) -> None:
    """A folder with a file in the group's place: what the system does with it is not our business."""
    (tmp_path / "cgroup.procs").touch()
    assert searched(["targets"], tmp_path / "log", tmp_path)["exit_code"] == 0
    assert (tmp_path / "cgroup.procs").read_text().strip().isdecimal()
    assert "local" in (tmp_path / "log").read_text()


@pytest.mark.slow
def test_trainings_from_the_store_are_timed(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(store, "MEMORY_SHARE", store.MEMORY_SHARE)
    make_images(photos, tmp_path / "many", 64)
    found = throughput(tmp_path / "many", 32, 1)
    assert len(found["images_per_s"]["store"]) == len(found["images_per_s"]["array"]) == 2
    assert found["ratio"] > 0
