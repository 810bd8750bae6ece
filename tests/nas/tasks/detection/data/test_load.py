"""Every format gives the same data; archives, resolutions, splits and notes."""

import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nas.data.portable import PADDING
from nas.errors import UserError
from nas.tasks.detection.data import DetectionData, load_detection
from tests.nas.tasks.detection.data.builders import (
    CLASSES,
    Scene,
    scenes,
    three_splits,
    white_box,
    write_coco,
    write_voc,
    write_yolo,
)

WRITERS: dict[str, Callable[..., Path]] = {"COCO json": write_coco, "YOLO folder": write_yolo, "Pascal VOC": write_voc}


def same(a: DetectionData, b: DetectionData) -> bool:
    pairs = [(getattr(a, s), getattr(b, s)) for s in ("train", "val", "test")]
    return a.classes == b.classes and all(
        np.array_equal(x.images, y.images)
        and all(
            np.allclose(p.xyxy, q.xyxy, atol=1e-3) and np.array_equal(p.classes, q.classes)
            for p, q in zip(x.boxes, y.boxes, strict=True)
        )
        for x, y in pairs
    )


@pytest.mark.parametrize("form", WRITERS)
def test_boxes_lie_where_the_pixels_are(tmp_path: Path, form: str) -> None:
    splits = three_splits()
    data = load_detection(WRITERS[form](tmp_path / "set", splits))
    assert data.name == "set"
    assert data.task == "detection"
    assert data.classes == CLASSES
    assert data.native_resolution == 96  # the smallest multiple of 32 that holds 80 x 60
    assert data.notes == (f"read as {form}",)
    for name, members in splits.items():
        split = getattr(data, name)
        assert split.images.dtype == np.uint8
        assert [boxes.classes.tolist() for boxes in split.boxes] == [[scene.label] for scene in members]
        for i, scene in enumerate(members):
            assert split.boxes[i].xyxy.dtype == np.float32
            assert split.boxes[i].xyxy[0] == pytest.approx(np.array(scene.box) * 96 / 80, abs=1e-4)
            assert split.boxes[i].xyxy[0] == pytest.approx(white_box(split, i), abs=1)
            assert split.extents[i].tolist() == [72, 96]
            assert (split.images[i, 72:] == PADDING).all()
            assert (split.images[i, :72] != PADDING).any()


def test_formats_agree(tmp_path: Path) -> None:
    found = [load_detection(write(tmp_path / form, three_splits())) for form, write in WRITERS.items()]
    assert same(found[0], found[1])
    assert same(found[0], found[2])


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("suffix", [".tar.gz", ".zip"])
def test_archives_equal_the_folder(tmp_path: Path, form: str, suffix: str) -> None:
    root = WRITERS[form](tmp_path / "test-set", three_splits())  # the enclosing folder's name is no split
    archive = tmp_path / f"set{suffix}"
    if suffix == ".zip":
        with zipfile.ZipFile(archive, "w") as zipped:
            for file in sorted(root.rglob("*.*"), reverse=True):
                zipped.write(file, file.relative_to(tmp_path))
    else:
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(root, "test-set")
    before = sorted(tmp_path.rglob("*"))
    assert same(load_detection(str(archive)), load_detection(root))
    assert sorted(tmp_path.rglob("*")) == before


# --- resolution, pixels


def test_resolution_is_capped_and_a_multiple_of_32(tmp_path: Path) -> None:
    root = write_coco(tmp_path, {**three_splits(), "train": [*scenes("a", 3), Scene("large", (300, 500))]})
    assert load_detection(root).native_resolution == 416
    data = load_detection(root, max_resolution=200)
    assert data.native_resolution == 192
    large = data.train.boxes[-1]
    assert data.train.extents[-1].tolist() == [192, 115]
    assert large.xyxy[0] == pytest.approx(np.array([10, 20, 50, 40]) * 192 / 500, abs=0.05)
    with pytest.raises(UserError, match="cannot be stored at 31 px"):
        load_detection(root, max_resolution=31)


def test_normalisation_ignores_the_padding(tmp_path: Path) -> None:
    narrow = [Scene(f"{i}", (64, 16), (0, 0, 32, 16)) for i in range(4)]
    data = load_detection(write_coco(tmp_path, {"train": narrow, "val": narrow, "test": narrow}))
    assert data.native_resolution == 64
    assert data.preprocess.mean == pytest.approx([(255 + 20) / 2 / 255] * 3)
    assert data.preprocess.std == pytest.approx([(255 - 20) / 2 / 255] * 3)


def test_data_is_resized_with_its_boxes(tmp_path: Path) -> None:
    data = load_detection(write_coco(tmp_path, three_splits()))
    small = data.at("val", 64)
    assert small.resolution == 64
    for i in range(len(small)):
        assert small.boxes[i].xyxy[0] == pytest.approx(white_box(small, i), abs=1)


# --- splits


def test_given_val_becomes_the_test_split(tmp_path: Path) -> None:
    data = load_detection(write_coco(tmp_path, {"train": scenes("a", 40), "val": scenes("b", 4)}), seed=3)
    assert (len(data.train) + len(data.val), len(data.test)) == (40, 4)
    assert data.notes[1:] == (
        "the given val images are the test split (final numbers only)",
        f"val: {len(data.val)} images held out of train (by content, seed 3)",
    )


def test_given_test_is_kept_and_val_held_out(tmp_path: Path) -> None:
    data = load_detection(write_yolo(tmp_path, {"train": scenes("a", 40), "test": scenes("b", 4)}))
    assert (len(data.train) + len(data.val), len(data.test)) == (40, 4)
    assert len(data.val) > 0


