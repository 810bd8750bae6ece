"""The loss of pose networks: the detector's for boxes and scores, and that of points in the cells that learn them.

Dimensions in docstrings: b images, A cells, k objects of an image, K points, g objects of a batch, p positives.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, smooth_l1_loss

from nas.tasks.detection.geometry import cells_of
from nas.tasks.detection.heads import AnchorFree, BoxTargets, flattened
from nas.tasks.pose.data.values import Poses
from nas.tasks.pose.decoding import BOX_VALUES, REACH
from nas.tasks.pose.oks import point_errors, similarity_torch

_LARGEST = 1e3


@dataclass(frozen=True, slots=True, eq=False)
class PoseTargets:
    """The objects of a batch, as tensors on the device of the raw outputs."""

    boxes: tuple[BoxTargets, ...]
    """Of each image."""
    points: Tensor
    """(g, K, 3) float32, see `nas.tasks.pose.data.values.Poses`; image by image."""
    area: Tensor
    """(g,) float32, square pixels."""
    progress: float
    """Share of the training that is done, in [0, 1]."""

    @classmethod
    def of(cls, images: Sequence[Poses], progress: float, device: torch.device | str) -> "PoseTargets":
        """The objects of `images`."""
        boxes = tuple(BoxTargets.of(poses).to(device) for poses in images)
        points, area = (
            torch.cat([torch.from_numpy(getattr(poses, name)) for poses in images]) for name in ("points", "area")
        )
        return cls(boxes, points.to(device), area.to(device), progress)


@dataclass(frozen=True, slots=True, eq=False)
class PoseLoss:
    """Boxes and scores as in `nas.tasks.detection.heads.AnchorFree`, and K points with confidences in each cell.

    raw[..., :5] = a detector's with one class; then x, y and the logit of the confidence of each point: x is
    `2 * stride * t` pixels from the cell's centre.

    A cell is as good for a person as its box and its points are: IoU times OKS takes the place of the IoU in
    assignment and in the score to learn, as in YOLO-NAS-Pose (Aharon et al. 2023). Persons without labelled points are
    assigned by their IoU; so are all at first, when an OKS tells nothing yet.

    Points: 1 - OKS of each labelled point (Maji et al. 2022, https://arxiv.org/abs/2204.06806), averaged. It has no
    gradient for points that are far away, so a smooth L1 of the distance over the square root of the area is added,
    less and less. Confidences: binary cross-entropy with whether a point is labelled. Both are of positive cells,
    weighted by their relative alignment, like the boxes.
    """

    sigmas: Tensor
    """(K,) float32."""
    points_weight: float = 12.0
    """Weight of the points' term (YOLOv8-pose has 12 against 7.5 of its boxes, YOLO-NAS-Pose 34 against our 2.5)."""
    confidence_weight: float = 1.0
    boxes_until: float = 0.15
    """Share of a training in which cells are assigned by boxes alone."""
    pull_until: float = 0.5
    """Share of a training in which the smooth L1 fades out."""

    def __call__(self, raw: Tensor, targets: PoseTargets, resolution: int) -> Tensor:
        """Training loss, a float32 scalar with gradient.

        Args:
            raw: (b, A, 5 + 3 * K), any float type; computed in float32.
            targets: of b images.
            resolution: rows and columns of the images.

        Raises:
            ValueError: shapes do not fit.
        """
        cells, values = cells_of(resolution), BOX_VALUES + 3 * len(self.sigmas)
        if raw.shape != (len(targets.boxes), len(cells), values):
            raise ValueError(
                f"raw {tuple(raw.shape)} is not of {len(targets.boxes)} images, {len(cells)} cells and {values} values"
            )
        with torch.autocast(raw.device.type, enabled=False):
            centres, strides = (torch.tensor(a).to(raw.device) for a in (cells.centres, cells.strides))
            return self._loss(raw.float(), targets, centres, strides)

    def _loss(self, raw: Tensor, targets: PoseTargets, centres: Tensor, strides: Tensor) -> Tensor:
        objects = flattened(targets.boxes, raw.device)
        truth, area = targets.points[objects.wanted], targets.area[objects.wanted]
        sigmas, cells = self.sigmas.to(raw.device), raw.shape[1]
        own = raw[..., BOX_VALUES:].flatten(0, 1)

        def located(cell: Tensor) -> tuple[Tensor, Tensor]:
            """Places (p, K, 2) in pixels, and logits of confidences (p, K)."""
            t = own[cell].view(len(cell), len(sigmas), 3).clamp(-_LARGEST, _LARGEST)
            at = cell % cells
            return centres[at][:, None] + REACH * strides[at][:, None, None] * t[..., :2], t[..., 2]

        def similarity(box: Tensor, cell: Tensor) -> Tensor:
            return similarity_torch(located(cell)[0], truth[box], area[box], sigmas)

        factor = similarity if targets.progress >= self.boxes_until else None
        learnt = AnchorFree().learnt(raw[..., :BOX_VALUES], objects, centres, strides, factor)
        box, cell, share = learnt.positives.box, learnt.positives.cell, learnt.positives.share
        places, logits = located(cell)
        wanted, labelled = truth[box], truth[box][..., 2] > 0
        # a point's share of its person's weight; persons without points have none
        weight = share[:, None] * labelled / labelled.sum(dim=1, keepdim=True).clamp(min=1)
        apart = -torch.expm1(-point_errors(places, wanted, area[box], sigmas))
        pull = max(0.0, 1 - targets.progress / self.pull_until)
        if pull:
            size = area[box].sqrt()[:, None, None]
            far = smooth_l1_loss(places / size, wanted[..., :2] / size, reduction="none").sum(dim=2)
            apart = apart + pull * far
        sure = binary_cross_entropy_with_logits(logits, labelled.float(), reduction="none").mean(dim=1)
        known = share * labelled.any(dim=1)
        points = self.points_weight * (weight * apart).sum() + self.confidence_weight * (known * sure).sum()
        return (learnt.cost + points) / learnt.weight
