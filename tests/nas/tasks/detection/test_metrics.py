import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nas.errors import UserError
from nas.tasks.detection.data import Boxes
from nas.tasks.detection.metrics import MOST_DETECTIONS, mean_average_precision
from nas.tasks.detection.postprocess import NOTHING, Found
from tests.nas.tasks.detection.oracle import boxes


def _found(xyxy: object, scores: list[float], classes: object = None) -> Found:
    these = boxes(xyxy, classes)
    return Found(these.xyxy, these.classes, np.asarray(scores, np.float32))


A, B, C = [0, 0, 10, 10], [20, 0, 30, 10], [40, 0, 50, 10]


class TestByHand:
    def test_all_found(self) -> None:
        got = mean_average_precision([_found([A, B], [0.9, 0.8])], [boxes([A, B])], 1)
        assert got.map50 == got.map50_95 == 1
        assert got.per_class_ap50 == (1,)

    def test_half_found(self) -> None:
        # recall 0.5 at precision 1: the 51 recalls 0, 0.01, ..., 0.5 of 101
        got = mean_average_precision([_found([A], [0.9])], [boxes([A, B])], 1)
        assert got.map50 == pytest.approx(51 / 101)

    def test_an_error_before_the_second_hit(self) -> None:
        # precision 1 up to recall 0.5, then 2/3
        got = mean_average_precision([_found([A, C, B], [0.9, 0.8, 0.7])], [boxes([A, B])], 1)
        assert got.map50 == pytest.approx((51 + 50 * 2 / 3) / 101)

    def test_an_error_after_all_hits_costs_nothing(self) -> None:
        assert mean_average_precision([_found([A, B, C], [0.9, 0.8, 0.7])], [boxes([A, B])], 1).map50 == 1

    def test_one_object_is_found_once(self) -> None:
        got = mean_average_precision([_found([A, A, B], [0.9, 0.8, 0.7])], [boxes([A, B])], 1)
        assert got.map50 == pytest.approx((51 + 50 * 2 / 3) / 101)

    def test_boxes_that_fit_roughly_count_up_to_their_iou(self) -> None:
        # IoU 0.77: right at 0.5, 0.55, ..., 0.75
        got = mean_average_precision([_found([[0, 0, 10, 7.7]], [0.9])], [boxes([A])], 1)
        assert got.map50 == 1
        assert got.map50_95 == pytest.approx(0.6)

    def test_classes_are_averaged_where_they_have_objects(self) -> None:
        truth = [boxes([A, B, C], [0, 2, 2])]
        found = [_found([A, B, C], [0.9, 0.8, 0.7], [0, 2, 3])]
        got = mean_average_precision(found, truth, 4)
        assert got.map50 == pytest.approx((1 + 51 / 101) / 2)
        assert [math.isnan(ap) for ap in got.per_class_ap50] == [False, True, False, True]
        assert got.per_class_ap50[2] == pytest.approx(51 / 101)

    def test_nothing_found_is_nought(self) -> None:
        got = mean_average_precision([NOTHING, NOTHING], [boxes([A]), boxes([])], 1)
        assert got.map50 == got.map50_95 == 0

    def test_an_image_without_boxes_has_only_errors(self) -> None:
        truth = [boxes([]), boxes([A])]
        assert mean_average_precision([_found([A], [0.9]), _found([A], [0.8])], truth, 1).map50 == pytest.approx(0.5)
        assert mean_average_precision([_found([A], [0.7]), _found([A], [0.8])], truth, 1).map50 == 1

    def test_in_a_crowd_region_nothing_is_an_error_and_nothing_to_be_found(self) -> None:
        crowd = boxes([A, [0, 20, 100, 100]], [0, 0], [False, True])
        inside = _found([[30, 30, 40, 40], [50, 50, 60, 60], A], [0.9, 0.8, 0.7])
        assert mean_average_precision([inside], [crowd], 1).map50 == 1
        half_out = _found([[30, 0, 40, 60], [30, 0, 40, 30], A], [0.9, 0.8, 0.7])  # 2/3 and 1/3 inside
        assert mean_average_precision([half_out], [crowd], 1).map50 == pytest.approx(0.5)
        other_class = boxes(crowd.xyxy, [0, 1], crowd.crowd)
        assert mean_average_precision([inside], [other_class], 2).map50 == pytest.approx(1 / 3)


def test_only_the_best_detections_of_an_image_count() -> None:
    late = _found([*([C] * MOST_DETECTIONS), A], [*np.linspace(0.9, 0.5, MOST_DETECTIONS), 0.4])
    assert mean_average_precision([late], [boxes([A])], 1).map50 == 0


