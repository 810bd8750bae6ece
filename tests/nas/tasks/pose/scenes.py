"""Random poses on images without pixels."""

import numpy as np

from nas.tasks.pose.data import Poses
from nas.tasks.pose.decoding import FoundPoses

SIZE = 128


def random_poses(rng: np.random.Generator, points: int, most: int = 3) -> Poses:
    """1 to `most` objects far from each other; some points are outside their box, some not labelled, the first is."""
    k = int(rng.integers(1, most + 1))
    centres = np.array([[24, 24], [80, 30], [40, 90]])[:k] + rng.uniform(-4, 4, (k, 2))
    halves = rng.uniform(12, 22, (k, 2))
    places = centres[:, None] + rng.uniform(-1.3, 1.3, (k, points, 2)) * halves[:, None]
    given = np.concatenate([places, rng.integers(0, 3, (k, points, 1))], axis=2).astype(np.float32)
    given[:, 0, 2] = 2
    return Poses(
        np.concatenate([centres - halves, centres + halves], axis=1).astype(np.float32),
        np.zeros(k, np.int64),
        np.zeros(k, np.bool_),
        given,
        (0.53 * 4 * halves.prod(axis=1)).astype(np.float32),
    )


def found_like(poses: Poses, rng: np.random.Generator, noise: float = 0.0) -> FoundPoses:
    """The poses themselves, with noise in pixels."""
    points = poses.points.copy()
    points[..., :2] += rng.normal(0, noise, points[..., :2].shape) if noise else 0
    scores = np.sort(rng.random(len(poses)).astype(np.float32))[::-1].copy()
    return FoundPoses(poses.xyxy, poses.classes, scores, points)
