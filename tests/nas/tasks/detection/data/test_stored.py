"""Pictures with boxes or points on disk instead of in memory: the same data, decoded once."""

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.stick_figures import write_coco_figures
from nas.data import store
from nas.data.images import SPLITS
from nas.data.stored import StoredImages
from nas.executors.shared_data import share
from nas.tasks.detection.augment import BoxAugmenter
from nas.tasks.detection.data import DetectionData, DetectionSplit, load_detection
from nas.tasks.detection.data import load as load_module
from nas.tasks.pose.augment import PoseAugmenter
from nas.tasks.pose.data import PoseData, load_pose
from nas.training.recipe import Crop
from tests.nas.data.stores import let_nothing_fit, use_own_store
from tests.nas.tasks.detection.data.builders import Scene, three_splits, write_coco
from tests.nas.tasks.detection.data.test_letterbox import exif

Load = Callable[[Path], DetectionData]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_own_store(tmp_path, monkeypatch)


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """No image fits into memory, and a part holds three images."""
    let_nothing_fit(monkeypatch, side=96, images=3)


def boxes_folder(tmp_path: Path) -> Path:
    """Pictures of two shapes, one of which is turned by its EXIF."""
    root = write_coco(tmp_path / "boxes", three_splits())
    (root / "images/train/train0.png").unlink()
    Scene("train0", (80, 60), (8, 8, 50, 20)).save(root / "images/train", exif=exif(6))
    return root


def points_folder(tmp_path: Path) -> Path:
    return write_coco_figures(tmp_path / "points", {"train": 12, "val": 4, "test": 4}, 96)


@pytest.fixture(params=[(boxes_folder, load_detection), (points_folder, load_pose)], ids=["detection", "pose"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Load, DetectionData, DetectionData]:
    """The folder, its reader, its data in memory and on disk."""
    folder, load = request.param[0](tmp_path), request.param[1]
    in_memory = load(folder)
    request.getfixturevalue("no_memory")
    return folder, load, in_memory, load(folder)


def assert_same(one: DetectionSplit, other: DetectionSplit) -> None:
    assert np.array_equal(one.images[:], other.images[:])
    assert np.array_equal(one.extents, other.extents)
    assert [boxes.content() for boxes in one.boxes] == [boxes.content() for boxes in other.boxes]
    assert np.array_equal(one.fingerprints, other.fingerprints)


def test_data_on_disk_are_those_in_memory(both: tuple[Path, Load, DetectionData, DetectionData]) -> None:
    folder, _, in_memory, on_disk = both
    assert isinstance(on_disk.train.images, StoredImages)
    assert isinstance(on_disk.at("train", 64).images, StoredImages)
    assert (on_disk.notes, on_disk.preprocess) == (in_memory.notes, in_memory.preprocess)
    for split in SPLITS:
        for resolution in (64, 96):
            assert_same(in_memory.at(split, resolution), on_disk.at(split, resolution))
        assert_same(getattr(in_memory, split).some(3), getattr(on_disk, split).some(3))
    assert np.array_equal(in_memory.inputs(in_memory.val), on_disk.inputs(on_disk.val))
    assert {entry.wanted.source for entry in store.entries()} >= {str(folder)}


def test_a_second_search_decodes_nothing(
    both: tuple[Path, Load, DetectionData, DetectionData], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, load, in_memory, _ = both

    def decode(*_: object) -> None:
        raise AssertionError("this picture was decoded before")

    monkeypatch.setattr(load_module, "decode_letterboxed", decode)
    assert_same(load(folder).train, in_memory.train)


@pytest.mark.parametrize("crop", ["none", "light", "mosaic"])
def test_batches_are_the_same(both: tuple[Path, Load, DetectionData, DetectionData], crop: Crop) -> None:
    _, _, *versions = both
    found = []
    for data in versions:
        augmenter = (PoseAugmenter if isinstance(data, PoseData) else BoxAugmenter)(data.train, flip=True)  # type: ignore[arg-type]
        generator = torch.Generator().manual_seed(0)
        found.append(augmenter.batch(torch.tensor([2, 0, 3]), generator, crop))
    (images, boxes), (stored_images, stored_boxes) = found
    assert torch.equal(images, stored_images)
    assert [b.content() for b in boxes] == [b.content() for b in stored_boxes]


def test_workers_open_the_files_that_are_there(
    both: tuple[Path, Load, DetectionData, DetectionData], tmp_path: Path
) -> None:
    *_, on_disk = both
    there = pickle.loads(pickle.dumps(share(on_disk, tmp_path / "shared"))).load()  # noqa: S301 - our own
    assert isinstance(there.train.images, StoredImages)
    for split in SPLITS:
        assert np.array_equal(getattr(there, split).images[:], getattr(on_disk, split).images[:])
        assert [b.content() for b in getattr(there, split).boxes] == [
            b.content() for b in getattr(on_disk, split).boxes
        ]


def test_a_normalisation_is_fitted_on_some_of_many_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second picture, and the padding of none of them."""
    root = write_coco(tmp_path / "boxes", three_splits())
    all_of_them = load_detection(root)
    monkeypatch.setattr(load_module, "FITTED_BYTES", all_of_them.train.images.nbytes // 2)
    half = all_of_them.train.take([0, 2])
    some = load_detection(root).preprocess
    pictures = [image[:rows, :columns] for image, (rows, columns) in zip(half.images[:], half.extents, strict=True)]
    pixels = np.concatenate([picture.reshape(-1, 3) for picture in pictures]) / 255
    assert some.mean == pytest.approx(pixels.mean(axis=0))
    assert some.std == pytest.approx(pixels.std(axis=0))
