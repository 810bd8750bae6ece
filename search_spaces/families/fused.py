"""Fused-MBConv: expansion and spatial convolution in one dense 3x3 (EfficientNetV2).

Tan and Le 2021 (https://arxiv.org/abs/2104.00298).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from search_spaces.blocks import (
    BlockColumns,
    BlockFamily,
    BlockSpec,
    Conv,
    Elementwise,
    Ints,
    round_channels,
    squeeze_excite,
)

if TYPE_CHECKING:
    from torch import nn


def _inner(b: BlockColumns) -> Ints:
    return np.asarray(round_channels(b.in_channels * b.expansion))


def _layers(b: BlockColumns) -> Sequence[Conv]:
    mid = _inner(b)
    h, w = -(-b.height // b.stride), -(-b.width // b.stride)
    return [
        Conv(b.in_channels, mid, 3, b.stride, height=b.height, width=b.width),
        *squeeze_excite(mid, b.se),
        Conv(mid, b.out_channels, height=h, width=w),
    ]


def _elementwise(b: BlockColumns) -> Elementwise:
    between = _inner(b) * b.out_area
    identity = (b.stride == 1) & (b.in_channels == b.out_channels)
    return Elementwise(added=b.outputs * identity, gated=between * b.se, activated=b.outputs + between)


def _build(spec: BlockSpec) -> "nn.Module":
    from search_spaces.modules import ConvBn, Residual, SqueezeExcite, sequential

    mid = int(round_channels(spec.in_channels * spec.expansion))
    body = sequential(
        ConvBn(spec.in_channels, mid, 3, spec.stride, activation=spec.activation),
        SqueezeExcite(mid) if spec.se else None,
        ConvBn(mid, spec.out_channels),
    )
    return Residual(body) if spec.stride == 1 and spec.in_channels == spec.out_channels else body


FUSED = BlockFamily("fused", frozenset({"expansion", "se"}), (1.0, 2.0, 4.0), _layers, _elementwise, _build, _inner)
