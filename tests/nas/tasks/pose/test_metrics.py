"""The metric is COCO's own: equal to pycocotools, in numbers, and right where the answer is known."""

import contextlib
import copy
import io
from typing import Any

import numpy as np
import pytest

from nas.errors import UserError
from nas.tasks.pose.data import Poses
from nas.tasks.pose.data.values import joined, no_poses
from nas.tasks.pose.decoding import FoundPoses
from nas.tasks.pose.metrics import MOST_POSES, document, evaluated, oks_precision, results_of
from tests.nas.tasks.pose.scenes import found_like, random_poses


def reference(found: list[FoundPoses], truth: list[Poses], sigmas: list[float]) -> tuple[float, float]:
    """OKS-mAP@50:95 and @50 by pycocotools."""
    coco_module, eval_module = pytest.importorskip("pycocotools.coco"), pytest.importorskip("pycocotools.cocoeval")
    with contextlib.redirect_stdout(io.StringIO()):
        coco: Any = coco_module.COCO()
        coco.dataset = copy.deepcopy(document(truth))
        coco.createIndex()
        evaluation = eval_module.COCOeval(coco, coco.loadRes(results_of(found)), "keypoints")
        evaluation.params.kpt_oks_sigmas = np.array(sigmas)
        evaluation.params.areaRng, evaluation.params.areaRngLbl = [[0, 1e10]], ["all"]
        evaluation.params.maxDets = [MOST_POSES]
        evaluation.evaluate()
        evaluation.accumulate()
    precision = evaluation.eval["precision"][..., 0, 0, 0]
    return float(precision.mean()), float(precision[0].mean())


def random_set(rng: np.random.Generator, points: int) -> tuple[list[FoundPoses], list[Poses]]:
    """Images with crowds, objects without points, misses, doubles, false alarms and equal scores."""
    truth, found = [], []
    for _ in range(int(rng.integers(1, 4))):
        poses = joined([random_poses(rng, points) for _ in range(int(rng.integers(1, 3)))])
        crowd = rng.random(len(poses)) < 0.15
        given = poses.points.copy()
        given[rng.random(len(poses)) < 0.2] *= np.float32([1, 1, 0])
        truth.append(Poses(poses.xyxy, poses.classes, crowd, given, poses.area))
        doubled = joined([poses, poses])
        noisy = found_like(doubled, rng, noise=float(rng.choice([0.5, 2.0, 6.0])))
        kept = np.flatnonzero(rng.random(len(noisy)) < 0.7)
        scores = np.round(noisy.scores[kept], 1)  # ties
        found.append(FoundPoses(noisy.xyxy[kept], noisy.classes[kept], scores, noisy.points[kept]))
    return found, truth


def test_it_equals_pycocotools() -> None:
    rng = np.random.default_rng(0)
    compared = 0
    while compared < 200:
        points = int(rng.choice([1, 4, 17, 21]))
        found, truth = random_set(rng, points)
        if not any(poses.labelled.any() for poses in truth) or not any(map(len, found)):
            continue
        sigmas = rng.uniform(0.02, 0.12, points).tolist()
        ours = oks_precision(found, truth, sigmas)
        theirs = reference(found, truth, sigmas)
        assert (ours.map50_95, ours.map50) == pytest.approx(theirs, abs=1e-9)
        compared += 1


def test_what_is_right_counts_one_and_what_is_nothing_none() -> None:
    rng = np.random.default_rng(1)
    truth = [random_poses(rng, 6) for _ in range(4)]
    right = [found_like(poses, rng) for poses in truth]
    assert oks_precision(right, truth, [0.05] * 6).map50_95 == pytest.approx(1.0)
    nothing = [found_like(no_poses(6), rng)] * 4
    assert oks_precision(nothing, truth, [0.05] * 6).map50_95 == 0.0
    moved = [FoundPoses(f.xyxy, f.classes, f.scores, f.points + np.float32([90, 0, 0])) for f in right]
    assert oks_precision(moved, truth, [0.05] * 6).map50 == 0.0
    worse = [found_like(poses, rng, noise=3.0) for poses in truth]
    found = oks_precision(worse, truth, [0.05] * 6)
    assert 0 < found.map50_95 < found.map50 <= 1
    assert evaluated(right, truth, [0.05] * 6)["precision"].shape[0] == 10


def test_poses_without_truth_have_no_precision() -> None:
    with pytest.raises(UserError, match="none of the 1 images has an object with labelled points"):
        oks_precision([found_like(no_poses(3), np.random.default_rng(0))], [no_poses(3)], [0.05] * 3)
    with pytest.raises(ValueError, match="0 images were searched, 1 have truth"):
        oks_precision([], [no_poses(3)], [0.05] * 3)
