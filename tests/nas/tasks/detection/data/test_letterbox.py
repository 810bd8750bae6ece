"""Decoding: every kind of image, EXIF orientations, and boxes that turn along."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from nas.data.portable import PADDING
from nas.tasks.detection.data import load_detection
from nas.tasks.detection.data.letterbox import decode_letterboxed, fitted
from tests.nas.tasks.detection.data.builders import (
    Scene,
    coco_document,
    three_splits,
    white_box,
    write_coco,
    write_json,
    write_yolo,
)

EXIF_ORIENTATION = 0x0112


def exif(orientation: int) -> Image.Exif:
    tags = Image.Exif()
    tags[EXIF_ORIENTATION] = orientation
    return tags


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".tiff"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_boxes_turn_with_the_picture(tmp_path: Path, orientation: int, suffix: str) -> None:
    """The annotation's size is that of the stored picture, so its boxes are too."""
    root = write_coco(tmp_path, three_splits())
    scene = Scene("a", (80, 60), (10, 20, 50, 32))
    scene.save(root / "images/train", suffix, exif=exif(orientation))
    write_json(root / "annotations/instances_train.json", coco_document([scene], suffix))
    data = load_detection(root)
    turned = orientation >= 5
    assert data.train.extents[0].tolist() == ([96, 72] if turned else [72, 96])
    assert data.train.boxes[0].xyxy[0] == pytest.approx(white_box(data.train, 0), abs=1.5)
    note = "images are turned as their EXIF says, with their boxes: 1 (first: 'images/train/a" + suffix + "')"
    assert (note in data.notes) == (orientation > 1)


@pytest.mark.parametrize("orientation", [5, 6, 7, 8])
def test_boxes_of_the_upright_picture_stay(tmp_path: Path, orientation: int) -> None:
    """The size that comes with them says that they were drawn on the picture as it is shown."""
    root = write_coco(tmp_path, {**three_splits(), "train": []})
    path = Scene("a", (80, 60), (10, 20, 50, 32)).save(root / "images/train", ".jpg", exif=exif(orientation))
    upright = decode_letterboxed(path.read_bytes, "a", 96).pixels
    rows, columns = np.nonzero(upright.min(axis=2) > 180)
    x0, y0, x1, y1 = (round(float(v) / 1.2) for v in (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1))
    write_json(
        root / "annotations/instances_train.json", coco_document([Scene("a", (60, 80), (x0, y0, x1, y1))], ".jpg")
    )
    data = load_detection(root)
    assert data.train.boxes[0].xyxy[0] == pytest.approx(white_box(data.train, 0), abs=1.5)
    assert data.notes[1] == (
        "images are turned as their EXIF says, their boxes are upright already: 1 (first: 'images/train/a.jpg')"
    )


def test_fractions_refer_to_the_upright_picture(tmp_path: Path) -> None:
    root = write_yolo(tmp_path, three_splits())
    (root / "images/train/train0.png").unlink()
    Scene("train0", (80, 60), (0, 0, 80, 30)).save(root / "images/train", ".jpg", exif=exif(6))
    (root / "labels/train/train0.txt").write_text("0 0.75 0.5 0.5 1")  # the upper half turned to the right
    data = load_detection(root)
    assert data.train.boxes[0].xyxy[0] == pytest.approx([36, 0, 72, 96])
    assert white_box(data.train, 0) == pytest.approx([36, 0, 72, 96], abs=1)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_are_upright(tmp_path: Path, orientation: int) -> None:
    path = Scene("a", (96, 64), (8, 8, 50, 20)).save(tmp_path, exif=exif(orientation))
    with Image.open(path) as image:
        upright = np.asarray(ImageOps.exif_transpose(image))
    found = decode_letterboxed(path.read_bytes, "a", 96)
    rows, columns = found.extent
    assert np.array_equal(found.pixels[:rows, :columns], upright)
    assert found.upright == (columns, rows)


def modes() -> dict[str, Image.Image]:
    grey = np.full((60, 80), 51, np.uint8)
    deep = Image.fromarray(np.full((60, 80), 51 * 257, np.uint16))
    plain = Image.fromarray(grey)
    rgba = plain.convert("RGBA")
    rgba.putalpha(128)
    return {
        "grey.png": plain,
        "grey.jpg": plain,
        "binary.png": plain.point(lambda _: 255).convert("1"),
        "deep.png": deep,
        "deep.tiff": deep,
        "alpha.png": rgba,
        "grey-alpha.png": plain.convert("LA"),
        "palette.png": plain.convert("P"),
        "palette.gif": plain.convert("P"),
        "cmyk.jpg": plain.convert("RGB").convert("CMYK"),
        "cmyk.tiff": plain.convert("RGB").convert("CMYK"),
        "rgb.webp": plain.convert("RGB"),
        "rgb.bmp": plain.convert("RGB"),
    }


@pytest.mark.parametrize("name", modes())
def test_every_kind_of_image_becomes_rgb(tmp_path: Path, name: str) -> None:
    modes()[name].save(tmp_path / name)
    image = decode_letterboxed((tmp_path / name).read_bytes, name, 64)
    assert image.pixels.shape == (64, 64, 3)
    assert image.extent == (48, 64)
    expected = 255 if name.startswith("binary") else 51
    assert np.abs(image.pixels[:48].astype(int) - expected).max() <= 3
    assert (image.pixels[48:] == PADDING).all()


def test_shrinking_is_antialiased(tmp_path: Path) -> None:
    board = (np.indices((512, 512)).sum(axis=0) % 2 * 255).astype(np.uint8)
    Image.fromarray(board).save(tmp_path / "a.png")
    pixels = decode_letterboxed((tmp_path / "a.png").read_bytes, "a", 64).pixels
    assert np.abs(pixels.astype(int) - 127).max() <= 10


def test_large_jpegs_keep_their_place(tmp_path: Path) -> None:
    """They are decoded at a fraction of their size."""
    scene = Scene("a", (1333, 999), (400, 300, 900, 700))
    path = scene.save(tmp_path, ".jpg")
    image = decode_letterboxed(path.read_bytes, "a", 128)
    assert image.stored == (1333, 999)
    rows, columns = np.nonzero(image.pixels.min(axis=2) > 180)
    found = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    assert found == pytest.approx(np.array(scene.box) * 128 / 1333, abs=1)


def test_thin_pictures_keep_a_row() -> None:
    assert fitted(10_000, 3, 64) == (64, 1)
    assert fitted(3, 10_000, 64) == (1, 64)
    assert fitted(20, 10, 64) == (64, 32)
