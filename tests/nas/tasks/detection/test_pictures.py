"""The sheet of validation images."""

from dataclasses import replace

import numpy as np
from PIL import ImageColor

from nas.tasks.detection.pictures import COLUMNS, FOUND, GAP_PX, TILE_PX, TRUTH, sheet
from nas.tasks.detection.postprocess import NOTHING, Found
from tests.nas.tasks.detection.rectangles import rectangles


def colours(pixels: "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]") -> set[tuple[int, ...]]:
    return set(map(tuple, pixels.reshape(-1, 3).tolist()))


def test_truth_and_findings_are_on_it() -> None:
    split = rectangles(4, 1)
    with_boxes = [i for i, boxes in enumerate(split.boxes) if len(boxes)]
    found = [NOTHING] * 4
    page = np.asarray(sheet(split, found, ("red", "blue")))
    below = page[40:]
    assert ImageColor.getrgb(TRUTH) in colours(below)
    assert ImageColor.getrgb(FOUND) not in colours(below), "nothing was found"
    rows = -(-4 // COLUMNS)
    assert page.shape[1] == COLUMNS * (TILE_PX[0] + GAP_PX) + GAP_PX
    assert page.shape[0] > rows * TILE_PX[1]

    at = with_boxes[0]
    found[at] = Found(np.array([[4, 4, 30, 30]], np.float32), np.array([1]), np.array([0.7], np.float32))
    assert ImageColor.getrgb(FOUND) in colours(np.asarray(sheet(split, found, ("red", "blue")))[40:])


def test_crowd_regions_are_called_so() -> None:
    split = rectangles(4, 1)
    assert sum(map(len, split.boxes))
    crowds = replace(split, boxes=tuple(replace(boxes, crowd=~boxes.crowd) for boxes in split.boxes))
    names = [("red", "blue"), ("red (crowd)", "blue (crowd)")]
    pages = [
        np.asarray(sheet(s, [NOTHING] * 4, n)) for s, n in ((crowds, names[0]), (split, names[1]), (split, names[0]))
    ]
    np.testing.assert_array_equal(pages[0], pages[1])
    assert not np.array_equal(pages[0], pages[2])


def test_boxes_at_the_edge_and_odd_names_are_drawn() -> None:
    split = rectangles(1, 3)
    edge = np.array([[0, 0, 1, 1], [63, 47, 64, 48], [0, 0, 64, 48], [60, 0, 60, 0]], np.float32)
    found = [Found(edge, np.array([0, 1, 0, 1]), np.full(4, 0.5, np.float32))]
    assert sheet(split, found, ("Erythrozyt äöü", "白血球")).size[0] > 0


def test_labels_stay_on_the_picture_and_off_small_boxes() -> None:
    split = rectangles(1, 3)
    found = [Found(np.array([[58, 20, 64, 24]], np.float32), np.array([1]), np.array([0.9], np.float32))]
    page = np.asarray(sheet(split, found, ("red", "an object with a long name")))[40:]
    scale = TILE_PX[1] / 48
    orange = (page == ImageColor.getrgb(FOUND)).all(axis=2)
    _, columns = np.nonzero(orange)
    left = GAP_PX + (TILE_PX[0] - round(64 * scale)) // 2
    assert columns.max() < left + round(64 * scale), "inside the picture"
    assert columns.max() - columns.min() > 100, "the whole name is there"
    head = 12 + 2 * GAP_PX
    inside = orange[round(20 * scale) + head - 40 + 4 : round(24 * scale) + head - 40 - 4]
    assert not inside[:, round(59.5 * scale) + left : round(62.5 * scale) + left].any(), "what is in the box is seen"
