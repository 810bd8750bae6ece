"""Which cells learn which boxes: task-aligned assignment (TOOD, Feng et al. 2021, https://arxiv.org/abs/2108.07755).

A cell is good for a box when it both classifies and locates it well: alignment = score^alpha * IoU^beta (eq. 3). The
best `top_k` cells inside each box become positive; a cell wanted by several boxes goes to the one it overlaps most.

Only pairs of a box and a cell inside it are ever looked at, those of all images of the batch in one flat list. Padding
each image to as many boxes as the fullest one (the usual way) costs many times as much where boxes are many and small.

Dimensions: b images, A cells, g boxes in all images, p pairs.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from nas.tasks.detection.geometry import STRIDES, paired_iou_torch

Factor = Callable[[Tensor, Tensor], Tensor]
"""`(box, cell)`, pairs as in `Positives` -> (p,) float32 in [0, 1] by which the IoU of each pair is multiplied."""


@dataclass(frozen=True, slots=True, eq=False)
class Positives:
    """The pairs of box and cell to learn. No (image, cell) occurs twice; each box occurs unless cells run out."""

    box: Tensor
    """(p,) int64 index into the flat list of boxes."""
    cell: Tensor
    """(p,) int64 index into the b * A cells of the batch: image * A + cell."""
    iou: Tensor
    """(p,) float32: of the prediction with its box, times the factor where there is one."""
    share: Tensor
    """(p,) float32 in [0, 1]: alignment relative to the best positive of the same box, which has 1."""


def cells_inside(xyxy: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """Pairs (box, cell) with the cell's centre inside the box: two (p,) int64 tensors, ordered by box, then cell.

    Boxes narrower than a cell of the finest level are widened to it first, so that each holds at least one centre.

    Args:
        xyxy: (g, 4) float32 pixels.
        centres: (A, 2) float32 pixels.
    """
    middle = (xyxy[:, :2] + xyxy[:, 2:]) / 2
    half = ((xyxy[:, 2:] - xyxy[:, :2]) / 2).clamp(min=STRIDES[0] / 2)
    inside_x = (centres[:, 0] - middle[:, :1]).abs() <= half[:, :1]
    inside_y = (centres[:, 1] - middle[:, 1:]).abs() <= half[:, 1:]
    box, cell = (inside_x & inside_y).nonzero(as_tuple=True)
    return box, cell


@torch.no_grad()
def assign(
    predicted: Tensor,
    logits: Tensor,
    xyxy: Tensor,
    classes: Tensor,
    image: Tensor,
    centres: Tensor,
    *,
    alpha: float,
    beta: float,
    top_k: int,
    factor: Factor | None = None,
) -> Positives:
    """Task-aligned assignment for a batch.

    Args:
        predicted: (b, A, 4) float32 boxes, pixels.
        logits: (b, A, c) float32, finite.
        xyxy: (g, 4) float32 boxes to find, of all images.
        classes: (g,) int64.
        image: (g,) int64 in 0..b-1: whose boxes they are.
        centres: (A, 2) float32, pixels.
        alpha: exponent of the score.
        beta: exponent of the IoU.
        top_k: most positive cells of a box.
        factor: of what else a cell predicts for a box, such as its points; None: nothing else.
    """
    count, (batch, num_cells, _) = len(xyxy), predicted.shape
    predicted, logits = predicted.flatten(0, 1), logits.flatten(0, 1)
    box, cell = cells_inside(xyxy, centres)
    cell = cell + image[box] * num_cells
    iou = _overlap(predicted, xyxy, box, cell, factor)
    alignment = logits[cell, classes[box]].sigmoid() ** alpha * iou**beta

    kept = _best_of_each(box, alignment, top_k)
    kept = kept[_first_best(cell[kept], iou[kept], batch * num_cells)]
    positive_box, positive_cell = box[kept], cell[kept]

    missing = (torch.bincount(positive_box, minlength=count) == 0).nonzero()[:, 0]
    if len(missing):
        found_box, found_cell = _give_cells(missing, positive_cell, box, cell, alignment, xyxy, image, centres, batch)
        positive_box, positive_cell = torch.cat([positive_box, found_box]), torch.cat([positive_cell, found_cell])
        iou = _overlap(predicted, xyxy, positive_box, positive_cell, factor)
        alignment = logits[positive_cell, classes[positive_box]].sigmoid() ** alpha * iou**beta
    else:
        iou, alignment = iou[kept], alignment[kept]

    best = torch.zeros(count, device=xyxy.device).scatter_reduce(0, positive_box, alignment, "amax")[positive_box]
    # Where nothing overlaps yet all cells are equally good, and the box must be learnt all the same.
    share = torch.where(best > 0, alignment / best.clamp(min=torch.finfo(torch.float32).tiny), 1.0)
    return Positives(positive_box, positive_cell, iou, share)


def _overlap(predicted: Tensor, xyxy: Tensor, box: Tensor, cell: Tensor, factor: Factor | None) -> Tensor:
    """`Positives.iou` of pairs."""
    iou = paired_iou_torch(predicted[cell], xyxy[box])
    return iou if factor is None else iou * factor(box, cell)


def _best_of_each(group: Tensor, value: Tensor, most: int) -> Tensor:
    """Positions of the `most` largest values of each group; `group` (p,) is sorted. Ties: the earlier position."""
    by_value = value.argsort(descending=True, stable=True)
    order = by_value[group[by_value].argsort(stable=True)]
    rank = torch.arange(len(group), device=group.device) - torch.searchsorted(group, group)
    return order[rank < most]


def _first_best(key: Tensor, value: Tensor, keys: int) -> Tensor:
    """Positions of the largest value (>= 0) of each key, one per key (the first of equals), ascending."""
    best = torch.zeros(keys, device=value.device).scatter_reduce(0, key, value, "amax")
    winners = (value == best[key]).nonzero()[:, 0]
    first = torch.full((keys,), len(key), device=key.device).scatter_reduce(0, key[winners], winners, "amin")
    return winners[winners == first[key[winners]]]


def _give_cells(
    missing: Tensor,
    taken: Tensor,
    box: Tensor,
    cell: Tensor,
    alignment: Tensor,
    xyxy: Tensor,
    image: Tensor,
    centres: Tensor,
    batch: int,
) -> tuple[Tensor, Tensor]:
    """A free cell for each box in `missing`: its best one inside, else the nearest. None where no cell is free.

    Such boxes are rare (equal boxes, several tiny ones in one cell), so a loop does.
    """
    num_cells = len(centres)
    free = torch.ones(batch * num_cells, dtype=torch.bool, device=centres.device)
    free[taken] = False
    boxes, cells = [], []
    ends = torch.searchsorted(box, torch.stack([missing, missing + 1])).T.tolist()  # `box` is sorted
    for missed, (first, last) in zip(missing.tolist(), ends, strict=True):
        start = int(image[missed]) * num_cells
        open_here = free[start : start + num_cells]
        if not open_here.any():
            continue
        own = first + free[cell[first:last]].nonzero()[:, 0]
        if len(own):
            chosen = int(cell[own[alignment[own].argmax()]])
        else:
            distance = (centres - (xyxy[missed, :2] + xyxy[missed, 2:]) / 2).square().sum(dim=1)
            chosen = start + int(torch.where(open_here, distance, torch.inf).argmin())
        free[chosen] = False
        boxes.append(missed)
        cells.append(chosen)
    return missing.new_tensor(boxes), missing.new_tensor(cells)
