"""Pascal VOC folders: layouts that must work, and everything that can be wrong with the xml files."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nas.errors import UserError
from nas.tasks.detection.data import load_detection
from tests.nas.tasks.detection.data.builders import Scene, scenes, three_splits, voc_page, write_voc


def _trainval(root: Path) -> None:
    lists = root / "ImageSets/Main"
    (lists / "trainval.txt").write_text((lists / "train.txt").read_text() + (lists / "val.txt").read_text())
    (lists / "cat_train.txt").write_text("train0  1\ntrain1 -1\n")


def _flags(root: Path) -> None:
    path = root / "ImageSets/Main/train.txt"
    path.write_text("".join(f"{line}  1\n" for line in path.read_text().splitlines()))


def _by_split(root: Path) -> None:
    for name in ("train", "val", "test"):
        (root / name).mkdir()
        for file in (*(root / "Annotations").glob(f"{name}*"), *(root / "JPEGImages").glob(f"{name}*")):
            file.rename(root / name / file.name)
    for folder in ("Annotations", "JPEGImages", "ImageSets"):
        shutil.rmtree(root / folder)


def _devkit(root: Path) -> None:
    (root / "VOCdevkit/VOC2007").mkdir(parents=True)
    for folder in ("Annotations", "JPEGImages", "ImageSets"):
        (root / folder).rename(root / "VOCdevkit/VOC2007" / folder)


@pytest.mark.parametrize("change", [_trainval, _flags, _by_split, _devkit])
def test_layouts(tmp_path: Path, change: Callable[[Path], None]) -> None:
    plain = load_detection(write_voc(tmp_path / "a", three_splits()))
    root = write_voc(tmp_path / "b", three_splits())
    change(root)
    data = load_detection(root)
    assert data.notes == ("read as Pascal VOC",)
    for split in ("train", "val", "test"):
        boxes = [[b.xyxy.tolist() for b in getattr(d, split).boxes] for d in (plain, data)]
        assert boxes[0] == boxes[1]


def test_trainval_and_test_lists(tmp_path: Path) -> None:
    data = load_detection(write_voc(tmp_path, {"trainval": scenes("a", 20), "test": scenes("b", 4)}))
    assert (len(data.train) + len(data.val), len(data.test)) == (20, 4)
    assert len(data.val) > 0


def test_a_list_of_both_lends_no_validation_images_to_training(tmp_path: Path) -> None:
    root = write_voc(tmp_path, three_splits())
    _trainval(root)
    (root / "ImageSets/Main/train.txt").unlink()
    data = load_detection(root)
    assert (len(data.train), len(data.val), len(data.test)) == (4, 4, 4)
    assert data.notes == ("read as Pascal VOC",)


def test_without_lists(tmp_path: Path) -> None:
    root = write_voc(tmp_path, {"train": scenes("a", 20)})
    shutil.rmtree(root / "ImageSets")
    (root / "Annotations").rename(root / "annotations")
    (root / "JPEGImages").rename(root / "images")
    data = load_detection(root)
    assert len(data.train) + len(data.val) + len(data.test) == 20


def test_what_no_list_names_is_left_out(tmp_path: Path) -> None:
    root = write_voc(tmp_path, three_splits())
    Scene("other").save(root / "JPEGImages")
    (root / "Annotations/other.xml").write_text(voc_page(Scene("other")).replace("cat", "fox"))
    data = load_detection(root)
    assert data.classes == ("cat", "dog")
    assert data.notes[1:] == (
        "annotations in no split's list are left out: 1 (first: Annotations/other.xml)",
        "images without annotations are left out: 1 (first: JPEGImages/other.png)",
    )


def test_difficult_objects_are_crowd(tmp_path: Path) -> None:
    members = three_splits()
    root = write_voc(tmp_path, members)
    (root / "Annotations/train1.xml").write_text(voc_page(members["train"][1], difficult=1))
    data = load_detection(root)
    assert [boxes.crowd.tolist() for boxes in data.train.boxes] == [[False], [True], [False], [False]]


def test_sets_that_count_pixels_from_zero(tmp_path: Path) -> None:
    """One corner at 0 tells; then no corner is moved."""
    root = write_voc(tmp_path, three_splits())
    path = root / "Annotations/train0.xml"
    page = voc_page(Scene("train0", box=(9, 19, 50, 40)))  # written as 10 and 20
    path.write_text(page)
    assert load_detection(root).train.boxes[0].xyxy[0] == pytest.approx(np.array([9, 19, 50, 40]) * 1.2)
    (root / "Annotations/train1.xml").write_text(voc_page(Scene("train1", box=(-1, -1, 50, 40))))
    assert load_detection(root).train.boxes[0].xyxy[0] == pytest.approx(np.array([10, 20, 50, 40]) * 1.2)


def test_wrong_file_names_do_not_matter(tmp_path: Path) -> None:
    root = write_voc(tmp_path, three_splits())
    for path in (root / "Annotations").iterdir():
        path.write_text(path.read_text().replace(f"{path.stem}.png", "../../etc/old name.png"))
    assert load_detection(root).notes == ("read as Pascal VOC",)


@pytest.mark.parametrize(
    ("old", "new", "left", "note"),
    [
        ("</ymax>", "0</ymax>", 1, "boxes that reach outside their image are cut off at its edge: 1"),
        ("<xmin>", "<xmin>7", 0, "boxes without area are left out: 1"),
        ("<xmin>", "<xmin>nan", 0, "boxes that are not four finite numbers are left out: 1"),
        ("bndbox", "polygon", 0, "boxes that are not four finite numbers are left out: 1"),
    ],
)
def test_mended(tmp_path: Path, old: str, new: str, left: int, note: str) -> None:
    root = write_voc(tmp_path, three_splits())
    path = root / "Annotations/train0.xml"
    path.write_text(voc_page(Scene("train0")).replace(old, new))
    data = load_detection(root)
    assert len(data.train.boxes[0]) == left
    assert [found for found in data.notes if found.startswith(note)], data.notes


LAUGHS = '<!DOCTYPE a [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]>'


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[:100], r"cannot read annotations 'Annotations/train0\.xml'"),
        (lambda _: "", r"cannot read annotations 'Annotations/train0\.xml'"),
        (lambda text: LAUGHS + text, r"'Annotations/train0\.xml' has a document type"),
        (lambda text: (LAUGHS + text).encode("utf-16"), r"'Annotations/train0\.xml' has a document type"),
        (lambda text: '<?xml version="1.0" encoding="klingon"?>' + text, r"cannot read annotations"),
        (lambda text: text.replace("<name>cat</name>", ""), r"an object in 'Annotations/train0\.xml' has no name"),
        (lambda text: text.replace(">80<", ">90<"), "is 80x60 pixels, but its annotations say 90x60"),
    ],
)
def test_refused(tmp_path: Path, change: Callable[[str], str | bytes], message: str) -> None:
    root = write_voc(tmp_path, three_splits())
    content = change(voc_page(Scene("train0")))
    (root / "Annotations/train0.xml").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=message) as caught:
        load_detection(root)
    assert caught.value.hint
    assert "\n" not in str(caught.value)


def test_missing_images_and_annotations_are_named(tmp_path: Path) -> None:
    root = write_voc(tmp_path, three_splits())
    (root / "JPEGImages/val1.png").unlink()
    with pytest.raises(UserError, match=r"image 'val1\.png' of 'Annotations/val1\.xml' is missing"):
        load_detection(root)
    (root / "Annotations/val1.xml").unlink()
    with pytest.raises(UserError, match=r"'val1' of 'ImageSets/Main/val\.txt' has no annotations"):
        load_detection(root)


def test_sizes_of_zero_say_nothing(tmp_path: Path) -> None:
    root = write_voc(tmp_path, three_splits())
    (root / "Annotations/train0.xml").write_text(voc_page(Scene("train0")).replace(">80<", ">0<"))
    assert load_detection(root).train.boxes[0].xyxy[0] == pytest.approx([12, 24, 60, 48])
