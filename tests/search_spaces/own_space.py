"""A space that stands in no table of the product, with a family of blocks that the product does not know."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from search_spaces import Architecture, Decision, OutputSpec, SearchSpace, Signature, StagedSpace, TensorSpec
from search_spaces.blocks import BlockColumns, BlockFamily, BlockSpec, Conv, Elementwise
from search_spaces.signature import Size
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


class Plain(SearchSpace):
    """No stages: chains of RepVGG blocks on images of 32 px."""

    def __init__(self) -> None:
        super().__init__("plain", [Decision("width", (16, 24, 32)), Decision("depth", (1, 2, 4))])

    def signature(self, arch: Architecture, size: Size) -> Signature:
        return Signature(TensorSpec((3, 32, 32)), OutputSpec("logits", size, size))

    def blocks(self, arch: Architecture, size: Size) -> tuple[BlockSpec, ...]:
        width, depth = (int(option) for option in self.parameters(arch).values())

        def block(kind: str, channels: int, out: int, side: int, stride: int = 1) -> BlockSpec:
            return BlockSpec(kind, channels, out, 3, stride, 1.0, 1, False, "relu", side, side)

        body = [block("rep", width, width, 16)] * depth
        return (block("stem", 3, width, 32, 2), *body, block("head", width, size[0], 16))

    def build(self, arch: Architecture, size: Size) -> "nn.Module":
        from torch import nn

        return nn.Sequential(*(self.families[block.kind].build(block) for block in self.blocks(arch, size)))


PLAIN = Plain()
