"""The two ends of a network: the stem convolution and the classification head."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from search_spaces.blocks import BlockColumns, BlockFamily, BlockSpec, Conv, Elementwise

if TYPE_CHECKING:
    from torch import nn


def _stem_layers(b: BlockColumns) -> Sequence[Conv]:
    return [Conv(b.in_channels, b.out_channels, 3, b.stride, height=b.height, width=b.width)]


def _stem_elementwise(b: BlockColumns) -> Elementwise:
    return Elementwise(activated=b.outputs)


def _build_stem(spec: BlockSpec) -> "nn.Module":
    from search_spaces.modules import ConvBn

    return ConvBn(spec.in_channels, spec.out_channels, 3, spec.stride, activation=spec.activation)


def _head_layers(b: BlockColumns) -> Sequence[Conv]:
    return [Conv(b.in_channels, b.out_channels)]


def _head_elementwise(b: BlockColumns) -> Elementwise:
    return Elementwise(pooled=b.height * b.width * b.in_channels)


def _build_head(spec: BlockSpec) -> "nn.Module":
    from search_spaces.modules import PooledLinear

    return PooledLinear(spec.in_channels, spec.out_channels)


STEM = BlockFamily("stem", frozenset(), (1.0, 1.0, 1.0), _stem_layers, _stem_elementwise, _build_stem)
HEAD = BlockFamily("head", frozenset(), (1.0, 1.0, 1.0), _head_layers, _head_elementwise, _build_head)
