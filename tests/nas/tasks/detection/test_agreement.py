"""Two outputs agree where each object of one has its like in the other."""

import numpy as np
import pytest
from numpy.typing import NDArray

from nas.tasks.detection.agreement import agreement
from nas.tasks.detection.geometry import cells_of
from tests.nas.tasks.detection.oracle import raw_from_boxes

RESOLUTION = 64
BOX = np.array([10, 12, 40, 44], np.float32)


def raw_of(*objects: tuple[int, NDArray[np.float32], int, float]) -> NDArray[np.float32]:
    """(1, A, 4 + 3): at the given cells a box, and a logit for a class; nothing elsewhere."""
    cells = cells_of(RESOLUTION)
    raw = np.full((1, len(cells), 7), -9.0, np.float32)
    for cell, box, label, logit in objects:
        raw[0, cell, :4] = raw_from_boxes(np.tile(box, (len(cells), 1)), cells)[cell]
        raw[0, cell, 4 + label] = logit
    return raw


def agree(got: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    found = agreement(got, expected, head_kind="anchor-free", resolution=RESOLUTION)
    assert found == agreement(expected, got, head_kind="anchor-free", resolution=RESOLUTION)
    return found


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (raw_of((27, BOX, 1, 2.0)), True),
        (raw_of((27, BOX, 1, 5.0)), True),
        (raw_of((27, BOX + np.float32(0.2), 1, 2.0)), True),
        (raw_of((28, BOX, 1, 2.0)), True),
        (raw_of((27, BOX + np.float32(2), 1, 2.0)), False),
        (raw_of((27, BOX, 0, 2.0)), False),
        (raw_of(), False),
        (raw_of((27, BOX, 1, 2.0), (2, np.array([14, 0, 30, 8], np.float32), 1, 0.0)), False),
        (raw_of((27, BOX, 1, 2.0), (2, np.array([14, 0, 30, 8], np.float32), 1, -1.5)), True),
    ],
    ids=["same", "surer", "rounded", "of another cell", "moved", "of another class", "gone", "one more", "one unsure"],
)
def test_objects_have_partners_of_their_class_and_place(other: NDArray[np.float32], same: bool) -> None:
    assert agree(raw_of((27, BOX, 1, 2.0)), other) == same


def test_of_equal_boxes_it_does_not_matter_which_one_stays() -> None:
    shifted = BOX + np.float32(6)  # overlaps by more than 0.6
    first = raw_of((27, BOX, 1, 2.0 + 1e-6), (28, shifted, 1, 2.0))
    second = raw_of((27, BOX, 1, 2.0), (28, shifted, 1, 2.0 + 1e-6))
    assert agree(first, second) == 1.0


def test_a_score_at_the_threshold_may_fall_on_either_side() -> None:
    threshold = -np.log(3)  # a score of 0.25
    assert agree(raw_of((27, BOX, 1, threshold + 1e-4)), raw_of((27, BOX, 1, threshold - 1e-4))) == 1.0


def test_a_box_of_no_area_is_equal_to_itself() -> None:
    flat = raw_of((27, BOX, 1, 2.0))
    flat[0, 27, :4] = -90.0
    assert agree(flat, flat) == 1.0
    assert agree(flat, raw_of()) == 0.0


def test_it_is_a_share_of_images() -> None:
    one, other = raw_of((27, BOX, 1, 2.0)), raw_of((27, BOX, 2, 2.0))
    assert agree(np.concatenate([one, one, one, raw_of()]), np.concatenate([one, other, one, raw_of()])) == 0.75


def test_what_is_no_number_is_no_agreement() -> None:
    broken = np.full_like(raw_of(), np.nan)
    assert agree(raw_of((27, BOX, 1, 2.0)), broken) == 0.0
