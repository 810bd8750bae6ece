import subprocess
import sys

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchvision.ops import batched_nms

from nas.tasks.detection.postprocess import CANDIDATES, Found, detections


def _scene(seed: int, cells: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """(1, A, 4) boxes in heaps, so that they do overlap, and (1, A, c) scores, no two alike."""
    rng = np.random.default_rng(seed)
    corner = rng.uniform(0, 60, (8, 2))[rng.integers(0, 8, cells)] + rng.normal(0, 4, (cells, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(15, 40, (cells, 2))], axis=1)
    scores = (rng.permutation(cells * classes) + 1) / (cells * classes + 1)
    return boxes[None].astype(np.float32), scores.reshape(1, cells, classes).astype(np.float32)


@given(
    st.integers(0, 10**6), st.integers(1, 150), st.integers(1, 4), st.floats(0.1, 0.9), st.sampled_from([0.0, 0.3, 0.9])
)
def test_what_stays_is_what_torchvision_keeps(seed: int, cells: int, classes: int, iou: float, least: float) -> None:
    boxes, scores = _scene(seed, cells, classes)
    (found,) = detections(boxes, scores, score=least, iou=iou, most=10**6)
    cell, label = np.nonzero(scores[0] > least)
    values = scores[0, cell, label]
    best = np.argsort(-values)[:CANDIDATES]
    cell, label, values = cell[best], label[best], values[best]
    kept = batched_nms(torch.from_numpy(boxes[0, cell]), torch.from_numpy(values), torch.from_numpy(label), iou).numpy()
    np.testing.assert_array_equal(found.xyxy, boxes[0, cell[kept]])
    np.testing.assert_array_equal(found.classes, label[kept])
    np.testing.assert_array_equal(found.scores, values[kept])


def _found(boxes: list[list[float]], scores: list[list[float]], **options: float) -> Found:
    (found,) = detections(np.array([boxes], np.float32), np.array([scores], np.float32), **options)  # type: ignore[arg-type]
    return found


def test_of_equal_scores_the_first_stays() -> None:
    found = _found([[0, 0, 10, 10], [1, 0, 11, 10], [50, 50, 60, 60]], [[0.5], [0.5], [0.5]])
    assert found.xyxy.tolist() == [[0, 0, 10, 10], [50, 50, 60, 60]]


def test_a_chain_drops_only_what_overlaps_a_box_that_stays() -> None:
    found = _found([[0, 0, 10, 10], [3, 0, 13, 10], [6, 0, 16, 10]], [[0.9], [0.8], [0.7]], iou=0.5)
    assert found.scores.tolist() == np.float32([0.9, 0.7]).tolist()


def test_classes_do_not_drop_each_other() -> None:
    found = _found([[0, 0, 10, 10], [0, 0, 10, 10]], [[0.9, 0.1], [0.2, 0.8]])
    assert found.classes.tolist() == [0, 1]
    assert found.xyxy.dtype == found.scores.dtype == np.float32
    assert found.classes.dtype == np.int64


def test_the_threshold_is_exclusive_and_the_number_bounded() -> None:
    apart = [[20.0 * i, 0, 20.0 * i + 10, 10] for i in range(4)]
    assert len(_found(apart, [[0.5], [0.25], [0.75], [0.125]], score=0.25)) == 2
    best = _found(apart, [[0.5], [0.25], [0.75], [0.125]], most=2)
    assert best.scores.tolist() == [0.75, 0.5]


def test_what_is_not_finite_finds_nothing() -> None:
    nan, inf = float("nan"), float("inf")
    boxes = [[0, 0, 10, 10], [20, 0, nan, 10], [40, 0, inf, 10], [60, 0, 70, 10]]
    found = _found(boxes, [[nan], [0.9], [0.9], [0.5]])
    assert found.xyxy.tolist() == [[60, 0, 70, 10]]


def test_nothing_is_found_where_nothing_scores() -> None:
    for found in detections(np.zeros((2, 5, 4), np.float32), np.zeros((2, 5, 3), np.float32)):
        assert len(found) == 0
        assert found.xyxy.shape == (0, 4)
    assert detections(np.zeros((0, 5, 4), np.float32), np.zeros((0, 5, 3), np.float32)) == []


def test_of_very_many_scores_the_best_are_looked_at() -> None:
    cells = 4 * CANDIDATES
    corner = np.arange(cells, dtype=np.float32)[:, None] * [20, 0]
    boxes = np.concatenate([corner, corner + 10], axis=1, dtype=np.float32)[None]
    scores = np.random.default_rng(0).permutation(np.linspace(0.1, 0.9, cells, dtype=np.float32)).reshape(1, -1, 1)
    (found,) = detections(boxes, scores, most=10**6)
    np.testing.assert_array_equal(found.scores, -np.sort(-scores.ravel())[:CANDIDATES])
    (tied,) = detections(boxes, np.full_like(scores, 0.5), most=10**6)
    np.testing.assert_array_equal(tied.xyxy, boxes[0, :CANDIDATES])


def test_torch_is_not_needed() -> None:
    code = "import sys, nas.tasks.detection.postprocess; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
