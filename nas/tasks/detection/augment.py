"""Augmentation of detection batches: scale, place, mosaic, mirror, colour; one thread keeps up with a training.

Dimensions in docstrings: b images of a batch, h rows (and columns), k boxes of an image.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torchvision import tv_tensors
from torchvision.transforms.v2 import functional as v2

from nas.data.portable import PADDING
from nas.tasks.detection.data.values import Boxes, DetectionSplit
from nas.tasks.pixels import Pixels
from nas.training.recipe import Crop

MIN_VISIBLE = 0.15
"""A box of which less than this share of the area is left after cropping is dropped: nobody could tell what it is."""
_MIN_SIDE_PX = 2.0
_SCALE = (0.5, 1.5)
"""Range of a picture's scale, against its size without augmentation."""
_CENTRE = (0.25, 0.75)
"""Range of the point where the four pictures of a mosaic meet, as a share of rows and columns."""
_COLOUR = 0.3
"""Brightness, contrast and saturation change by up to this share."""
_GREY = (0.299, 0.587, 0.114)  # ITU-R BT.601
MOSAIC_UNTIL = 0.85
"""Share of a training after which mosaics give way to whole pictures, as they will be met in use (Ge et al. 2021,
https://arxiv.org/abs/2107.08430, do without for the last twentieth; short trainings need more steps to adapt)."""
_PLACING = 5
"""Random numbers that placing one picture takes."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A part of an image that one picture goes into: from (`top`, `left`), in pixels."""

    top: int
    left: int
    height: int
    width: int


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a picture that is shown (from `top`, `left`), and where and how large it is drawn; pixels."""

    top: int
    left: int
    height: int
    width: int
    y: int
    x: int
    drawn_height: int
    drawn_width: int


class BoxAugmenter:
    """Batches of a split's images with their boxes, changed at random.

    - `none`: as they are.
    - `light`: each picture is scaled by 0.5 to 1.5, and what fits of it placed anywhere on grey; half of them are
      mirrored (if `flip`); brightness, contrast and saturation change by up to 30 %.
    - `mosaic`: the same with four pictures, the image's own and three others, that meet at a random point (Bochkovskiy
      et al. 2020, https://arxiv.org/abs/2004.10934).

    Scales are drawn log-uniformly. A box of which less than `MIN_VISIBLE` is left is dropped.
    """

    def __init__(self, split: DetectionSplit, *, flip: bool) -> None:
        self._split, self._flip = split, flip
        self._pixels = Pixels(split.images, torch.device("cpu"))

    def batch(
        self, indices: torch.Tensor, generator: torch.Generator, crop: Crop
    ) -> tuple[torch.Tensor, tuple[Boxes, ...]]:
        """The images at `indices`.

        Args:
            indices: (b,) int64.
            generator: of everything that is drawn; a CPU generator.

        Returns:
            (b, h, h, 3), uint8 or float32 in 0..255, and the boxes of each in its pixels.
        """
        if crop == "none":
            return self._pixels.at(indices), tuple(self._split.boxes[i] for i in indices.tolist())
        count, size = len(indices), self._split.resolution
        others = torch.randint(len(self._split), (count, 3), generator=generator)
        # Drawn alike for both recipes, so that they differ in nothing else.
        draws = torch.rand(count, 4 * _PLACING + 6, generator=generator).tolist()
        images, found = torch.empty(count, size, size, 3), []
        canvas = torch.empty(size, size, 3, dtype=torch.uint8)
        for image, own, more, drawn in zip(images, indices.tolist(), others.tolist(), draws, strict=True):
            row, column, mirror, *colour = drawn[:6]
            if crop == "mosaic":
                sources, cells = [own, *more], mosaic_cells(size, row, column)
            else:
                sources, cells = [own], [Cell(0, 0, size, size)]
            boxes = self._compose(canvas, sources, cells, drawn[6:])
            if self._flip and mirror < 0.5:
                image.copy_(v2.horizontal_flip(canvas.permute(2, 0, 1)).permute(1, 2, 0))
                found.append(self._mirrored(boxes))
            else:
                image.copy_(canvas)
                found.append(boxes)
            recolour(image, *colour)
        return images, tuple(found)

    def _compose(
        self, canvas: torch.Tensor, sources: Sequence[int], cells: Sequence[Cell], draws: Sequence[float]
    ) -> Boxes:
        """Fill `canvas`, (h, h, 3) uint8, with one picture in each cell."""
        canvas.fill_(PADDING)
        parts = [
            self._place(canvas, source, cell, draws[number * _PLACING :])
            for number, (source, cell) in enumerate(zip(sources, cells, strict=True))
        ]
        return self._joined(parts)

    def _joined(self, parts: Sequence[Boxes]) -> Boxes:
        """The objects of all parts of an image."""
        return Boxes(
            np.concatenate([part.xyxy for part in parts]),
            np.concatenate([part.classes for part in parts]),
            np.concatenate([part.crowd for part in parts]),
        )

    def _mirrored(self, boxes: Boxes) -> Boxes:
        """The objects of an image in its mirror image."""
        return Boxes(_mirrored_boxes(boxes, self._split.resolution), boxes.classes, boxes.crowd)

    def _seen(self, boxes: Boxes, shown: "Window") -> Boxes:
        """The objects of a picture of which enough is seen in `shown`, in pixels of the image."""
        xyxy, seen = boxes_seen(boxes.xyxy, shown, self._split.resolution)
        return Boxes(xyxy[seen], boxes.classes[seen], boxes.crowd[seen])

    def _place(self, canvas: torch.Tensor, source: int, cell: Cell, draws: Sequence[float]) -> Boxes:
        """Draw a part of picture `source` into a cell of `canvas`; the boxes that are seen, in pixels of `canvas`."""
        rows, columns = (int(extent) for extent in self._split.extents[source])
        scale = math.exp(math.log(_SCALE[0]) + draws[0] * math.log(_SCALE[1] / _SCALE[0]))
        height, drawn_height = _window(rows, cell.height, scale)
        width, drawn_width = _window(columns, cell.width, scale)
        top, left = int(draws[1] * (rows - height + 1)), int(draws[2] * (columns - width + 1))
        y = cell.top + int(draws[3] * (cell.height - drawn_height + 1))
        x = cell.left + int(draws[4] * (cell.width - drawn_width + 1))
        window, drawn_size = (top, left, height, width), [drawn_height, drawn_width]

        picture = self._pixels[source].permute(2, 0, 1)
        drawn = v2.resized_crop(picture, *window, size=drawn_size)
        canvas[y : y + drawn_height, x : x + drawn_width] = drawn.permute(1, 2, 0)

        return self._seen(self._split.boxes[source], Window(top, left, height, width, y, x, drawn_height, drawn_width))


def augmentation_at(crop: Crop, progress: float) -> Crop:
    """Augmentation after the share `progress` of a training, in [0, 1]: no mosaics at its end."""
    return "light" if crop == "mosaic" and progress >= MOSAIC_UNTIL else crop


def mosaic_cells(size: int, row: float, column: float) -> list[Cell]:
    """The four cells of an image of `size` pixels; `row` and `column` in [0, 1) say where they meet."""
    y, x = (round(size * (_CENTRE[0] + share * (_CENTRE[1] - _CENTRE[0]))) for share in (row, column))
    return [Cell(0, 0, y, x), Cell(0, x, y, size - x), Cell(y, 0, size - y, x), Cell(y, x, size - y, size - x)]


def recolour(image: torch.Tensor, brightness: float, contrast: float, saturation: float) -> None:
    """Change an image (h, h, 3) float32 in 0..255 in place; numbers in [0, 1), 0.5 changes nothing.

    All three at once, as one linear function of a pixel and its grey: half the time of one after the other.
    """
    gain, spread, colour = (1 + _COLOUR * (2 * share - 1) for share in (brightness, contrast, saturation))
    pixels = image.view(-1, 3)
    grey = torch.mv(pixels, torch.tensor(_GREY))
    shift = (1 - spread) * gain * float(grey.mean())
    grey.mul_((1 - colour) * spread * gain).add_(shift)
    pixels.mul_(colour * spread * gain).add_(grey[:, None]).clamp_(0, 255)


def box_areas(xyxy: NDArray[np.float32]) -> NDArray[np.float32]:
    """(k,) in square pixels of (k, 4)."""
    return (xyxy[:, 2] - xyxy[:, 0]) * (xyxy[:, 3] - xyxy[:, 1])


def _window(extent: int, room: int, scale: float) -> tuple[int, int]:
    """Pixels of a picture's `extent` that are shown at `scale`, and the pixels of `room` that they take."""
    if extent * scale <= room:
        return extent, max(1, round(extent * scale))
    return min(extent, max(1, round(room / scale))), room


