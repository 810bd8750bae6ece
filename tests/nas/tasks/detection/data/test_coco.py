"""COCO json: layouts that must work, and everything that can be wrong with the annotations."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nas.errors import UserError
from nas.tasks.detection.data import DetectionData, load_detection
from tests.nas.tasks.detection.data.builders import (
    Scene,
    coco_document,
    scenes,
    three_splits,
    write_coco,
    write_json,
    write_yolo,
)

Document = dict[str, Any]


def _year(root: Path) -> None:
    for split in ("train", "val", "test"):
        (root / "images" / split).rename(root / f"{split}2017")
        (root / f"annotations/instances_{split}.json").rename(root / f"annotations/instances_{split}2017.json")
    write_json(root / "annotations/captions_train2017.json", coco_document([Scene("other")]))  # as COCO has them
    (root / "images").rmdir()


def _beside(root: Path) -> None:  # Roboflow
    for split, name in (("train", "train"), ("val", "valid"), ("test", "test")):
        (root / "images" / split).rename(root / name)
        shutil.move(root / f"annotations/instances_{split}.json", root / name / "_annotations.coco.json")


def _one_folder(root: Path) -> None:
    for split in ("train", "val", "test"):
        for file in (root / "images" / split).iterdir():
            file.rename(root / "images" / file.name)
        (root / "images" / split).rmdir()


def _sub_folders(root: Path) -> None:
    for split in ("train", "val", "test"):
        path = root / f"annotations/instances_{split}.json"
        document = json.loads(path.read_text())
        for image in document["images"]:
            folder = root / "images" / split / "day 1"
            folder.mkdir(exist_ok=True)
            (root / "images" / split / image["file_name"]).rename(folder / image["file_name"])
            image["file_name"] = f".\\day 1\\{image['file_name']}"
        path.write_text("\ufeff" + json.dumps(document), encoding="utf-8")


@pytest.mark.parametrize("change", [_year, _beside, _one_folder, _sub_folders])
def test_layouts(tmp_path: Path, change: Callable[[Path], None]) -> None:
    plain = load_detection(write_coco(tmp_path / "a", three_splits()))
    root = write_coco(tmp_path / "b", three_splits())
    change(root)
    data = load_detection(root)
    assert data.notes == ("read as COCO json",)
    assert [b.xyxy.tolist() for b in data.test.boxes] == [b.xyxy.tolist() for b in plain.test.boxes]


def test_same_names_in_every_split(tmp_path: Path) -> None:
    splits = {split: [Scene(s.stem[-1], s.size, s.box, s.label) for s in m] for split, m in three_splits().items()}
    data = load_detection(write_coco(tmp_path, splits))
    assert data.val.boxes[0].xyxy[0] == pytest.approx([96 / 80 * v for v in splits["val"][0].box or ()])


def test_one_file_without_splits(tmp_path: Path) -> None:
    members = scenes("a", 40)
    for scene in members:
        scene.save(tmp_path / "data")
    write_json(tmp_path / "labels.json", coco_document(members))
    data = load_detection(tmp_path)
    assert len(data.train) + len(data.val) + len(data.test) == 40
    assert min(len(data.val), len(data.test)) > 0


def test_yolo_labels_win_where_coco_has_no_training_images(tmp_path: Path) -> None:
    root = write_yolo(tmp_path, three_splits())  # as the makers of YOLO hand out COCO
    write_json(root / "annotations/instances_val2017.json", coco_document(three_splits()["val"]))
    assert load_detection(root).notes == ("read as YOLO folder",)


# --- annotations that are mended


def loaded(tmp_path: Path, change: Callable[[Document], object], **splits: list[Scene]) -> DetectionData:
    """The set with the annotations of train changed."""
    root = write_coco(tmp_path / "set", three_splits() | splits)
    path = root / "annotations/instances_train.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    return load_detection(root)


def box(*values: object, position: int = 0) -> Callable[[Document], object]:
    return lambda document: document["annotations"][position].update(bbox=list(values))


@pytest.mark.parametrize(
    ("change", "left", "note"),
    [
        (
            box(70, 50, 40, 40),
            4,
            "boxes that reach outside their image are cut off at its edge: 1 (first: (70, 50, 110, ",
        ),
        (
            box(-20, -20, 60, 50),
            4,
            "boxes that reach outside their image are cut off at its edge: 1 (first: (-20, -20, ",
        ),
        (
            box(100, 10, 10, 10),
            3,
            "boxes outside their image are left out: 1 (first: (100, 10, 110, 20) in 'images/train/",
        ),
        (
            box(10, 10, 0, 10),
            3,
            "boxes without area are left out: 1 (first: (10, 10, 10, 20) in 'images/train/train0.png')",
        ),
        (box(10, 10, 10, -10), 3, "boxes without area are left out: 1"),
        (
            box(10, 10, float("nan"), 10),
            3,
            "boxes that are not four finite numbers are left out: 1 (first: (10, 10, nan",
        ),
        (box(10, 10, float("inf"), 10), 3, "boxes that are not four finite numbers are left out: 1"),
        (box("ten", 10, 10, 10), 3, "boxes that are not four finite numbers are left out: 1"),
        (box(10, 10, 10, None), 3, "boxes that are not four finite numbers are left out: 1"),
        (box(10, 10, 10), 3, "boxes that are not four finite numbers are left out: 1"),
        (box(10, 10, 1e-9, 10), 3, "boxes too small to be told from a point are left out: 1"),
        (lambda d: d["annotations"][0].pop("bbox"), 3, "boxes that are not four finite numbers are left out: 1"),
        (
            lambda d: d["annotations"][0].update(image_id=999),
            3,
            "annotations of images that are not listed are left out: 1 "
            "(first: annotation 1 in 'annotations/instances_train.json', image_id 999)",
        ),
        (
            lambda d: d["annotations"][0].update(image_id=[1]),
            3,
            "annotations of images that are not listed are left out",
        ),
        (
            lambda d: d["images"].append(d["images"][0]),
            4,
            "images listed twice are taken once: 1 (first: 'train0.png' in",
        ),
        (
            lambda d: d["images"].append(d["images"][0] | {"id": 7}),
            4,
            "images listed under several ids are taken once, with all boxes: 1",
        ),
        (
            lambda d: [d["images"].pop(0), d["annotations"].pop(0)],
            3,
            "images that no annotations name are left out: 1 (first: images/train/train0.png)",
        ),
        (
            lambda d: (
                d["categories"].append({"id": 0, "name": "animals", "supercategory": "none"})
                or [c.update(supercategory="animals") for c in d["categories"][:2]]
            ),
            4,
            "categories that only group others are no classes: 1 (first: 'animals')",
        ),
    ],
)
def test_mended(tmp_path: Path, change: Callable[[Document], object], left: int, note: str) -> None:
    data = loaded(tmp_path, change)
    assert sum(map(len, data.train.boxes)) == left
    assert data.num_classes == 2
    matching = [found for found in data.notes if found.startswith(note)]
    assert len(matching) == 1, data.notes
    for boxes, (rows, columns) in zip(data.train.boxes, data.train.extents, strict=True):
        assert (boxes.xyxy[:, :2] >= 0).all()
        assert (boxes.xyxy[:, 2:] > boxes.xyxy[:, :2]).all()
        assert (boxes.xyxy[:, 2:] <= (columns, rows)).all()


def test_what_is_mended_is_counted(tmp_path: Path) -> None:
    def change(document: Document) -> None:
        for annotation in document["annotations"][1:]:
            annotation["bbox"] = [5, 5, 0, 0]

    assert "boxes without area are left out: 3 (first: (5, 5, 5, 5) in 'images/train/train1.png')" in (
        loaded(tmp_path, change).notes
    )


def test_boxes_that_were_rounded_outside_need_no_note(tmp_path: Path) -> None:
    data = loaded(tmp_path, box(0, 0, 80.4, 60.4))
    assert data.train.boxes[0].xyxy[0].tolist() == [0, 0, 96, 72]
    assert data.notes == ("read as COCO json",)


def test_images_without_boxes_are_background(tmp_path: Path) -> None:
    data = load_detection(write_coco(tmp_path, {**three_splits(), "train": [*scenes("a", 3), Scene("z", box=None)]}))
    assert [len(boxes) for boxes in data.train.boxes] == [1, 1, 1, 0]
    assert data.train.boxes[3].xyxy.shape == (0, 4)


def test_crowds_are_marked(tmp_path: Path) -> None:
    data = loaded(tmp_path, lambda d: d["annotations"][0].update(iscrowd=1))
    assert [boxes.crowd.tolist() for boxes in data.train.boxes] == [[True], [False], [False], [False]]


def test_classes_are_declared_ids_in_ascending_order(tmp_path: Path) -> None:
    data = loaded(tmp_path, lambda d: d["categories"].append({"id": 5, "name": "fox"}))
    assert data.classes == ("cat", "fox", "dog")
    assert [boxes.classes[0] for boxes in data.train.boxes] == [0, 2, 0, 2]
    assert data.notes[-1] == "classes without boxes in train cannot be learned: 1 of 3 ('fox')"


def test_a_category_that_names_itself_as_its_group_is_a_class(tmp_path: Path) -> None:
    data = loaded(tmp_path, lambda d: d["categories"].append({"id": 5, "name": "fox", "supercategory": "fox"}))
    assert data.classes == ("cat", "fox", "dog")


def test_boxes_of_images_that_were_made_smaller(tmp_path: Path) -> None:
    def change(document: Document) -> None:
        document["images"][0].update(width=160, height=120)
        document["annotations"][0]["bbox"] = [20, 40, 80, 40]

    data = loaded(tmp_path, change)
    assert data.train.boxes[0].xyxy[0] == pytest.approx([12, 24, 60, 48])
    assert data.notes[1].endswith("boxes are scaled: 1 (first: 'images/train/train0.png', 80x60 instead of 160x120)")


# --- annotations that are refused


def _first_image(**changes: object) -> Callable[[Document], object]:
    return lambda document: document["images"][0].update(changes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda d: d["annotations"][1].update(category_id=99),
            r"annotation 2 in 'annotations/instances_train\.json' has category_id 99, which is not declared",
        ),
        (lambda d: d["annotations"][1].pop("category_id"), "has category_id None, which is not declared"),
        (
            lambda d: d["categories"][0].update(name="fox"),
            "category 7 is 'dog' in '.*test.json', but 'fox' in '.*train",
        ),
        (lambda d: d["categories"].append({"id": 9, "name": "cat"}), "categories 3 and 9 have the same name 'cat'"),
        (lambda d: d["categories"].append({"name": "fox"}), "a category in .* has id None and name 'fox'"),
        (lambda d: d.pop("categories"), r"instances_train\.json' has no list 'categories'"),
        (lambda d: d.update(annotations={}), "has no list 'annotations'"),
        (lambda d: d.update(images=["a.jpg"]), "has no list 'images'"),
        (_first_image(id=None), "an image in .* has id None and file_name 'train0.png'"),
        (_first_image(id=101), r"images 'train0\.png' and 'train1\.png' in .* have the same id 101"),
        (_first_image(file_name="gone.png"), r"image 'gone\.png' of '.*instances_train\.json' is missing"),
        (
            lambda d: [image.update(file_name=f"gone{image['id']}.png") for image in d["images"]],
            r"image 'gone100\.png' of '.*instances_train\.json', and 3 others are missing",
        ),
        (_first_image(file_name="val0.png"), r"image 'val0\.png' of .* is missing"),  # only in another split
        (_first_image(file_name="../val/val0.png"), r"file_name '\.\./val/val0\.png' in .* leads out of the data set"),
        (_first_image(file_name="/etc/hostname"), "file_name '/etc/hostname' in .* leads out of the data set"),
        (_first_image(file_name="C:\\photos\\a.png"), "leads out of the data set"),
        (_first_image(width=100), "image 'images/train/train0.png' is 80x60 pixels, but its annotations say 100x60"),
    ],
)
def test_refused(tmp_path: Path, change: Callable[[Document], object], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        loaded(tmp_path, change)
    assert caught.value.hint
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b'{"images": [', b"\xff\xfe\x00", b"[" * 100_000, b"images: []"])
def test_corrupt_json(tmp_path: Path, content: bytes) -> None:
    root = write_coco(tmp_path, three_splits())
    (root / "annotations/instances_val.json").write_bytes(content)
    with pytest.raises(UserError, match=r"cannot read annotations 'annotations/instances_val\.json'") as caught:
        load_detection(root)
    assert caught.value.hint
    assert "\n" not in str(caught.value)


def test_files_whose_split_cannot_be_told(tmp_path: Path) -> None:
    root = write_coco(tmp_path, three_splits())
    (root / "annotations/instances_test.json").rename(root / "annotations/instances_val2.json")
    with pytest.raises(
        UserError, match=r"instances_val\.json' and '.*instances_val2\.json' are both annotations of val"
    ):
        load_detection(root)
    shutil.rmtree(root / "annotations")
    for name in ("a.json", "b.json"):
        write_json(root / name, coco_document(three_splits()["train"]))
    with pytest.raises(UserError, match=r"cannot tell which split the annotations 'a\.json' and 'b\.json' are of"):
        load_detection(root)


def test_images_in_several_places(tmp_path: Path) -> None:
    root = write_coco(tmp_path, three_splits())
    Scene("train0").save(root / "train")
    with pytest.raises(
        UserError, match=r"'train0\.png' of .* could be 'images/train/train0\.png' or 'train/train0\.png'"
    ):
        load_detection(root)


def test_other_json_is_no_annotation(tmp_path: Path) -> None:
    root = write_coco(tmp_path, three_splits())
    for split in ("train", "val", "test"):
        (root / f"annotations/instances_{split}.json").rename(root / f"annotations/{split}.json")
    write_json(root / "annotations/licences.json", {"licences": []})
    write_json(root / "annotations/results.json", [{"image_id": 1}])
    assert len(load_detection(root).train) == 4
