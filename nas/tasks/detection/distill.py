"""Distance of a detector from its teacher, cell by cell."""

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits
from torchvision.ops import complete_box_iou_loss

from nas.tasks.detection.geometry import boxes_from_raw_torch, cells_of
from nas.tasks.detection.heads import AnchorFree, bounded

_LEAST_SCORE = 0.05
"""Smallest score of a teacher's cell whose box is worth learning."""


def box_distillation_loss(outputs: Tensor, teacher_outputs: Tensor, resolution: int) -> Tensor:
    """Difference of two raw outputs of kind `anchor-free`, a float32 scalar with gradient; 0 or more.

    Scores: quality focal loss (Li et al. 2020, https://arxiv.org/abs/2006.04388, eq. 4, beta 2) with the teacher's
    scores as quality. Boxes: CIoU with the teacher's, weighted by the teacher's best score of the cell, as much against
    scores as in the head's own loss. Both are divided by the sum of those weights, which stands for the number of
    positive cells.

    Args:
        outputs: (b, A, 4 + c) of the network, any float type.
        teacher_outputs: (b, A, 4 + c) of the teacher.
        resolution: rows and columns of the images.

    Raises:
        ValueError: shapes do not fit.
    """
    cells = cells_of(resolution)
    if outputs.shape != teacher_outputs.shape or outputs.shape[1] != len(cells):
        raise ValueError(f"{tuple(outputs.shape)} and {tuple(teacher_outputs.shape)} are not of {len(cells)} cells")
    with torch.autocast(outputs.device.type, enabled=False):
        raw, logits = bounded(outputs.float())
        teacher_raw, teacher_logits = bounded(teacher_outputs.detach().float())
        scores = teacher_logits.sigmoid()
        focus = (logits.sigmoid() - scores).square()
        weights = scores.amax(dim=2)
        total = weights.sum().clamp(min=1.0)
        costs = binary_cross_entropy_with_logits(logits, scores, reduction="none")
        image, cell = (weights >= _LEAST_SCORE).nonzero(as_tuple=True)
        centres, strides = (torch.tensor(a).to(outputs.device) for a in (cells.centres, cells.strides))
        boxes = [boxes_from_raw_torch(t[image, cell], centres[cell], strides[cell]) for t in (raw, teacher_raw)]
        apart: Tensor = weights[image, cell] * complete_box_iou_loss(*boxes)
        loss: Tensor = ((focus * costs).sum() + AnchorFree().box_weight * apart.sum()) / total
        return loss
