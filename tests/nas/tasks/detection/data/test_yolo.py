"""YOLO folders: layouts that must work, and everything that can be wrong with labels."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from nas.errors import UserError
from nas.tasks.detection.data import DetectionData, load_detection
from tests.nas.tasks.detection.data.builders import Scene, scenes, three_splits, write_yolo


def _by_split(root: Path) -> None:  # Roboflow
    for split in ("train", "val", "test"):
        for kind in ("images", "labels"):
            (root / split).mkdir(exist_ok=True)
            (root / kind / split).rename(root / split / kind)
    shutil.rmtree(root / "images")
    shutil.rmtree(root / "labels")


def _beside(root: Path) -> None:
    for split in ("train", "val", "test"):
        (root / split).mkdir()
        for file in (*(root / "images" / split).iterdir(), *(root / "labels" / split).iterdir()):
            file.rename(root / split / file.name)
    shutil.rmtree(root / "images")
    shutil.rmtree(root / "labels")


def _in_images(root: Path) -> None:  # as labelImg leaves them
    for split in ("train", "val", "test"):
        for file in (root / "labels" / split).iterdir():
            file.rename(root / "images" / split / file.name)
    shutil.rmtree(root / "labels")


def _classes_txt(root: Path) -> None:
    (root / "data.yaml").unlink()
    (root / "classes.txt").write_text("cat\ndog\n\n")


@pytest.mark.parametrize("change", [_by_split, _beside, _in_images, _classes_txt])
def test_layouts(tmp_path: Path, change: Callable[[Path], None]) -> None:
    plain = load_detection(write_yolo(tmp_path / "a", three_splits()))
    root = write_yolo(tmp_path / "b", three_splits())
    change(root)
    data = load_detection(root)
    assert data.notes == ("read as YOLO folder",)
    assert data.classes == ("cat", "dog")
    assert [b.xyxy.tolist() for b in data.test.boxes] == [b.xyxy.tolist() for b in plain.test.boxes]


@pytest.mark.parametrize(
    ("names", "classes"),
    [
        ("nc: 2\nnames: ['cat', dog]", ("cat", "dog")),
        ("train: ../elsewhere\nnames:\n  0: cat\n  1: dog\n", ("cat", "dog")),
        ("names: {1: no, 0: 12}", ("12", "no")),  # neither a number nor a boolean
        ("names: [cat, dog, fox]", ("cat", "dog", "fox")),
        (None, ("class 0", "class 1")),
        ("path: .\n", ("class 0", "class 1")),
    ],
)
def test_names(tmp_path: Path, names: str | None, classes: tuple[str, ...]) -> None:
    assert load_detection(write_yolo(tmp_path, three_splits(), names)).classes == classes


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("names: [cat, dog", r"cannot read 'data\.yaml'"),
        ("names: {0: cat, 2: dog}", r"class numbers in 'data\.yaml' are not 0 to 1"),
        ("names: 2", "class names in 'data.yaml' cannot be read"),
        ("names: [cat, [dog]]", "class names in 'data.yaml' cannot be read"),
        ("names: []", "'data.yaml' has no class names"),
        ("names: [cat, cat]", "has the class name 'cat' twice"),
        ("nc: 3\nnames: [cat, dog]", "'data.yaml' has 2 names, but nc: 3"),
        ("names: [cat]", r"line 1 of 'labels/test/test1\.txt' has class '1', which is not declared"),
        ("names: !!python/name:os.system", "class names in 'data.yaml' cannot be read"),
    ],
)
def test_unusable_names(tmp_path: Path, names: str, message: str) -> None:
    root = write_yolo(tmp_path, three_splits(), names)
    with pytest.raises(UserError, match=message) as caught:
        load_detection(root)
    assert caught.value.hint
    assert "\n" not in str(caught.value)


def test_two_lists_of_names(tmp_path: Path) -> None:
    root = write_yolo(tmp_path, three_splits())
    (root / "dataset.yml").write_text("names: [dog, cat]")
    with pytest.raises(UserError, match=r"'data\.yaml' and 'dataset\.yml' have different class names"):
        load_detection(root)


def loaded(tmp_path: Path, text: str) -> DetectionData:
    """The set with the labels of the first training image replaced."""
    root = write_yolo(tmp_path, three_splits())
    (root / "labels/train/train0.txt").write_text(text)
    return load_detection(root)


def test_polygons_become_boxes(tmp_path: Path) -> None:
    data = loaded(tmp_path, "1 0.25 0.5 0.5 0.25 0.75 0.5 0.5 0.75\n\n0 .5 .5 .5 .5\n")
    assert data.train.boxes[0].xyxy.tolist() == [[24, 18, 72, 54], [24, 18, 72, 54]]
    assert data.train.boxes[0].classes.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("text", "left", "note"),
    [
        ("0 0.9 0.5 0.4 0.4", 1, "boxes that reach outside their image are cut off at its edge: 1"),
        ("0 1.5 0.5 0.4 0.4", 0, "boxes outside their image are left out: 1"),
        ("0 0.5 0.5 0 0.4", 0, "boxes without area are left out: 1"),
        ("0 0.5 0.5 -0.2 0.4", 0, "boxes without area are left out: 1"),
        ("0 nan 0.5 0.2 0.4", 0, "boxes that are not four finite numbers are left out: 1"),
        ("0 0.5 inf 0.2 0.4", 0, "boxes that are not four finite numbers are left out: 1"),
        ("0 a 0.5 0.2 0.4", 0, "boxes that are not four finite numbers are left out: 1"),
        ("0 0.1 0.1 0.2 nan 0.3 0.3", 0, "boxes that are not four finite numbers are left out: 1"),
    ],
)
def test_mended(tmp_path: Path, text: str, left: int, note: str) -> None:
    data = loaded(tmp_path, text)
    assert len(data.train.boxes[0]) == left
    assert [found for found in data.notes if found.startswith(note)], data.notes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 0.5 0.5 0.2", r"line 1 of 'labels/train/train0\.txt' has 4 fields"),
        ("0 .5 .5 .2 .2\n0", r"line 2 of 'labels/train/train0\.txt' has 1 field$"),
        ("0 0.5 0.5 0.2 0.2 0.9", "has 6 fields"),
        ("2 0.5 0.5 0.2 0.2", "has class '2', which is not declared"),
        ("-1 0.5 0.5 0.2 0.2", "has class '-1'"),
        ("cat 0.5 0.5 0.2 0.2", "has class 'cat'"),
        ("0.5 0.5 0.5 0.2 0.2", "has class '0.5'"),
        ("0 40 30 20 20", "line 1 of .* has coordinates in pixels"),
    ],
)
def test_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        loaded(tmp_path, text)
    assert caught.value.hint
    assert "\n" not in str(caught.value)


def test_labels_that_are_no_text(tmp_path: Path) -> None:
    root = write_yolo(tmp_path, three_splits())
    (root / "labels/train/train0.txt").write_bytes(b"\xff\xd8\xff\xe0")
    with pytest.raises(UserError, match=r"cannot read 'labels/train/train0\.txt': it is no text"):
        load_detection(root)


def test_huge_class_without_names(tmp_path: Path) -> None:
    root = write_yolo(tmp_path, three_splits(), None)
    (root / "labels/train/train0.txt").write_text("1000000000 .5 .5 .2 .2")
    with pytest.raises(UserError, match="has class '1000000000'"):
        load_detection(root)


def test_images_without_labels_are_background(tmp_path: Path) -> None:
    root = write_yolo(tmp_path, three_splits())
    (root / "labels/train/train0.txt").write_text("")
    (root / "labels/train/train1.txt").unlink()
    (root / "labels/train/gone.txt").write_text("")
    data = load_detection(root)
    assert [len(boxes) for boxes in data.train.boxes] == [0, 0, 1, 1]
    assert data.notes[1:] == (
        "label files without an image are left out: 1 (first: labels/train/gone.txt)",
        "images without a label file have no objects: 1 (first: images/train/train1.png)",
    )


def test_no_training_images(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there are images of val, but none of train"):
        load_detection(write_yolo(tmp_path, {"val": scenes("a", 4)}))


def test_images_of_no_split_are_left_out(tmp_path: Path) -> None:
    root = write_yolo(tmp_path, {**three_splits(), "extra": [Scene("more")]})
    assert load_detection(root).notes[1] == (
        "images in a folder of no split are left out: 1 (first: images/extra/more.png)"
    )
