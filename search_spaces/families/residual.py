"""ResNet's basic and bottleneck blocks, dense or grouped (He et al. 2015, https://arxiv.org/abs/1512.03385;
Xie et al. 2016, https://arxiv.org/abs/1611.05431; RegNet's squeeze-and-excitation, Radosavovic et al. 2020,
https://arxiv.org/abs/2003.13678)."""

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


def _shortcut(b: BlockColumns) -> Conv:
    needed = (b.stride != 1) | (b.in_channels != b.out_channels)
    return Conv(b.in_channels, b.out_channels, 1, b.stride, height=b.height, width=b.width, exists=needed)


def _basic_layers(b: BlockColumns) -> Sequence[Conv]:
    h, w = -(-b.height // b.stride), -(-b.width // b.stride)
    return [
        Conv(b.in_channels, b.out_channels, 3, b.stride, height=b.height, width=b.width),
        Conv(b.out_channels, b.out_channels, 3, groups=b.groups, height=h, width=w),
        _shortcut(b),
    ]


def _basic_elementwise(b: BlockColumns) -> Elementwise:
    return Elementwise(added=b.outputs, activated=b.outputs)


def _bottleneck_inner(b: BlockColumns) -> Ints:
    return np.asarray(round_channels(b.out_channels * b.expansion))


def _bottleneck_layers(b: BlockColumns) -> Sequence[Conv]:
    mid = _bottleneck_inner(b)
    h, w = -(-b.height // b.stride), -(-b.width // b.stride)
    return [
        Conv(b.in_channels, mid, height=b.height, width=b.width),
        Conv(mid, mid, 3, b.stride, b.groups, b.height, b.width),
        *squeeze_excite(mid, b.se),
        Conv(mid, b.out_channels, height=h, width=w),
        _shortcut(b),
    ]


def _bottleneck_elementwise(b: BlockColumns) -> Elementwise:
    between = _bottleneck_inner(b) * b.out_area
    return Elementwise(added=b.outputs, gated=between * b.se, activated=b.outputs + between)


def _projection(spec: BlockSpec) -> "nn.Module | None":
    from search_spaces.modules import ConvBn

    if spec.stride == 1 and spec.in_channels == spec.out_channels:
        return None
    return ConvBn(spec.in_channels, spec.out_channels, 1, spec.stride)


def _build_basic(spec: BlockSpec) -> "nn.Module":
    from search_spaces.modules import ConvBn, Residual, sequential

    body = sequential(
        ConvBn(spec.in_channels, spec.out_channels, 3, spec.stride, activation=spec.activation),
        ConvBn(spec.out_channels, spec.out_channels, 3, groups=spec.groups),
    )
    return Residual(body, _projection(spec), spec.activation)


def _build_bottleneck(spec: BlockSpec) -> "nn.Module":
    from search_spaces.modules import ConvBn, Residual, SqueezeExcite, sequential

    mid = int(round_channels(spec.out_channels * spec.expansion))
    body = sequential(
        ConvBn(spec.in_channels, mid, activation=spec.activation),
        ConvBn(mid, mid, 3, spec.stride, groups=spec.groups, activation=spec.activation),
        SqueezeExcite(mid) if spec.se else None,
        ConvBn(mid, spec.out_channels),
    )
    return Residual(body, _projection(spec), spec.activation)


BASIC = BlockFamily("basic", frozenset({"groups"}), (1.0, 1.0, 1.0), _basic_layers, _basic_elementwise, _build_basic)
BOTTLENECK = BlockFamily(
    "bottleneck",
    frozenset({"expansion", "se", "groups"}),
    (0.25, 0.5, 1.0),
    _bottleneck_layers,
    _bottleneck_elementwise,
    _build_bottleneck,
    _bottleneck_inner,
)