def test_without_objects_there_is_no_figure() -> None:
    for truth in ([], [boxes([])], [boxes([A], [0], [True])]):
        with pytest.raises(UserError, match=f"none of the {len(truth)} images has an object"):
            mean_average_precision([NOTHING] * len(truth), truth, 1)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="1 images"):
        mean_average_precision([NOTHING], [], 1)
    with pytest.raises(ValueError, match="0 to 3"):
        mean_average_precision([_found([A], [0.5], [3])], [boxes([A])], 3)


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    mean_average_precision([_found([A], [0.9])], [boxes([A])], 1)
    assert capfd.readouterr() == ("", "")


def _scene(seed: int, crowds: float) -> tuple[list[Found], list[Boxes]]:
    rng = np.random.default_rng(seed)
    truth, found = [], []
    for _ in range(5):
        k = int(rng.integers(0, 7))
        corner = rng.uniform(0, 60, (k, 2))
        true = boxes(
            np.concatenate([corner, corner + rng.uniform(8, 40, (k, 2))], 1),
            rng.integers(0, 3, k),
            rng.random(k) < crowds,
        )
        copies = rng.integers(0, k, 2 * k) if k else np.empty(0, np.int64)
        near = true.xyxy[copies] + rng.normal(0, 3, (2 * k, 4)).astype(np.float32)
        near[:, 2:] = np.maximum(near[:, 2:], near[:, :2] + 1)
        labels = np.where(rng.random(2 * k) < 0.8, true.classes[copies], rng.integers(0, 3, 2 * k))
        truth.append(true)
        found.append(_found(near, rng.random(2 * k).tolist(), labels))
    truth.append(boxes([A, B, C], [0, 1, 2]))  # so that no class is without objects
    found.append(NOTHING)
    return found, truth


def _average_precision(found: list[Found], truth: list[Boxes], label: int, threshold: float) -> float:
    """COCO's definition, written out: greedy matching by score, interpolated at 101 recalls."""
    judged: list[tuple[float, bool]] = []
    objects = 0
    for these, true in zip(found, truth, strict=True):
        at = np.flatnonzero(true.classes == label)
        objects += int((~true.crowd[at]).sum())
        taken: set[int] = set()
        for i in sorted(np.flatnonzero(these.classes == label), key=lambda i: -these.scores[i]):
            x0, y0, x1, y1 = (float(v) for v in these.xyxy[i])
            best, best_iou, in_crowd = None, threshold, False
            for j in at:
                u0, v0, u1, v1 = (float(v) for v in true.xyxy[j])
                both = max(0.0, min(x1, u1) - max(x0, u0)) * max(0.0, min(y1, v1) - max(y0, v0))
                own = (x1 - x0) * (y1 - y0)
                if true.crowd[j]:
                    in_crowd = in_crowd or both / own >= threshold
                elif j not in taken and both / (own + (u1 - u0) * (v1 - v0) - both) >= best_iou:
                    best, best_iou = j, both / (own + (u1 - u0) * (v1 - v0) - both)
            if best is not None:
                taken.add(int(best))
            if best is not None or not in_crowd:
                judged.append((float(these.scores[i]), best is not None))
    judged.sort(key=lambda pair: -pair[0])
    hits = np.cumsum([hit for _, hit in judged])
    recall, precision = hits / objects, hits / np.arange(1, len(hits) + 1)
    return float(np.mean([max(precision[recall >= r], default=0.0) for r in np.linspace(0, 1, 101)]))


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.3]))
def test_it_is_the_definition_of_coco(seed: int, crowds: float) -> None:
    found, truth = _scene(seed, crowds)
    got = mean_average_precision(found, truth, 3)
    expected = [[_average_precision(found, truth, k, t) for k in range(3)] for t in np.linspace(0.5, 0.95, 10)]
    np.testing.assert_allclose(got.per_class_ap50, expected[0], atol=1e-9)
    np.testing.assert_allclose([got.map50, got.map50_95], [np.mean(expected[0]), np.mean(expected)], atol=1e-9)


def test_it_is_what_torchmetrics_reports() -> None:
    from torchmetrics.detection import MeanAveragePrecision

    found, truth = _scene(3, 0.0)
    metric = MeanAveragePrecision(backend="faster_coco_eval", class_metrics=True)
    metric.update(
        [
            {
                "boxes": torch.from_numpy(f.xyxy),
                "scores": torch.from_numpy(f.scores),
                "labels": torch.from_numpy(f.classes),
            }
            for f in found
        ],
        [
            {
                "boxes": torch.from_numpy(t.xyxy),
                "labels": torch.from_numpy(t.classes),
            }
            for t in truth
        ],
    )
    expected = metric.compute()
    got = mean_average_precision(found, truth, 3)
    assert got.map50 == pytest.approx(float(expected["map_50"]), abs=1e-6)
    assert got.map50_95 == pytest.approx(float(expected["map"]), abs=1e-6)
