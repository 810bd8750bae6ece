"""Real sets, where they lie beside the checkout."""

from pathlib import Path

import pytest

from nas.tasks.detection.data import DetectionData, DetectionSplit, load_detection

FOLDER = Path(__file__).parents[6] / "shared/data/detection"


def load(name: str) -> DetectionData:
    if not (FOLDER / name).exists():
        pytest.skip(f"{name} is not beside the checkout")
    return load_detection(FOLDER / name)


def boxes(*splits: DetectionSplit) -> int:
    return sum(len(b) for split in splits for b in split.boxes)


def test_blood_cells() -> None:
    data = load("bccd.tar")
    assert data.classes == ("RBC", "WBC", "Platelets")
    assert (len(data.train), len(data.val), len(data.test)) == (205, 87, 72)
    assert boxes(data.train, data.val, data.test) == 4886
    assert data.native_resolution == 416
    assert data.notes == ("read as COCO json",)
    assert data.train.extents[0].tolist() == [312, 416]


def test_coco_subset() -> None:
    data = load("coco_subset.tar")
    assert data.num_classes == 80
    assert data.classes[0] == "person"
    assert (len(data.train), len(data.val), len(data.test)) == (128, 17, 147)
    assert (boxes(data.train, data.val), boxes(data.test)) == (1363, 1115)
    crowd = sum(int(b.crowd.sum()) for split in (data.train, data.val, data.test) for b in split.boxes)
    assert crowd == 26
