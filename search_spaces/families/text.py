"""The blocks of networks on token ids. Between them lie `(b, tokens, channels)`; a block's `height` counts its tokens.

- `embed`: ids -> rows of a table (`in_channels` entries) plus a vector for each place.
- `attention`: multi-head self-attention and a feed-forward part, each behind a layer norm (Vaswani et al. 2017,
  https://arxiv.org/abs/1706.03762; norms first as in Xiong et al. 2020, https://arxiv.org/abs/2002.04745). `groups`
  counts its heads, `expansion` is the ratio of the feed-forward part.
- `conv1d`: an inverted bottleneck with a depthwise convolution along the text.
- `dense1d`: a convolution along the text (Kim 2014, https://arxiv.org/abs/1408.5882).
- `project`: a linear layer on each token. `shrink`: half as many tokens (Dai et al. 2020, Funnel-Transformer,
  https://arxiv.org/abs/2006.03236); its `kernel` is a place in `SHRINKS`, from 1.
- `texthead`: pooling over the tokens of the text, and a linear layer; its `kernel` is a place in `POOLS`, from 1.
- `wide`: a score of each class for each token, with `se` also for each pair of neighbours, summed (Cheng et al. 2016,
  https://arxiv.org/abs/1606.07792).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from search_spaces.blocks import BlockColumns, BlockFamily, BlockSpec, Conv, Elementwise, Ints

if TYPE_CHECKING:
    from torch import nn

SHRINKS = ("mean", "max")
"""Ways to make one token of two."""
POOLS = ("mean", "max", "both")
"""Ways to make one vector of a text."""
PAIRS = 2**16
"""Entries of the table of pairs; which one a pair has is computed in the network."""

_ONE = (1.0, 1.0, 1.0)
RATIOS = (1.0, 2.0, 4.0)
"""Channels inside a block by those outside."""


@dataclass(frozen=True, slots=True)
class RowConv(Conv):
    """A convolution along the text: `kernel` x 1."""

    @property
    def taps(self) -> Any:
        return self.kernel


@dataclass(frozen=True, slots=True)
class Product(Conv):
    """A product of two maps: a layer that has no weights of its own."""

    @property
    def params(self) -> Ints:
        return np.zeros_like(self.macs)


@dataclass(frozen=True, slots=True)
class Table(Conv):
    """Rows of a table of `in_channels` entries: no arithmetic. `exists` may be a number of tables."""

    @property
    def macs(self) -> Ints:
        return np.zeros_like(self.params)

    @property
    def params(self) -> Ints:
        return np.asarray(self.in_channels * self.out_channels * self.exists, dtype=np.int64)

    @property
    def activations(self) -> Ints:
        """Elements read plus elements written."""
        return np.asarray(2 * self.width * self.out_channels * self.exists, dtype=np.int64)


def _tokens(channels_in: Any, channels_out: Any, b: BlockColumns) -> Conv:
    """A linear layer on each token."""
    return Conv(channels_in, channels_out, width=b.height)


def _norm(b: BlockColumns) -> Conv:
    """Scale and shift of a layer norm."""
    return Conv(b.in_channels, b.in_channels, groups=b.in_channels, width=b.height)


def _inner(b: BlockColumns) -> Ints:
    return np.asarray(b.in_channels * b.expansion, dtype=np.int64)


def _embed_layers(b: BlockColumns) -> Sequence[Conv]:
    return [Table(b.in_channels + b.height, b.out_channels, width=b.height)]


def _embed_elementwise(b: BlockColumns) -> Elementwise:
    return Elementwise(added=b.height * b.out_channels, arranged=b.height * b.out_channels)


def _attention_layers(b: BlockColumns) -> Sequence[Conv]:
    width, inner = b.in_channels, _inner(b)
    # For each token as many products as there are tokens, in each head: (tokens, width / heads) x (.., tokens).
    product = Product(width, b.height * b.groups, groups=b.groups, width=b.height)
    return [
        _norm(b), _tokens(width, 3 * width, b), product, product, _tokens(width, width, b),
        _norm(b), _tokens(width, inner, b), _tokens(inner, width, b),
    ]  # fmt: skip


def _attention_elementwise(b: BlockColumns) -> Elementwise:
    elements, scores = b.height * b.in_channels, b.height * b.height * b.groups
    return Elementwise(
        added=2 * elements + scores, gated=2 * elements, activated=b.height * _inner(b),
        pooled=2 * elements + scores, arranged=4 * elements,
    )  # fmt: skip


def _conv_layers(b: BlockColumns) -> Sequence[Conv]:
    inner = _inner(b)
    return [
        _tokens(b.in_channels, inner, b),
        RowConv(inner, inner, b.kernel, groups=inner, width=b.height),
        _tokens(inner, b.out_channels, b),
    ]


def _conv_elementwise(b: BlockColumns) -> Elementwise:
    elements = b.height * b.in_channels
    return Elementwise(added=elements, activated=2 * b.height * _inner(b), arranged=2 * elements)


def _dense_layers(b: BlockColumns) -> Sequence[Conv]:
    return [RowConv(b.in_channels, b.out_channels, b.kernel, width=b.height)]


def _dense_elementwise(b: BlockColumns) -> Elementwise:
    elements = b.height * b.in_channels
    return Elementwise(added=elements, activated=elements, arranged=2 * elements)


def _project_layers(b: BlockColumns) -> Sequence[Conv]:
    return [_tokens(b.in_channels, b.out_channels, b)]


def _no_layers(b: BlockColumns) -> Sequence[Conv]:
    return []


def _nothing(b: BlockColumns) -> Elementwise:
    return Elementwise()


def _shrink_elementwise(b: BlockColumns) -> Elementwise:
    return Elementwise(pooled=b.height * b.in_channels)


def _pools(b: BlockColumns) -> Ints:
    """Vectors that a text is pooled to."""
    return np.asarray(np.where(b.kernel == 1 + POOLS.index("both"), 2, 1), dtype=np.int64)


def _head_layers(b: BlockColumns) -> Sequence[Conv]:
    return [Conv(_pools(b) * b.in_channels, b.out_channels)]


def _head_elementwise(b: BlockColumns) -> Elementwise:
    return Elementwise(pooled=_pools(b) * b.height * b.in_channels, gated=b.height * b.in_channels)


def _wide_layers(b: BlockColumns) -> Sequence[Conv]:
    return [
        Table(b.in_channels, b.out_channels + 1, width=b.height),
        Table(PAIRS, b.out_channels + 1, width=b.height, exists=b.se),
    ]


def _wide_elementwise(b: BlockColumns) -> Elementwise:
    tables = 1 + b.se.astype(np.int64)
    return Elementwise(added=b.out_channels, pooled=tables * b.height * b.out_channels, arranged=b.se * b.height)


def _build_embed(spec: BlockSpec) -> "nn.Module":
    from search_spaces.text_modules import Embedded

    return Embedded(spec.in_channels, spec.out_channels, spec.height)


def _build_attention(spec: BlockSpec) -> "nn.Module":
    from search_spaces.text_modules import AttentionBlock

    return AttentionBlock(spec.in_channels, spec.groups, spec.expansion, spec.activation, spec.height)


def _build_conv(spec: BlockSpec) -> "nn.Module":
    from search_spaces.text_modules import ConvBlock

    return ConvBlock(spec.in_channels, spec.kernel, spec.expansion, spec.activation)


def _build_dense(spec: BlockSpec) -> "nn.Module":
    from search_spaces.text_modules import DenseBlock

    return DenseBlock(spec.in_channels, spec.kernel, spec.activation)


def _build_project(spec: BlockSpec) -> "nn.Module":
    from torch import nn

    return nn.Linear(spec.in_channels, spec.out_channels)


def _build_shrink(spec: BlockSpec) -> "nn.Module":
    from search_spaces.text_modules import Shrink

    return Shrink(SHRINKS[spec.kernel - 1], spec.height, spec.in_channels)


def _build_head(spec: BlockSpec) -> "nn.Module":
    from search_spaces.text_modules import TextHead

    return TextHead(spec.in_channels, spec.out_channels, POOLS[spec.kernel - 1])


def _build_wide(spec: BlockSpec) -> "nn.Module":
    from search_spaces.text_modules import Wide

    return Wide(spec.in_channels, spec.out_channels, pairs=spec.se)


_NONE = frozenset[str]()
MIXING = ("attention", "conv1d", "dense1d")
"""The families that a stage may be of."""
TEXT_FAMILIES: Mapping[str, BlockFamily] = MappingProxyType(
    {
        family.name: family
        for family in (
            BlockFamily("embed", _NONE, _ONE, _embed_layers, _embed_elementwise, _build_embed),
            BlockFamily(
                "attention", frozenset({"expansion", "heads"}), RATIOS, _attention_layers, _attention_elementwise,
                _build_attention, _inner,
            ),
            BlockFamily(
                "conv1d", frozenset({"kernel", "expansion"}), RATIOS, _conv_layers, _conv_elementwise, _build_conv,
                _inner,
            ),
            BlockFamily("dense1d", frozenset({"kernel"}), _ONE, _dense_layers, _dense_elementwise, _build_dense),
            BlockFamily("project", _NONE, _ONE, _project_layers, _nothing, _build_project),
            BlockFamily("shrink", _NONE, _ONE, _no_layers, _shrink_elementwise, _build_shrink),
            BlockFamily("texthead", _NONE, _ONE, _head_layers, _head_elementwise, _build_head),
            BlockFamily("wide", _NONE, _ONE, _wide_layers, _wide_elementwise, _build_wide),
        )
    }
)  # fmt: skip
"""All that networks on token ids consist of, by name."""
