import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torchvision.ops import box_iou

from nas.tasks.detection.decoding import boxes_from_raw
from nas.tasks.detection.geometry import (
    boxes_from_raw_torch,
    cells_of,
    paired_iou_torch,
    pairwise_iou,
)
from tests.nas.tasks.detection.oracle import raw_from_boxes

SEEDS = st.integers(0, 2**32 - 1)
CELLS = cells_of(64)


def _boxes(seed: int, count: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    corner = rng.uniform(0, 100, (count, 2))
    return np.concatenate([corner, corner + rng.uniform(0.1, 80, (count, 2))], axis=1).astype(np.float32)


def test_cells_are_level_major_then_row_major() -> None:
    cells = cells_of(64)
    assert len(cells) == 8 * 8 + 4 * 4 + 2 * 2
    assert cells.centres[:2].tolist() == [[4, 4], [12, 4]]
    assert cells.centres[8].tolist() == [4, 12]
    assert cells.centres[64].tolist() == [8, 8]
    assert cells.centres[-1].tolist() == [48, 48]
    assert np.unique(cells.strides, return_counts=True)[1].tolist() == [64, 16, 4]


@pytest.mark.parametrize("resolution", [0, -32, 100])
def test_other_resolutions_are_refused(resolution: int) -> None:
    with pytest.raises(ValueError, match=str(resolution)):
        cells_of(resolution)


def test_cells_cannot_be_changed_by_one_of_their_users() -> None:
    with pytest.raises(ValueError, match="read-only"):
        cells_of(64).centres[0] = 0


def test_a_raw_value_is_a_distance_in_strides() -> None:
    t = np.zeros((len(CELLS), 4), np.float32)
    t[-1] = np.log(np.expm1([0.5, 1.0, 0.25, 0.125]))  # softplus gives these back
    box = boxes_from_raw(t, CELLS.centres, CELLS.strides)[-1]  # the cell of stride 32 around (48, 48)
    np.testing.assert_allclose(box, [48 - 16, 48 - 32, 48 + 8, 48 + 4], rtol=1e-5)


@given(arrays(np.float32, (2, len(CELLS), 4), elements=st.floats(-6, 12, width=32)))
def test_boxes_are_read_as_they_were_written(t: np.ndarray) -> None:
    boxes = boxes_from_raw(t, CELLS.centres, CELLS.strides)
    np.testing.assert_allclose(
        boxes_from_raw(raw_from_boxes(boxes, CELLS), CELLS.centres, CELLS.strides), boxes, rtol=1e-3, atol=1e-3
    )
    twin = boxes_from_raw_torch(torch.from_numpy(t), torch.tensor(CELLS.centres), torch.tensor(CELLS.strides))
    np.testing.assert_allclose(twin.numpy(), boxes, rtol=1e-5, atol=1e-4)


def test_a_box_beside_a_cell_is_written_as_far_as_it_can_be() -> None:
    raw = raw_from_boxes(np.full((len(CELLS), 4), 1000, np.float32), CELLS)
    assert np.isfinite(raw).all()
    left = boxes_from_raw(raw, CELLS.centres, CELLS.strides)[:, 0]
    np.testing.assert_allclose(left, CELLS.centres[:, 0] - 1e-3 * CELLS.strides, atol=1e-3)


@given(SEEDS, st.integers(0, 8), st.integers(0, 8))
def test_iou_is_that_of_torchvision(seed: int, k: int, m: int) -> None:
    a, b = _boxes(seed, k), _boxes(seed + 1, m)
    ours = pairwise_iou(a, b)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, box_iou(torch.from_numpy(a), torch.from_numpy(b)).numpy(), atol=1e-5)
    least = min(k, m)
    paired = paired_iou_torch(torch.from_numpy(a[:least]), torch.from_numpy(b[:least])).numpy()
    np.testing.assert_allclose(paired, ours[np.arange(least), np.arange(least)], atol=1e-5)


@given(SEEDS, st.floats(0.1, 10), st.floats(-50, 50))
def test_iou_knows_neither_order_nor_scale_nor_place(seed: int, factor: float, shift: float) -> None:
    a, b = _boxes(seed, 5), _boxes(seed + 1, 4)
    iou = pairwise_iou(a, b)
    assert ((iou >= 0) & (iou <= 1)).all()
    np.testing.assert_allclose(pairwise_iou(b, a).T, iou, atol=1e-6)
    np.testing.assert_allclose(np.diag(pairwise_iou(a, a)), 1, atol=1e-5)
    moved = [(x * factor + shift).astype(np.float32) for x in (a, b)]
    np.testing.assert_allclose(pairwise_iou(*moved), iou, atol=2e-3)


def test_boxes_without_area_overlap_nothing() -> None:
    flat = np.array([[5, 5, 5, 5]], np.float32)
    assert pairwise_iou(flat, flat).item() == 0
    assert paired_iou_torch(torch.from_numpy(flat), torch.from_numpy(flat)).item() == 0
