"""Object keypoint similarity: how well points lie, 1 where they are right (https://cocodataset.org/#keypoints-eval).

A point at a distance d has the similarity exp(-d^2 / (2 * (2 * sigma)^2 * area)); that of a pose is the mean over the
points that are labelled.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor


def point_errors(found: "Tensor", truth: "Tensor", area: "Tensor", sigmas: "Tensor") -> "Tensor":
    """(p, K) exponents d^2 / (2 * (2 * sigma)^2 * area), whether points are labelled or not.

    Args:
        found: (p, K, 2) float32, pixels.
        truth: (p, K, 3) float32, as in `nas.tasks.pose.data.values.Poses`.
        area: (p,) float32, square pixels.
        sigmas: (K,) float32.
    """
    squares = (found - truth[..., :2]).square().sum(dim=-1)
    return squares / (8 * sigmas.square() * area[:, None])


def similarity_torch(found: "Tensor", truth: "Tensor", area: "Tensor", sigmas: "Tensor") -> "Tensor":
    """(p,) similarity of pairs of poses, arguments as in `point_errors`; 1 where no point is labelled."""
    labelled = truth[..., 2] > 0
    near = (-point_errors(found, truth, area, sigmas)).exp() * labelled
    count = labelled.sum(dim=-1)
    return near.sum(dim=-1) / count.clamp(min=1) + (count == 0)


def similarity(
    found: NDArray[np.float32], truth: NDArray[np.float32], area: NDArray[np.float32], sigmas: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Twin of `similarity_torch` for arrays; leading axes are broadcast."""
    labelled = truth[..., 2] > 0
    squares = np.square(found[..., :2] - truth[..., :2]).sum(axis=-1)
    near = np.exp(-squares / (8 * np.square(sigmas) * area[..., None])) * labelled
    count = labelled.sum(axis=-1)
    return np.asarray(near.sum(axis=-1) / np.maximum(count, 1) + (count == 0), np.float32)
