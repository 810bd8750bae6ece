"""Poses drawn into pictures: validation images with truth and findings for reports, and answers. Pillow alone."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nas.tasks.detection.pictures import FOUND, TRUTH, draw_box, tiled
from nas.tasks.pose.agreement import SHOWN_POINT
from nas.tasks.pose.data.values import PoseSplit
from nas.tasks.pose.decoding import FoundPoses
from nas.tasks.pose.portable import limbs_shown

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

_DOT_PX = 2


def sheet(split: PoseSplit, found: Sequence[FoundPoses], label: str) -> "Image":
    """The images of `split` in rows of three: labelled points and limbs, and those that were found over them.

    Args:
        found: of each image, in pixels of the split's images.
        label: what an object is called.
    """
    limbs = split.skeleton.limbs

    def draw(pen: "ImageDraw", number: int, scale: float) -> None:
        truth, these = split.boxes[number], found[number]
        for box, points, crowd in zip(truth.xyxy, truth.points, truth.crowd, strict=True):
            draw_box(pen, (box * scale).tolist(), label + (" (crowd)" if crowd else ""), TRUTH, below=True)
            _draw_points(pen, [[x * scale, y * scale, float(v > 0)] for x, y, v in points.tolist()], limbs, TRUTH)
        for box, points, score in reversed(list(zip(these.xyxy, these.points, these.scores, strict=True))):
            draw_box(pen, (box * scale).tolist(), f"{label} {score:.2f}", FOUND, below=False)
            _draw_points(pen, [[x * scale, y * scale, sure] for x, y, sure in points.tolist()], limbs, FOUND)

    return tiled(split, draw)


def draw_answer(picture: "Image", answer: Sequence[Mapping[str, Any]], limbs: Sequence[Sequence[int]]) -> None:
    """Draw poses (`label`, `score`, `xyxy`, `points` in pixels of the picture) into it, the best over the others."""
    from PIL import ImageDraw

    pen = ImageDraw.Draw(picture)
    for thing in sorted(answer, key=lambda thing: float(thing["score"])):
        draw_box(pen, list(thing["xyxy"]), f"{thing['label']} {thing['score']:.2f}", FOUND, below=False)
        _draw_points(pen, thing["points"], limbs, FOUND)


def _draw_points(
    pen: "ImageDraw", points: Sequence[Sequence[float]], limbs: Sequence[Sequence[int]], colour: str
) -> None:
    for line in limbs_shown(points, limbs, SHOWN_POINT):
        pen.line(line, fill=colour, width=_DOT_PX)
    for x, y, sure in points:
        if sure >= SHOWN_POINT:
            pen.ellipse((x - _DOT_PX, y - _DOT_PX, x + _DOT_PX, y + _DOT_PX), fill=colour)
