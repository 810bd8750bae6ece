"""Persons that are compared one by one: the nearest pose counts, and differences are those of the same persons."""

import numpy as np
import pytest

from experiments.pose_persons import oks_of_persons, paired
from experiments.stick_figures import figures
from nas.tasks.pose.decoding import FoundPoses
from nas.tasks.pose.floors import in_true_boxes, mean_pose


def found_as(points: list[np.ndarray], keypoints: int) -> list[FoundPoses]:
    """Poses with these points, the boxes and scores of which do not matter."""
    return [
        FoundPoses(np.zeros((len(p), 4), np.float32), np.zeros(len(p), np.int64), np.ones(len(p), np.float32), p)
        for p in (q.reshape(-1, keypoints, 3).astype(np.float32) for q in points)
    ]


def test_the_most_similar_pose_found_counts_and_nothing_found_is_zero() -> None:
    split = figures(6, seed=1)
    keypoints = len(split.skeleton)
    right = [truth.points for truth in split.boxes]
    assert np.allclose(oks_of_persons(found_as(right, keypoints), split), 1.0)
    both = [np.concatenate([points + np.array([500.0, 500.0, 0.0]), points]) for points in right]
    assert np.allclose(oks_of_persons(found_as(both, keypoints), split), 1.0)
    nothing = oks_of_persons(found_as([np.empty(0)] * len(split), keypoints), split)
    assert nothing.shape == (sum(int(truth.labelled.sum()) for truth in split.boxes),)
    assert not nothing.any()


def test_the_mean_pose_stands_in_every_true_box() -> None:
    split = figures(4, seed=2)
    found = in_true_boxes(split, mean_pose(split))
    assert [len(these.points) for these in found] == [len(truth) for truth in split.boxes]
    assert 0.0 < oks_of_persons(found, split).mean() < 1.0


def test_a_paired_difference() -> None:
    mean, error = paired(np.array([0.5, 0.7, 0.9], np.float32), np.array([0.4, 0.5, 0.9], np.float32))
    assert mean == pytest.approx(0.1, abs=1e-6)
    assert error == pytest.approx(0.1 / np.sqrt(3), abs=1e-6)
