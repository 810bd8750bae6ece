"""Fused-MBConv: expansion and spatial convolution in one dense 3x3 (EfficientNetV2).

Tan and Le 2021 (https://arxiv.org/abs/2104.00298).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from search_spaces.blocks import BlockColumns, BlockFamily, BlockSpec, Conv, round_channels, squeeze_excite

if TYPE_CHECKING:
    from torch import nn


def _layers(b: BlockColumns) -> Sequence[Conv]:
    mid = round_channels(b.in_channels * b.expansion)
    h, w = -(-b.height // b.stride), -(-b.width // b.stride)
    return [
        Conv(b.in_channels, mid, 3, b.stride, height=b.height, width=b.width),
        *squeeze_excite(mid, b.se),
        Conv(mid, b.out_channels, height=h, width=w),
    ]


def _build(spec: BlockSpec) -> "nn.Module":
    from search_spaces.modules import ConvBn, Residual, SqueezeExcite, sequential

    mid = int(round_channels(spec.in_channels * spec.expansion))
    body = sequential(
        ConvBn(spec.in_channels, mid, 3, spec.stride, activation=spec.activation),
        SqueezeExcite(mid) if spec.se else None,
        ConvBn(mid, spec.out_channels),
    )
    return Residual(body) if spec.stride == 1 and spec.in_channels == spec.out_channels else body


FUSED = BlockFamily("fused", frozenset({"expansion", "se"}), (1.0, 2.0, 4.0), _layers, _build)
