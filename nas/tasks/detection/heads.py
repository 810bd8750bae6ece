"""Raw outputs of detectors: the loss they are trained with, and the boxes they stand for.

Dimensions in docstrings: b or n images, A cells, c classes, k boxes of an image.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import softplus
from torchvision.ops import complete_box_iou_loss

from nas.tasks.detection.assignment import Factor, Positives, assign, cells_inside
from nas.tasks.detection.data.values import Boxes
from nas.tasks.detection.decoding import decode_anchor_free
from nas.tasks.detection.geometry import boxes_from_raw_torch, cells_of
from nas.tasks.detection.torchvision_heads import TORCHVISION_HEADS

_T_RANGE = (-8.0, 300.0)
_LARGEST_LOGIT = 1e4


@dataclass(frozen=True, slots=True, eq=False)
class BoxTargets:
    """The objects of one image, as tensors on the device of the raw outputs."""

    xyxy: Tensor
    """(k, 4) float32, pixels of the image given to the network."""
    classes: Tensor
    """(k,) int64."""
    crowd: Tensor
    """(k,) bool."""

    def __len__(self) -> int:
        return len(self.classes)

    @classmethod
    def of(cls, boxes: Boxes) -> "BoxTargets":
        """The same objects, on the CPU."""
        return cls(torch.from_numpy(boxes.xyxy), torch.from_numpy(boxes.classes), torch.from_numpy(boxes.crowd))

    def to(self, device: torch.device | str) -> "BoxTargets":
        return BoxTargets(self.xyxy.to(device), self.classes.to(device), self.crowd.to(device))


def bounded(raw: Tensor) -> tuple[Tensor, Tensor]:
    """Distances (..., 4) and logits (..., c) of `raw` (..., 4 + c) of kind `anchor-free`, as losses can bear them.

    Distances are held from about 0.003 to about 10,000 pixels: a box of no width has no aspect ratio, and areas of much
    larger ones overflow.
    """
    return raw[..., :4].clamp(*_T_RANGE), raw[..., 4:].clamp(-_LARGEST_LOGIT, _LARGEST_LOGIT)


@dataclass(frozen=True, slots=True, eq=False)
class FlatTargets:
    """The g objects of all images of a batch."""

    xyxy: Tensor
    """(g, 4) float32, pixels."""
    classes: Tensor
    """(g,) int64."""
    crowd: Tensor
    """(g,) bool."""
    image: Tensor
    """(g,) int64: whose objects they are."""

    @property
    def wanted(self) -> Tensor:
        """(g,) bool: what is to be learnt, no crowd and not without area."""
        return ~self.crowd & (self.xyxy[:, 2:] > self.xyxy[:, :2]).all(dim=1)


def flattened(targets: Sequence[BoxTargets], device: torch.device) -> FlatTargets:
    """The objects of all images in one list."""
    xyxy, classes, crowd = (
        torch.cat([getattr(target, name) for target in targets]) for name in ("xyxy", "classes", "crowd")
    )
    lengths = torch.tensor([len(target) for target in targets], device=device)
    image = torch.repeat_interleave(torch.arange(len(targets), device=device), lengths)
    return FlatTargets(xyxy, classes, crowd, image)


@dataclass(frozen=True, slots=True, eq=False)
class Learnt:
    """The loss of a batch, before it is divided by what stands for the number of boxes."""

    positives: Positives
    cost: Tensor
    """Scalar."""
    weight: Tensor
    """Scalar: the sum of the positives' shares, at least 1."""

    @property
    def loss(self) -> Tensor:
        return self.cost / self.weight