@pytest.mark.parametrize("write", [write_yolo, write_voc])
def test_sets_without_splits(tmp_path: Path, write: Callable[..., Path]) -> None:
    root = write(tmp_path / "a", {"train": scenes("a", 40)})
    data, again, other = load_detection(root), load_detection(root), load_detection(root, seed=1)
    assert len(data.train) + len(data.val) + len(data.test) == 40
    assert min(len(data.val), len(data.test)) > 0
    assert same(data, again)
    assert not same(data, other)


def test_an_image_more_moves_no_other(tmp_path: Path) -> None:
    """From the files to the splits: their names and their order do not matter."""
    members = scenes("a", 40)
    before = load_detection(write_coco(tmp_path / "a", {"train": members}))
    after = load_detection(write_coco(tmp_path / "b", {"train": [Scene("a0new", (90, 70), (3, 3, 40, 40)), *members]}))
    for split in ("train", "val", "test"):
        was, now = getattr(before, split).sources, getattr(after, split).sources
        assert set(was) <= set(now)
        assert len(set(now) - set(was)) <= 1
    assert len(after.train) + len(after.val) + len(after.test) == 41
    again = [getattr(load_detection(tmp_path / "a"), split).fingerprints for split in ("train", "val", "test")]
    known = [getattr(before, split).fingerprints for split in ("train", "val", "test")]
    assert all(np.array_equal(a, b) for a, b in zip(again, known, strict=True))


def test_splits_without_boxes_are_left_out(tmp_path: Path) -> None:
    empty = [Scene(f"e{i}", box=None) for i in range(3)]
    data = load_detection(write_coco(tmp_path, {"train": scenes("a", 20), "val": scenes("b", 4), "test": empty}))
    assert len(data.test) == 4
    assert data.notes[1] == "the 3 given test images have no boxes and are left out"


def test_images_in_two_splits_are_told(tmp_path: Path) -> None:
    root = write_coco(tmp_path, three_splits())
    (root / "images/train").rename(root / "photos")
    for file in (*(root / "images/val").iterdir(), *(root / "images/test").iterdir()):
        file.rename(root / "photos" / file.name)
    pages = {split: root / f"annotations/instances_{split}.json" for split in ("train", "val", "test")}
    pages["test"].write_text(pages["train"].read_text())
    assert "images are in train and in test: 4 (first: 'photos/train0.png')" in load_detection(root).notes
    pages["test"].write_text(pages["val"].read_text())
    assert "images are in val and in test: 4 (first: 'photos/val0.png')" in load_detection(root).notes


@pytest.mark.parametrize("write", WRITERS.values())
def test_sets_without_any_box_are_refused(tmp_path: Path, write: Callable[..., Path]) -> None:
    empty = [Scene(f"{i}", box=None) for i in range(4)]
    with pytest.raises(UserError, match="has no boxes in train") as caught:
        load_detection(write(tmp_path / "a", {"train": empty, "val": scenes("b", 4)}))
    assert caught.value.hint


def test_sets_whose_boxes_are_all_unusable_are_refused(tmp_path: Path) -> None:
    far = [Scene(f"{i}", (80, 60), (200, 200, 220, 220)) for i in range(4)]
    with pytest.raises(UserError, match=r"no usable boxes in train .*boxes outside their image are left out: 4"):
        load_detection(write_coco(tmp_path, {**three_splits(), "train": far}))


def test_too_few_images_to_hold_some_out(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="too few training images with boxes"):
        load_detection(write_coco(tmp_path, {"train": scenes("a", 2)}))


def test_classes_that_cannot_be_learned_are_told(tmp_path: Path) -> None:
    cats = [Scene(f"{i}") for i in range(4)]
    data = load_detection(write_coco(tmp_path, {**three_splits(), "train": cats}))
    assert data.classes == CLASSES
    assert data.notes[-1] == "classes without boxes in train cannot be learned: 1 of 2 ('dog')"


# --- paths


def test_wrong_paths(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x")
    (tmp_path / "empty").mkdir()
    Scene("0").save(tmp_path / "pictures")
    (tmp_path / "a.zip").write_bytes(b"PK rubbish")
    for path, message in {
        "absent": "no such file or folder",
        "a.csv": "neither a folder nor an archive",
        "empty": "no images in",
        "pictures": "no annotations of training images",
        "a.zip": "cannot read archive",
    }.items():
        with pytest.raises(UserError, match=message) as caught:
            load_detection(tmp_path / path)
        assert caught.value.hint
        assert "\n" not in str(caught.value)


# --- images that cannot be read


@pytest.mark.parametrize("form", WRITERS)
def test_truncated_images_are_named(tmp_path: Path, form: str) -> None:
    root = WRITERS[form](tmp_path, three_splits())
    victim = next(root.rglob("val2.png"))
    noise = np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)
    Image.fromarray(noise).save(victim, format="JPEG")
    victim.write_bytes(victim.read_bytes()[:2000])
    with pytest.raises(UserError, match=r"cannot read image '.*val2\.png'"):
        load_detection(root)


def test_pictures_with_too_many_pixels_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_coco(tmp_path, {**three_splits(), "val": [Scene("huge", (2500, 2000)), *scenes("val", 2)]})
    for module in ("portable", "decode"):
        monkeypatch.setattr(f"nas.data.{module}.MAX_PIXELS", 4_000_000)
    with pytest.raises(UserError, match=r"image 'images/val/huge\.png' has more than 4 million pixels"):
        load_detection(root)
