"""A space that stands in no table of the product, with a family of blocks that the product does not know."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from search_spaces import StagedSpace
from search_spaces.blocks import BlockColumns, BlockFamily, BlockSpec, Conv, Elementwise
from search_spaces.staged import SpaceTable, StageTable

if TYPE_CHECKING:
    from torch import nn


def _layers(b: BlockColumns) -> Sequence[Conv]:
    h, w = -(-b.height // b.stride), -(-b.width // b.stride)
    return [
        Conv(b.in_channels, b.in_channels, b.kernel, b.stride, b.in_channels, b.height, b.width),
        Conv(b.in_channels, b.out_channels, height=h, width=w),
    ]


def _elementwise(b: BlockColumns) -> Elementwise:
    return Elementwise(activated=b.out_area * b.in_channels + b.outputs)


def _build(spec: BlockSpec) -> "nn.Module":
    from search_spaces.modules import ConvBn, sequential

    c, act = spec.in_channels, spec.activation
    depthwise = ConvBn(c, c, spec.kernel, spec.stride, groups=c, activation=act)
    return sequential(depthwise, ConvBn(c, spec.out_channels, activation=act))


SEPARABLE = BlockFamily("separable", frozenset({"kernel"}), (1.0, 1.0, 1.0), _layers, _elementwise, _build)

TABLE = SpaceTable(
    name="own",
    families=("basic", "separable"),
    stem_widths=(8, 16),
    stages=tuple(StageTable((16 * at, 24 * at), (1, 2)) for at in (1, 2, 3)),
    resolutions=(32, 64),
    anchors=({"stage1.family": "separable"},),
)

SPACE = StagedSpace(TABLE, families=(SEPARABLE,))
