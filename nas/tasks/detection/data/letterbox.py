"""An encoded image to a square that holds all of it, and where its boxes come to lie.

The longer side fills the square, larger or smaller than it was; the picture lies at the top left, so that a box is
scaled and never shifted. What deploys a network has to do the same.
"""

import io
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from nas.data.decode import DAMAGED, Reader, unreadable
from nas.data.portable import PADDING, open_image, to_rgb
from nas.errors import UserError
from nas.tasks.detection.data.annotations import Annotated
from nas.tasks.detection.data.values import Boxes

_ORIENTATION = 0x0112
# EXIF orientation: what turns the stored picture upright, and the same as (exchange x and y, mirror x, mirror y).
_TURNS = {
    2: (Image.Transpose.FLIP_LEFT_RIGHT, (False, True, False)),
    3: (Image.Transpose.ROTATE_180, (False, True, True)),
    4: (Image.Transpose.FLIP_TOP_BOTTOM, (False, False, True)),
    5: (Image.Transpose.TRANSPOSE, (True, False, False)),
    6: (Image.Transpose.ROTATE_270, (True, True, False)),
    7: (Image.Transpose.TRANSVERSE, (True, True, True)),
    8: (Image.Transpose.ROTATE_90, (True, False, True)),
}
_SLACK_PX = 1.0  # a box this far outside was rounded, and needs no mention
_SIDE_BITS = 28
_SIDE_MOST = 2**_SIDE_BITS - 1

Finding = tuple[str, str, int]
"""A kind of flaw that was mended, an example, and how often it occurred."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """How a picture lies in the square that holds it."""

    size: int
    """Rows and columns of the square."""
    stored: tuple[int, int]
    """(width, height) of the file, before it is turned; each below 2^28."""
    orientation: int
    """1 to 8, as EXIF numbers them; 1 is upright."""

    @property
    def upright(self) -> tuple[int, int]:
        """(width, height) of the picture as it is shown."""
        width, height = self.stored
        return (height, width) if self.orientation in _TURNS and _TURNS[self.orientation][1][0] else (width, height)

    @property
    def extent(self) -> tuple[int, int]:
        """Rows and columns of the square that hold the picture."""
        columns, rows = fitted(*self.upright, self.size)
        return rows, columns

    def to_int(self) -> int:
        """All but the size, in 64 bits."""
        width, height = self.stored
        return width | height << _SIDE_BITS | self.orientation << 2 * _SIDE_BITS

    @classmethod
    def from_int(cls, number: int, size: int) -> Self:
        """Inverse of `to_int`."""
        sides = (number & _SIDE_MOST, number >> _SIDE_BITS & _SIDE_MOST)
        return cls(size=size, stored=sides, orientation=number >> 2 * _SIDE_BITS)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Letterboxed(Frame):
    """One decoded image."""

    pixels: NDArray[np.uint8]
    """(size, size, 3) uint8, RGB."""


def fitted(width: int, height: int, size: int) -> tuple[int, int]:
    """(columns, rows) of a picture of `width` by `height` whose longer side becomes `size`; at least 1 each."""
    factor = size / max(width, height)
    return max(1, round(width * factor)), max(1, round(height * factor))


def decode_letterboxed(read: Reader, name: str, size: int) -> Letterboxed:
    """One encoded image in the top left of (size, size, 3) uint8, antialiased bilinear, upright as its EXIF says.

    Raises:
        UserError: `read` fails or does not give an image; the message has `name`.
    """
    try:
        with open_image(io.BytesIO(read())) as image:
            width, height = image.size
            columns, rows = fitted(width, height, size)
            # JPEG can be decoded at 1/2, 1/4 or 1/8; twice the size keeps the antialiasing.
            image.draft("RGB", (2 * columns, 2 * rows))
            orientation = image.getexif().get(_ORIENTATION)
            image.load()
            turned = image.getexif().get(_ORIENTATION) != orientation  # TIFF, by Pillow itself, its size before
            small = to_rgb(image)
            if small.size != (columns, rows):
                small = small.resize((columns, rows), Image.Resampling.BILINEAR)
    except DAMAGED as error:
        raise unreadable(name, error) from error
    if orientation not in _TURNS:
        orientation = 1
    elif not turned:
        small = small.transpose(_TURNS[orientation][0])
    elif _TURNS[orientation][1][0]:
        width, height = height, width
    pixels = np.full((size, size, 3), PADDING, np.uint8)
    pixels[: small.height, : small.width] = np.asarray(small)
    return Letterboxed(pixels=pixels, size=size, stored=(width, height), orientation=orientation)


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """The k boxes of an annotation in the pixels of its letterboxed image."""

    xyxy: NDArray[np.float32]
    """(k, 4) float32, cut at the picture's edges; anything where `keep` does not hold."""
    keep: NDArray[np.bool_]
    """(k,) whether the box can be used."""
    findings: list[Finding]


