"""Distance of a pose network from its teacher, cell by cell."""

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, smooth_l1_loss

from nas.tasks.detection.distill import box_distillation_loss
from nas.tasks.pose.decoding import BOX_VALUES


def pose_distillation_loss(outputs: Tensor, teacher_outputs: Tensor, resolution: int) -> Tensor:
    """Difference of two raw outputs of kind `anchor-free-pose`, a float32 scalar with gradient.

    Boxes and scores as in detection. Points: smooth L1 of the raw places (in halves of a stride), and cross-entropy of
    the confidences beyond the teacher's own entropy, both weighted by the teacher's score of the cell; 0 where both say
    the same.

    Args:
        outputs: (b, A, 5 + 3 * K) of the network, any float type.
        teacher_outputs: the same of the teacher.
        resolution: rows and columns of the images.

    Raises:
        ValueError: shapes do not fit.
    """
    boxes = box_distillation_loss(outputs[..., :BOX_VALUES], teacher_outputs[..., :BOX_VALUES], resolution)
    with torch.autocast(outputs.device.type, enabled=False):
        own, teacher = outputs.float(), teacher_outputs.detach().float()
        weight = teacher[..., BOX_VALUES - 1].sigmoid()
        t, wanted = (raw[..., BOX_VALUES:].reshape(*raw.shape[:-1], -1, 3) for raw in (own, teacher))
        far = smooth_l1_loss(t[..., :2], wanted[..., :2], reduction="none").sum(dim=-1)
        scores = wanted[..., 2].sigmoid()
        sure, least = (
            binary_cross_entropy_with_logits(logits, scores, reduction="none") for logits in (t[..., 2], wanted[..., 2])
        )
        points = (weight * (far + sure - least).mean(dim=-1)).sum() / weight.sum().clamp(min=1.0)
    return boxes + points
