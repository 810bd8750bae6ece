"""Blocks that a detector has beside those of its backbone: the neck's crossings between levels, and the predictions of
a level.

All of them are linear at their end, as in FPN (Lin et al. 2017, https://arxiv.org/abs/1612.03144): what follows is a
block with an activation of its own. The modules of `merge`, `down` and `predict` take two maps.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from search_spaces.blocks import BlockColumns, BlockFamily, BlockSpec, Conv, Elementwise

if TYPE_CHECKING:
    from torch import nn

BOX_SIDES = 4
"""Channels of a prediction that say where the box ends: left, top, right, bottom."""


def _lateral_layers(b: BlockColumns) -> Sequence[Conv]:
    return [Conv(b.in_channels, b.out_channels, height=b.height, width=b.width)]


def _lateral_elementwise(b: BlockColumns) -> Elementwise:
    return Elementwise()


def _merge_elementwise(b: BlockColumns) -> Elementwise:
    return Elementwise(added=b.outputs, upsampled=b.outputs)


def _build_lateral(spec: BlockSpec) -> "nn.Module":
    from search_spaces.modules import ConvBn

    return ConvBn(spec.in_channels, spec.out_channels)


def _build_merge(spec: BlockSpec) -> "nn.Module":
    from search_spaces.detection_network import Merge

    return Merge(spec.in_channels, spec.out_channels)


def _down_layers(b: BlockColumns) -> Sequence[Conv]:
    h, w = -(-b.height // b.stride), -(-b.width // b.stride)
    return [
        Conv(b.in_channels, b.out_channels, b.kernel, b.stride, b.groups, b.height, b.width),
        Conv(b.out_channels, b.out_channels, height=h, width=w, exists=b.groups > 1),
    ]


def _down_elementwise(b: BlockColumns) -> Elementwise:
    depthwise = b.groups > 1  # has its one activation inside; a dense way down has none
    return Elementwise(added=b.outputs, activated=b.outputs * depthwise)


def _build_down(spec: BlockSpec) -> "nn.Module":
    from search_spaces.detection_network import Down

    return Down(spec.in_channels, spec.kernel, depthwise=spec.groups > 1, activation=spec.activation)


def _predict_layers(b: BlockColumns) -> Sequence[Conv]:
    return [
        Conv(b.in_channels, BOX_SIDES, height=b.height, width=b.width),
        Conv(b.in_channels, b.out_channels - BOX_SIDES, height=b.height, width=b.width),
    ]


def _predict_elementwise(b: BlockColumns) -> Elementwise:
    return Elementwise(arranged=b.outputs)


def _build_predict(spec: BlockSpec) -> "nn.Module":
    from search_spaces.detection_network import Predict

    return Predict(spec.in_channels, spec.out_channels - BOX_SIDES)


_NONE = (1.0, 1.0, 1.0)

LATERAL = BlockFamily("lateral", frozenset(), _NONE, _lateral_layers, _lateral_elementwise, _build_lateral)
"""The coarsest level's 1x1 convolution to the neck's width."""
MERGE = BlockFamily("merge", frozenset(), _NONE, _lateral_layers, _merge_elementwise, _build_merge)
"""A finer level's 1x1 convolution, and the coarser level, twice as large by nearest neighbours, added to it."""
DOWN = BlockFamily("down", frozenset({"kernel"}), _NONE, _down_layers, _down_elementwise, _build_down)
"""A level at half its size (PAN, Liu et al. 2018, https://arxiv.org/abs/1803.01534), added to the coarser one: a dense
convolution of stride 2 where `groups` is 1, else a depthwise one and a 1x1."""
PREDICT = BlockFamily("predict", frozenset(), _NONE, _predict_layers, _predict_elementwise, _build_predict)
"""Boxes from one map and class logits from another, as rows of one table; `out_channels` is 4 + classes."""
