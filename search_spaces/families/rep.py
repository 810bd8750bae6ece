"""RepVGG: three branches while training, one 3x3 convolution when deployed.

Ding et al. 2021 (https://arxiv.org/abs/2101.03697).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from search_spaces.blocks import BlockColumns, BlockFamily, BlockSpec, Conv, Elementwise

if TYPE_CHECKING:
    from torch import nn


def _layers(b: BlockColumns) -> Sequence[Conv]:
    return [Conv(b.in_channels, b.out_channels, 3, b.stride, height=b.height, width=b.width)]


def _elementwise(b: BlockColumns) -> Elementwise:
    return Elementwise(activated=b.outputs)


def _build(spec: BlockSpec) -> "nn.Module":
    from search_spaces.modules import RepConv

    return RepConv(spec.in_channels, spec.out_channels, spec.stride, spec.activation)


REP = BlockFamily("rep", frozenset(), (1.0, 1.0, 1.0), _layers, _elementwise, _build)
