"""Images on disk instead of in memory: the same images, made once, whatever is killed or damaged meanwhile."""

import logging
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from nas.data import ImageData, Preprocess, store
from nas.data import images as images_module
from nas.data.store import Wanted, damaged_parts, entries, remove, store_folder, stored_images
from nas.data.stored import StoredImages, take
from nas.errors import UserError
from nas.executors.shared_data import share, without_files
from nas.tasks.classification.data.registry import load_dataset
from tests.nas.data.stores import let_nothing_fit, use_own_store

PER_CLASS = 20


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_own_store(tmp_path, monkeypatch)


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """No image fits into memory, and a part holds three or four images."""
    let_nothing_fit(monkeypatch, side=48, images=4)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes of JPEGs of 48 x 56 pixels."""
    root, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for label in ("a", "b"):
        (root / label).mkdir()
        for number in range(PER_CLASS):
            small = Image.fromarray(rng.integers(0, 255, (6, 7, 3), dtype=np.uint8))
            small.resize((56, 48), Image.Resampling.BICUBIC).save(root / label / f"{number}.jpg", quality=95)
    return root


def numbered(count: int, side: int = 4, made: list[int] | None = None) -> "store.Make":
    """Image i has the value i everywhere; `made` gets the first row of each part that is made."""

    def make(start: int, stop: int) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
        if made is not None:
            made.append(start)
        rows = np.arange(start, stop)
        images = np.broadcast_to(rows[:, None, None, None], (stop - start, side, side, 3)).astype(np.uint8)
        return images, rows.astype(np.uint64) + 100

    return make


def wanted(count: int = 20, identity: str = "numbers") -> Wanted:
    return Wanted(source="numbers", identity=identity, images=count, side=4)


@pytest.fixture
def parts_of_four(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "PART_BYTES", 4 * 4 * 3 * 4)


@pytest.mark.usefixtures("parts_of_four")
def test_an_entry_is_made_once_and_read_like_an_array() -> None:
    made: list[int] = []
    images, contents = stored_images(wanted(), numbered(20, made=made))
    assert made == [0, 4, 8, 12, 16]
    assert contents.tolist() == list(range(100, 120))
    assert images.shape == (20, 4, 4, 3)
    assert (images.ndim, images.dtype, len(images), images.nbytes) == (4, np.uint8, 20, 20 * 48)
    assert images[7].shape == (4, 4, 3)
    assert images[3:9][:, 0, 0, 0].tolist() == [3, 4, 5, 6, 7, 8]
    assert images[np.array([5, 1])][:, 0, 0, 0].tolist() == [5, 1]
    assert np.asarray(images)[:, 0, 0, 0].tolist() == list(range(20))
    some = take(take(images, [4, 9, 2]), [2, 0])
    assert isinstance(some, StoredImages)
    assert some[:][:, 0, 0, 0].tolist() == [2, 4]
    assert pickle.loads(pickle.dumps(some))[:][:, 0, 0, 0].tolist() == [2, 4]  # noqa: S301 - our own
    images[0][:] = 99
    assert int(images[0].max()) == 0, "what is given out is a copy"

    again, _ = stored_images(wanted(), numbered(20, made=made))
    assert len(made) == 5
    assert again.file == images.file
    stored_images(wanted(identity="others"), numbered(20, made=made))
    assert len(made) == 10


@pytest.mark.usefixtures("parts_of_four")
def test_what_was_made_before_it_was_killed_is_kept() -> None:
    def killed(start: int, stop: int) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
        if start >= 8:
            raise KeyboardInterrupt
        return numbered(20)(start, stop)

    with pytest.raises(KeyboardInterrupt):
        stored_images(wanted(), killed)
    (entry,) = entries()
    assert not entry.whole
    assert entry.parts_done == 2
    made: list[int] = []
    images, contents = stored_images(wanted(), numbered(20, made=made))
    assert made == [8, 12, 16]
    assert images[:][:, 0, 0, 0].tolist() == list(range(20))
    assert contents.tolist() == list(range(100, 120))


@pytest.mark.usefixtures("parts_of_four")
def test_damaged_parts_are_made_again() -> None:
    images, _ = stored_images(wanted(), numbered(20))
    with images.file.open("r+b") as file:
        file.seek(-20 * 48 + 9 * 48, os.SEEK_END)
        file.write(b"\xff" * 48)
    (entry,) = entries()
    assert damaged_parts(entry) == 1
    made: list[int] = []
    again, _ = stored_images(wanted(), numbered(20, made=made))
    assert made == [8]
    assert again[9].max() == 9
    with images.file.open("r+b") as file:  # the last part is looked at whenever an entry is opened
        file.seek(-1, os.SEEK_END)
        file.write(b"\xff")
    stored_images(wanted(), numbered(20, made=made))
    assert made == [8, 16]


def test_a_disk_without_room_is_told_of_before_anything_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "SPARE_BYTES", 2**60)
    with pytest.raises(UserError, match=r"20 images of 4 px need .* is free"):
        stored_images(wanted(), numbered(20))
    assert entries() == []
    assert [file.name for file in store_folder().iterdir()] == [f".{wanted().key}.lock"]


def test_size_and_place_are_said_before_an_entry_is_made(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "nas.data"):
        images, _ = stored_images(wanted(), numbered(20))
        stored_images(wanted(), numbered(20))
    (record,) = caplog.records
    assert "20 images of 4 px take 1 KiB" in record.getMessage()
    assert str(images.file.parent) in record.getMessage()


def same(one: ImageData, other: ImageData, resolution: int) -> Iterator[str]:
    """Names of splits that are equal in both."""
    for split in ("train", "val", "test"):
        a, b = one.at(split, resolution), other.at(split, resolution)  # type: ignore[arg-type]
        equal = np.array_equal(np.asarray(a.images), np.asarray(b.images)) and np.array_equal(a.labels, b.labels)
        if equal and np.array_equal(a.contents, b.contents):
            yield split


@pytest.mark.parametrize("resolution", [32, 48, 64])
def test_data_on_disk_are_those_in_memory(photos: Path, resolution: int, request: pytest.FixtureRequest) -> None:
    in_memory = load_dataset(str(photos))
    request.getfixturevalue("no_memory")
    on_disk = load_dataset(str(photos))
    assert isinstance(on_disk.train.images, StoredImages)
    assert isinstance(on_disk.at("train", resolution).images, StoredImages)
    assert on_disk.preprocess == in_memory.preprocess
    assert set(same(in_memory, on_disk, resolution)) == {"train", "val", "test"}
    few, some = (
        data.with_splits(**{s: data.val.some(3) for s in ("train", "val", "test")}) for data in (in_memory, on_disk)
    )
    assert np.array_equal(few.inputs(few.val), some.inputs(some.val))


@pytest.mark.usefixtures("no_memory")
def test_files_that_changed_are_read_again(photos: Path, tmp_path: Path) -> None:
    root = tmp_path / "photos"
    for file in photos.rglob("*.jpg"):
        (root / file.parent.name).mkdir(parents=True, exist_ok=True)
        (root / file.parent.name / file.name).write_bytes(file.read_bytes())
    before = load_dataset(str(root))
    assert len(entries()) == 1
    load_dataset(str(root))
    assert len(entries()) == 1
    Image.fromarray(np.full((48, 56, 3), 255, np.uint8)).save(root / "a" / "0.jpg")
    after = load_dataset(str(root))
    assert len(entries()) == 2
    white = sum(
        int(np.asarray(split.images).min(axis=(1, 2, 3)).max() > 250) for split in (after.train, after.val, after.test)
    )
    assert white == 1
    assert sum(len(s) for s in (before.train, before.val, before.test)) == 2 * PER_CLASS


@pytest.mark.usefixtures("no_memory")
def test_an_unreadable_image_is_named_and_found_again(photos: Path, tmp_path: Path) -> None:
    root = tmp_path / "broken"
    for label in ("a", "b"):
        (root / label).mkdir(parents=True)
        for file in (photos / label).iterdir():
            (root / label / file.name).write_bytes(file.read_bytes())
    (root / "b" / "7.jpg").write_bytes(b"no image")
    for _ in range(2):
        with pytest.raises(UserError, match=r"b/7\.jpg"):
            load_dataset(str(root))


@pytest.mark.usefixtures("no_memory")
def test_workers_open_the_files_that_are_there(photos: Path, tmp_path: Path) -> None:
    data = load_dataset(str(photos))
    shared = share(data, tmp_path / "shared")
    assert sum(file.stat().st_size for file in (tmp_path / "shared").iterdir()) < data.train.images.nbytes / 10
    there = pickle.loads(pickle.dumps(shared)).load()  # noqa: S301 - our own
    assert isinstance(there.train.images, StoredImages)
    assert set(same(data, there, data.native_resolution)) >= {"train"}
    assert np.array_equal(there.val.images[:], data.val.images[:])
    alone = without_files(data)
    assert isinstance(alone.train.images, np.ndarray)
    assert np.array_equal(alone.train.images, data.train.images[:])


@pytest.mark.usefixtures("parts_of_four")
def test_removing_an_entry_leaves_what_is_open() -> None:
    images, _ = stored_images(wanted(), numbered(20))
    stored_images(wanted(identity="others"), numbered(20))
    remove(next(entry for entry in entries() if entry.folder == images.file.parent))
    assert len(entries()) == 1
    assert images[19].max() == 19


def test_an_entry_that_is_being_made_is_not_removed() -> None:
    def removed_meanwhile(start: int, stop: int) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
        with pytest.raises(UserError, match="another process is at"):
            remove(entries()[0])
        return numbered(20)(start, stop)

    images, _ = stored_images(wanted(), removed_meanwhile)
    assert len(images) == 20


@pytest.mark.usefixtures("parts_of_four")
def test_two_processes_make_one_entry_one_after_the_other(tmp_path: Path) -> None:
    """The second one finds it done."""
    code = (
        "import sys; from tests.nas.data.test_store import numbered, wanted; from nas.data import store;"
        "store.PART_BYTES = 192; made = []; images, _ = store.stored_images(wanted(2000), numbered(2000, made=made));"
        "print(len(made), int(images[:][:, 0, 0, 0].astype(int).sum()))"
    )
    both = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = sorted(tuple(map(int, process.communicate()[0].split())) for process in both)
    total = sum(number % 256 for number in range(2000))
    assert said == [(0, total), (500, total)]


def test_a_normalisation_is_fitted_on_some_of_many_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images_module, "FITTED_BYTES", 5 * 48)
    images, _ = stored_images(wanted(), numbered(20))
    assert Preprocess.fit(images) == Preprocess.fit(images[:])
    assert Preprocess.fit(images) == Preprocess.fit(images[::4])