def place(item: Annotated, image: Frame) -> tuple[Boxes, list[Finding]]:
    """The boxes of `item` that can be used, in the pixels of `image`, and what was mended; see `placed`."""
    found = placed(item, image)
    return Boxes(found.xyxy[found.keep], item.classes[found.keep], item.crowd[found.keep]), found.findings


def placed(item: Annotated, image: Frame) -> Placed:
    """The boxes of `item` in the pixels of `image`, and what was mended.

    Boxes in pixels refer to the stored picture and turn with it, as COCO's do, unless the size that comes with them is
    that of the upright picture. Fractions refer to the upright picture.

    Raises:
        UserError: the annotation's size has another shape than the picture.
    """
    findings: list[Finding] = []
    xyxy, readable = item.xyxy, item.readable
    _report(findings, "boxes that are not four finite numbers are left out", item, ~readable)
    xyxy = np.where(readable[:, None], xyxy, 0.0)
    flat = readable & _flat(xyxy)
    _report(findings, "boxes without area are left out", item, flat)
    keep = readable & ~flat
    xyxy = upright(item, image, xyxy, findings)

    limits = np.tile(np.array(image.upright, np.float64), 2)
    clipped = np.clip(xyxy, 0, limits)
    outside = keep & _flat(clipped)
    _report(findings, "boxes outside their image are left out", item, outside)
    keep &= ~outside
    cut = keep & (np.abs(clipped - xyxy).max(axis=1, initial=0) > _SLACK_PX)
    _report(findings, "boxes that reach outside their image are cut off at its edge", item, cut)

    rows, columns = image.extent
    scaled = (clipped * np.tile((columns, rows), 2) / limits).astype(np.float32)
    gone = keep & _flat(scaled)
    _report(findings, "boxes too small to be told from a point are left out", item, gone)
    keep &= ~gone
    return Placed(scaled, keep, findings)


def upright(item: Annotated, image: Frame, xyxy: NDArray[np.float64], findings: list[Finding]) -> NDArray[np.float64]:
    """Boxes (m, 4) in the units of `item` as boxes in pixels of the upright picture; adds to `findings`."""
    if item.relative:
        xyxy = xyxy * np.tile(image.upright, 2)
        turned = False
    else:
        xyxy, turned = _to_picture(item, image, xyxy, findings)
    if image.orientation != 1 and len(xyxy):
        how = "with their boxes" if turned else "their boxes are upright already"
        findings.append((f"images are turned as their EXIF says, {how}", f"'{item.name}'", 1))
    return _turn(xyxy, image.upright, image.orientation) if turned else xyxy


def _flat(xyxy: NDArray[np.floating]) -> NDArray[np.bool_]:
    return np.asarray((xyxy[:, 2] <= xyxy[:, 0]) | (xyxy[:, 3] <= xyxy[:, 1]), np.bool_)


def _report(findings: list[Finding], what: str, item: Annotated, which: NDArray[np.bool_]) -> None:
    if which.any():
        box = ", ".join(f"{value:.6g}" for value in item.xyxy[which.argmax()])
        findings.append((what, f"({box}) in '{item.name}'", int(which.sum())))


def _to_picture(
    item: Annotated, image: Frame, xyxy: NDArray[np.float64], findings: list[Finding]
) -> tuple[NDArray[np.float64], bool]:
    """`xyxy` in pixels of the stored or of the upright picture, and whether it is the former, to be turned."""
    if item.size is None or item.size == image.stored:
        return xyxy, image.orientation != 1
    if item.size == image.upright:
        return xyxy, False
    for size, turned in ((image.stored, image.orientation != 1), (image.upright, False)):
        factor = size[0] / item.size[0]
        if abs(item.size[1] * factor - size[1]) <= max(1.0, factor):  # the same shape, up to rounding
            what = "images have another size than their annotations say, so boxes are scaled"
            findings.append((what, f"'{item.name}', {_by(size)} instead of {_by(item.size)}", 1))
            return xyxy * factor, turned
    raise UserError(
        f"image '{item.name}' is {_by(image.upright)} pixels, but its annotations say {_by(item.size)}",
        "annotate this picture again, or correct width and height",
    )


def _by(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


def _turn(xyxy: NDArray[np.float64], upright: tuple[int, int], orientation: int) -> NDArray[np.float64]:
    """Boxes of a stored picture in pixels of the upright one, whose size is `upright`."""
    exchange, mirror_x, mirror_y = _TURNS[orientation][1]
    x0, y0, x1, y1 = xyxy.T
    if exchange:
        x0, y0, x1, y1 = y0, x0, y1, x1
    if mirror_x:
        x0, x1 = upright[0] - x1, upright[0] - x0
    if mirror_y:
        y0, y1 = upright[1] - y1, upright[1] - y0
    return np.stack([x0, y0, x1, y1], axis=1)
