"""Coloured rectangles as a folder in COCO's layout."""

import json
from pathlib import Path

from PIL import Image

from nas.tasks.detection.data.values import DetectionSplit
from tests.nas.tasks.detection.rectangles import rectangles


def write_coco(folder: Path, counts: dict[str, int], size: int = 128) -> Path:
    """`folder`/`split` with pictures, and `folder`/annotations/`split`.json, for each split of `counts`."""
    (folder / "annotations").mkdir(parents=True)
    for number, (name, count) in enumerate(counts.items()):
        split = rectangles(count, number, size)
        (folder / name).mkdir()
        for i, (image, (rows, columns)) in enumerate(zip(split.images, split.extents, strict=True)):
            Image.fromarray(image[:rows, :columns]).save(folder / name / f"{i}.png")
        (folder / "annotations" / f"{name}.json").write_text(json.dumps(_document(split)))
    return folder


def _document(split: DetectionSplit) -> dict[str, object]:
    images = [
        {"id": i, "file_name": f"{i}.png", "height": int(rows), "width": int(columns)}
        for i, (rows, columns) in enumerate(split.extents)
    ]
    boxes = []
    for i, of_image in enumerate(split.boxes):
        for (x0, y0, x1, y1), label in zip(of_image.xyxy.tolist(), of_image.classes.tolist(), strict=True):
            box = [x0, y0, x1 - x0, y1 - y0]
            boxes.append({"id": len(boxes), "image_id": i, "category_id": label + 1, "bbox": box, "iscrowd": 0})
    categories = [{"id": 1, "name": "red"}, {"id": 2, "name": "blue"}]
    return {"images": images, "annotations": boxes, "categories": categories}
