"""Tiny detection sets on disk: white rectangles on dark pictures, so that pixels say where the boxes are."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from nas.tasks.detection.data import DetectionSplit

CLASSES = ("cat", "dog")


@dataclass(frozen=True)
class Scene:
    """A picture with at most one white rectangle."""

    stem: str
    size: tuple[int, int] = (80, 60)
    """Width, height."""
    box: tuple[int, int, int, int] | None = (10, 20, 50, 40)
    label: int = 0

    def picture(self) -> Image.Image:
        image = Image.new("RGB", self.size, (20, 20, 20))
        if self.box:
            image.paste((255, 255, 255), self.box)
        return image

    def save(self, folder: Path, suffix: str = ".png", **options: Any) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.stem}{suffix}"
        self.picture().save(path, **options)
        return path


Splits = Mapping[str, Sequence[Scene]]


def scenes(prefix: str, count: int, seed: int = 0) -> list[Scene]:
    """Random ones, classes in turn."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(count):
        x, y = rng.integers(0, 40), rng.integers(0, 30)
        w, h = rng.integers(8, 40), rng.integers(8, 30)
        found.append(Scene(f"{prefix}{i}", (80, 60), (int(x), int(y), int(x + w), int(y + h)), i % len(CLASSES)))
    return found


def three_splits() -> dict[str, list[Scene]]:
    return {split: scenes(split, 4, seed) for seed, split in enumerate(("train", "val", "test"))}


def coco_document(members: Sequence[Scene], suffix: str = ".png") -> dict[str, Any]:
    """Category ids have gaps and come in no order: dog is 7, cat 3."""
    images, annotations = [], []
    for number, scene in enumerate(members, 100):
        width, height = scene.size
        images.append({"id": number, "file_name": scene.stem + suffix, "width": width, "height": height})
        if scene.box:
            x0, y0, x1, y1 = scene.box
            box = {"bbox": [x0, y0, x1 - x0, y1 - y0], "category_id": (3, 7)[scene.label]}
            annotations.append({"id": len(annotations) + 1, "image_id": number, "iscrowd": 0} | box)
    categories = [{"id": 7, "name": "dog"}, {"id": 3, "name": "cat"}]
    return {"images": images, "annotations": annotations, "categories": categories}


def write_json(path: Path, document: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))


def write_coco(root: Path, splits: Splits) -> Path:
    for split, members in splits.items():
        for scene in members:
            scene.save(root / "images" / split)
        write_json(root / "annotations" / f"instances_{split}.json", coco_document(members))
    return root


def yolo_line(scene: Scene) -> str:
    if scene.box is None:
        return ""
    (w, h), (x0, y0, x1, y1) = scene.size, scene.box
    return f"{scene.label} {(x0 + x1) / 2 / w} {(y0 + y1) / 2 / h} {(x1 - x0) / w} {(y1 - y0) / h}\n"


def write_yolo(root: Path, splits: Splits, names: str | None = "names: [cat, dog]\n") -> Path:
    for split, members in splits.items():
        labels = root / "labels" / split
        labels.mkdir(parents=True, exist_ok=True)
        for scene in members:
            scene.save(root / "images" / split)
            (labels / f"{scene.stem}.txt").write_text(yolo_line(scene))
    if names is not None:
        (root / "data.yaml").write_text(names)
    return root


def voc_page(scene: Scene, difficult: int = 0, more: str = "") -> str:
    thing = ""
    if scene.box:
        x0, y0, x1, y1 = scene.box
        corners = f"<xmin>{x0 + 1}</xmin><ymin>{y0 + 1}</ymin><xmax>{x1}</xmax><ymax>{y1}</ymax>"
        thing = (
            f"<object><name>{CLASSES[scene.label]}</name><difficult>{difficult}</difficult>"
            f"<bndbox>{corners}</bndbox></object>"
        )
    size = f"<size><width>{scene.size[0]}</width><height>{scene.size[1]}</height></size>"
    return f"<annotation><filename>{scene.stem}.png</filename>{size}{thing}{more}</annotation>"


def write_voc(root: Path, splits: Splits) -> Path:
    (root / "Annotations").mkdir(parents=True)
    (root / "ImageSets/Main").mkdir(parents=True)
    for split, members in splits.items():
        for scene in members:
            scene.save(root / "JPEGImages")
            (root / "Annotations" / f"{scene.stem}.xml").write_text(voc_page(scene))
        (root / "ImageSets/Main" / f"{split}.txt").write_text("".join(f"{scene.stem}\n" for scene in members))
    return root


def white_box(split: DetectionSplit, index: int) -> list[int]:
    """x0 y0 x1 y1 of what is white in an image."""
    rows, columns = np.nonzero(split.images[index].min(axis=2) > 180)
    return [int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1]