def boxes_seen(given: NDArray[np.float32], shown: Window, size: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Boxes (k, 4) of a picture of `size` pixels where it is drawn, (k, 4), and of which enough is seen, (k,)."""
    window, drawn_size = (shown.top, shown.left, shown.height, shown.width), [shown.drawn_height, shown.drawn_width]
    xyxy = v2.resized_crop(_tensor(given, size), *window, size=drawn_size).numpy()
    areas = box_areas(given) * np.float32(shown.drawn_height / shown.height * shown.drawn_width / shown.width)
    sides = xyxy[:, 2:] - xyxy[:, :2]
    seen = (sides >= _MIN_SIDE_PX).all(axis=1) & (box_areas(xyxy) >= MIN_VISIBLE * areas)
    # Rounding may carry an edge out of the image by a hair.
    at = np.array([shown.x, shown.y, shown.x, shown.y], np.float32)
    return np.clip(xyxy + at, 0, size), seen


def _mirrored_boxes(boxes: Boxes, size: int) -> NDArray[np.float32]:
    mirrored: NDArray[np.float32] = v2.horizontal_flip(_tensor(boxes.xyxy, size)).numpy()
    return mirrored


def _tensor(xyxy: NDArray[np.float32], size: int) -> tv_tensors.BoundingBoxes:
    return tv_tensors.BoundingBoxes(
        torch.from_numpy(xyxy), format=tv_tensors.BoundingBoxFormat.XYXY, canvas_size=(size, size)
    )
