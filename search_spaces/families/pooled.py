"""Two dense 3x3 convolutions with max-pooling between them where the block halves its map, as in speed-run networks.

The first convolution looks at the whole map, and the largest of each 2x2 answers goes on (Jordan 2024,
https://arxiv.org/abs/2404.00498). A block that changes neither width nor size is residual.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from search_spaces.blocks import BlockColumns, BlockFamily, BlockSpec, Conv, Elementwise

if TYPE_CHECKING:
    from torch import nn


def _layers(b: BlockColumns) -> Sequence[Conv]:
    h, w = -(-b.height // b.stride), -(-b.width // b.stride)
    return [
        Conv(b.in_channels, b.out_channels, 3, height=b.height, width=b.width),
        Conv(b.out_channels, b.out_channels, 3, height=h, width=w),
    ]


def _elementwise(b: BlockColumns) -> Elementwise:
    halved, same = b.stride != 1, (b.stride == 1) & (b.in_channels == b.out_channels)
    return Elementwise(
        added=b.outputs * same, activated=2 * b.outputs, pooled=b.height * b.width * b.out_channels * halved
    )


def _build(spec: BlockSpec) -> "nn.Module":
    from search_spaces.modules import ConvBn, Residual, sequential

    halves = spec.stride != 1
    first = ConvBn(spec.in_channels, spec.out_channels, 3, activation=spec.activation, pool=spec.stride)
    if halves or spec.in_channels != spec.out_channels:
        return sequential(first, ConvBn(spec.out_channels, spec.out_channels, 3, activation=spec.activation))
    return Residual(sequential(first, ConvBn(spec.out_channels, spec.out_channels, 3)), None, spec.activation)


POOLED = BlockFamily("pooled", frozenset(), (1.0, 1.0, 1.0), _layers, _elementwise, _build)
