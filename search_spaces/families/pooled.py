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

    inputs, outputs, act = spec.in_channels, spec.out_channels, spec.activation
    if spec.stride == 1 and inputs == outputs:
        return Residual(sequential(ConvBn(inputs, outputs, 3, activation=act), ConvBn(outputs, outputs, 3)), None, act)
    return sequential(
        ConvBn(inputs, outputs, 3, activation=act, pool=spec.stride, copies=True),
        ConvBn(outputs, outputs, 3, activation=act, copies=True),
    )


POOLED = BlockFamily("pooled", frozenset(), (1.0, 1.0, 1.0), _layers, _elementwise, _build)
