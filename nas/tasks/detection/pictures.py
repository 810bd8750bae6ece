"""Validation images with what is on them and what was found, on one sheet for reports. Pillow alone."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nas.tasks.detection.data.values import DetectionSplit
from nas.tasks.detection.postprocess import Found

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

TILE_PX = (340, 255)
"""Width and height of the place of an image."""
COLUMNS, GAP_PX, TEXT_PX = 3, 8, 12
_LABEL_PX = TEXT_PX - 2
TRUTH, FOUND = "#00a0d6", "#ff7a00"
"""Blue and orange are told apart by those who do not see red and green as two; dark text is legible on both."""
PAPER, INK = "#ffffff", "#1c2126"


def sheet(split: DetectionSplit, found: Sequence[Found], classes: Sequence[str]) -> "Image":
    """The images of `split` in rows of three, truth labelled at the bottom of each box, what was found at the top.

    Args:
        found: of each image, in pixels of the split's images.
        classes: names of the classes.
    """

    def draw(pen: "ImageDraw", number: int, scale: float) -> None:
        truth, these = split.boxes[number], found[number]
        for label, box, crowd in zip(truth.classes, truth.xyxy, truth.crowd, strict=True):
            name = classes[label] + (" (crowd)" if crowd else "")
            draw_box(pen, (box * scale).tolist(), name, TRUTH, below=True)
        # The best is drawn last, over the others.
        for label, box, score in reversed(list(zip(these.classes, these.xyxy, these.scores, strict=True))):
            draw_box(pen, (box * scale).tolist(), f"{classes[label]} {score:.2f}", FOUND, below=False)

    return tiled(split, draw)


def tiled(split: DetectionSplit, draw_on: "Callable[[ImageDraw, int, float], None]") -> "Image":
    """The images of `split` in rows of three, below what the two colours mean.

    Args:
        draw_on: called with the pen of each picture, its number, and by how much it was enlarged.
    """
    from PIL import Image, ImageDraw

    width, height = TILE_PX
    rows = -(-len(split) // COLUMNS)
    head = TEXT_PX + 2 * GAP_PX
    size = (COLUMNS * (width + GAP_PX) + GAP_PX, head + rows * (height + GAP_PX))
    page = Image.new("RGB", size, PAPER)
    draw = ImageDraw.Draw(page)
    at = GAP_PX
    for text, colour in (("truth", TRUTH), ("found, with score", FOUND)):
        draw.rectangle((at, GAP_PX, at + TEXT_PX, GAP_PX + TEXT_PX), fill=colour)
        draw.text((at + TEXT_PX + 5, GAP_PX - 1), text, fill=INK, font_size=TEXT_PX)
        at += TEXT_PX + 20 + round(draw.textlength(text, font_size=TEXT_PX))
    for number in range(len(split)):
        row, column = divmod(number, COLUMNS)
        picture, scale = _fitted(split, number)
        draw_on(ImageDraw.Draw(picture), number, scale)
        left = GAP_PX + column * (width + GAP_PX) + (width - picture.width) // 2
        page.paste(picture, (left, head + row * (height + GAP_PX) + (height - picture.height) // 2))
    return page


def draw_answer(picture: "Image", answer: Sequence[Mapping[str, Any]]) -> None:
    """Draw objects (`label`, `score`, `xyxy` in pixels of the picture) into a picture, the best over the others."""
    from PIL import ImageDraw

    pen = ImageDraw.Draw(picture)
    for thing in sorted(answer, key=lambda thing: float(thing["score"])):
        draw_box(pen, list(thing["xyxy"]), f"{thing['label']} {thing['score']:.2f}", FOUND, below=False)


def _fitted(split: DetectionSplit, number: int) -> "tuple[Image, float]":
    """The picture without its padding as large as its place allows, and by how much it was enlarged."""
    from PIL import Image

    rows, columns = split.extents[number]
    picture = Image.fromarray(np.ascontiguousarray(split.images[number][:rows, :columns]))
    scale = min(TILE_PX[0] / columns, TILE_PX[1] / rows)
    size = (max(1, round(columns * scale)), max(1, round(rows * scale)))
    return picture.resize(size, Image.Resampling.BICUBIC), scale


def draw_box(pen: "ImageDraw", box: list[float], text: str, colour: str, *, below: bool) -> None:
    """A box with its text on a strip at its bottom or its top: inside it, but beside one that it would cover."""
    x0, y0, x1, y1 = box
    pen.rectangle((x0, y0, max(x0, x1 - 1), max(y0, y1 - 1)), outline=colour, width=2)
    width, height = pen.textlength(text, font_size=_LABEL_PX) + 3, _LABEL_PX + 3
    covered = y1 - y0 < 2 * height
    columns, rows = pen.im.size
    top = (y1 if covered else y1 - height) if below else (y0 - height if covered else y0)
    left, top = max(0, min(x0, columns - width)), max(0, min(top, rows - height))
    pen.rectangle((left, top, left + width, top + height), fill=colour)
    pen.text((left + 2, top), text, fill=INK, font_size=_LABEL_PX)