class Head(Protocol):
    """Meaning of a kind of raw output. Stateless."""

    def loss(self, raw: Tensor, targets: Sequence[BoxTargets], resolution: int) -> Tensor:
        """Training loss, a float32 scalar with gradient.

        Args:
            raw: (b, A, 4 + c), any float type; computed in float32.
            targets: b entries, on the device of `raw`; entries without boxes are fine.
            resolution: rows and columns of the images.
        """
        ...

    def decode(self, raw: NDArray[np.float32], resolution: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(n, A, 4 + c) float32 -> boxes (n, A, 4) float32 in pixels, and scores (n, A, c) float32 in [0, 1].

        What is not finite stays so.
        """
        ...


@dataclass(frozen=True, slots=True)
class AnchorFree:
    """One box for each cell of strides 8, 16 and 32, distances from its centre, and a sigmoid for each class.

    raw[..., :4] = t of left, top, right, bottom, distance = stride * softplus(t); raw[..., 4:] = class logits.

    Loss: binary cross-entropy of all scores with the IoU of positive cells as soft target, scaled by how well a cell
    aligns (Feng et al. 2021, eq. 4-5), plus CIoU (Zheng et al. 2020, https://arxiv.org/abs/1911.08287) of positive
    cells, weighted by their relative alignment. Both are divided by the sum of relative alignments in the batch: it
    stands for the number of boxes and, unlike the sum of soft targets, is not near zero before boxes are learnt.
    """

    alpha: float = 0.5
    """Exponent of the score in the alignment; this and the next two as in YOLOv8 (Jocher et al. 2023)."""
    beta: float = 6.0
    """Exponent of the IoU in the alignment."""
    top_k: int = 10
    """Most positive cells of a box."""
    box_weight: float = 2.5
    """Weight of the CIoU term; the class term has 1 (PP-YOLOE, Xu et al. 2022, https://arxiv.org/abs/2203.16250)."""

    def loss(self, raw: Tensor, targets: Sequence[BoxTargets], resolution: int) -> Tensor:
        """See `Head.loss`. Boxes without area are no targets.

        Crowd regions are no targets either, and whatever is found of their class by cells inside them costs nothing.

        Raises:
            ValueError: shapes do not fit.
        """
        cells = cells_of(resolution)
        if raw.ndim != 3 or raw.shape[0] != len(targets) or raw.shape[1] != len(cells):
            raise ValueError(f"raw {tuple(raw.shape)} does not fit {len(targets)} targets and {len(cells)} cells")
        with torch.autocast(raw.device.type, enabled=False):
            return self._loss(
                raw.float(), targets, *(torch.tensor(a).to(raw.device) for a in (cells.centres, cells.strides))
            )

    def _loss(self, raw: Tensor, targets: Sequence[BoxTargets], centres: Tensor, strides: Tensor) -> Tensor:
        return self.learnt(raw, flattened(targets, raw.device), centres, strides).loss

    def learnt(
        self, raw: Tensor, objects: FlatTargets, centres: Tensor, strides: Tensor, factor: Factor | None = None
    ) -> Learnt:
        """Who learns what, and the loss of boxes and classes.

        Args:
            raw: (b, A, 4 + c) float32.
            objects: of all images.
            centres: (A, 2) float32, pixels.
            strides: (A,) float32, pixels.
            factor: see `nas.tasks.detection.assignment.assign`; its boxes are those that `objects.wanted` leaves.
        """
        num_cells = raw.shape[1]
        t, logits = bounded(raw)
        wanted, crowd = objects.wanted, objects.crowd
        boxes, labels = objects.xyxy[wanted], objects.classes[wanted]

        with torch.no_grad():
            predicted = boxes_from_raw_torch(t, centres, strides)
        positives = assign(
            predicted, logits, boxes, labels, objects.image[wanted], centres,
            alpha=self.alpha, beta=self.beta, top_k=self.top_k, factor=factor,
        )  # fmt: skip
        # best IoU of each box, which its best aligned cell is to score
        best = torch.zeros(len(boxes), device=raw.device).scatter_reduce(0, positives.box, positives.iou, "amax")
        soft_target = positives.share * best[positives.box]

        # Cross-entropy with soft targets is softplus(z) - target * z, and most targets are 0.
        costs = softplus(logits)
        if bool(crowd.any()):
            free = self._forgiven(
                costs.shape, objects.xyxy[crowd], objects.classes[crowd], objects.image[crowd], centres
            )
            free.view(-1, free.shape[-1])[positives.cell, labels[positives.box]] = False
            costs = costs.masked_fill(free, 0.0)
        hit_logits = logits.flatten(0, 1)[positives.cell, labels[positives.box]]
        class_loss = costs.sum() - (soft_target * hit_logits).sum()

        at = positives.cell % num_cells
        located = boxes_from_raw_torch(t.flatten(0, 1)[positives.cell], centres[at], strides[at])
        distance = complete_box_iou_loss(located, boxes[positives.box])
        cost = class_loss + self.box_weight * (positives.share * distance).sum()
        return Learnt(positives, cost, positives.share.sum().clamp(min=1.0))

    @staticmethod
    def _forgiven(shape: torch.Size, xyxy: Tensor, classes: Tensor, image: Tensor, centres: Tensor) -> Tensor:
        """(b, A, c) bool: scores that cost nothing, since they are of the class of a crowd region around the cell."""
        free = torch.zeros(shape, dtype=torch.bool, device=xyxy.device)
        region, cell = cells_inside(xyxy, centres)
        free[image[region], cell, classes[region]] = True
        return free

    def decode(self, raw: NDArray[np.float32], resolution: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """See `Head.decode`; boxes are cut at the image's edges.

        Raises:
            ValueError: shapes do not fit.
        """
        cells = cells_of(resolution)
        if raw.ndim != 3 or raw.shape[1] != len(cells):
            raise ValueError(f"raw {raw.shape} does not fit {len(cells)} cells")
        return decode_anchor_free(raw, cells.centres, np.stack([cells.strides] * 2, axis=1), resolution, ())


HEADS: Mapping[str, Head] = {"anchor-free": AnchorFree(), **TORCHVISION_HEADS}
"""Heads by the `head_kind` of networks."""
