"""Physical quantities of a network that explain its latency, summed over its blocks.

Every column is additive over layers and non-negative, so a non-negative linear model over them is a table of layer
costs. Nothing here depends on the space, and families of blocks say themselves what they consist of and what they do
between their layers: one device profile serves all spaces.
"""

import numpy as np
from numpy.typing import NDArray

from search_spaces.blocks import ACTIVATIONS, Conv
from search_spaces.slots import BlockSlots

CLASSES = ("pointwise", "spatial", "grouped", "depthwise", "vector")
"""Kinds of layers that hardware treats differently; `vector` is a linear layer on a 1x1 map."""

_PER_CLASS = ("calls", "macs", "tile_macs", "row_macs", "moved", "weights")
_ELEMENTWISE = ("add_calls", "added", "gated", "hardswish", "pooled", "upsampled", "arranged")

_HARDSWISH = ACTIVATIONS.index("hardswish")

COLUMNS = tuple(f"{c}.{name}" for c in CLASSES for name in _PER_CLASS) + _ELEMENTWISE
"""Names of the columns of `block_columns`."""

TILE = 64
"""Channels of a matrix tile row in int8 on AMX; narrower layers waste the rest (Intel SDM, chapter 18)."""
LANES = 16
"""fp32 values of one AVX-512 register."""


def block_columns(slots: BlockSlots) -> NDArray[np.float64]:
    """Physical quantities (n, slots, len(COLUMNS)) of each block, occurring once.

    Per class of layers: number of calls, MACs, MACs with channels padded to `TILE`, MACs with channels padded to
    `LANES` and map rows padded to 16 pixels, elements read and written, weights. Then the element-wise work that lies
    between the layers: additions, gates of squeeze-and-excitation, hard-swish, pooling, enlarging a map, and putting
    predictions into rows.
    """
    shape, per_class = slots.kind.shape, len(_PER_CLASS)
    block = np.arange(slots.kind.size).reshape(shape)
    sums = np.zeros((per_class, slots.kind.size * len(CLASSES)))
    for mask, layer in slots.layers():
        blocks = block[mask]
        cls, values = _layer_columns(layer, len(blocks))
        at = blocks * len(CLASSES) + cls
        for k, value in enumerate(values):
            sums[k] += np.bincount(at, weights=value, minlength=sums.shape[1])
    per_layer = sums.reshape(per_class, *shape, len(CLASSES)).transpose(1, 2, 3, 0).reshape(*shape, -1)
    return np.concatenate([per_layer, _elementwise(slots)], axis=-1)


def block_geometry(slots: BlockSlots) -> NDArray[np.float64]:
    """Sizes (n, slots, 9) of each block: logarithms to base 2 of channels in, out and inside, kernel and input height;
    stride, and whether it is grouped, has squeeze-and-excitation, or hard-swish."""
    c = slots.columns
    sizes = [np.log2(np.maximum(1, v)) for v in (c.in_channels, c.out_channels, _inner(slots), c.kernel, c.height)]
    flags = [c.stride, c.groups > 1, c.se, slots.activation]
    return np.stack([np.asarray(v, dtype=np.float64) for v in (*sizes, *flags)], axis=-1)


def _inner(slots: BlockSlots) -> NDArray[np.int64]:
    """Channels between a block's first and last layer, (n, slots)."""
    found = np.zeros(slots.kind.shape, dtype=np.int64)
    for family, mask, blocks in slots.by_family():
        found[mask] = family.inner(blocks)
    return found


def _layer_columns(layer: Conv, n: int) -> tuple[NDArray[np.int64], list[NDArray[np.float64]]]:
    """Class (n,) and the six per-class quantities, each (n,), of one layer in n blocks."""
    fields = (
        layer.in_channels,
        layer.out_channels,
        layer.kernel,
        layer.taps,
        layer.stride,
        layer.groups,
        layer.height,
        layer.width,
    )
    cin, cout, kernel, taps, stride, groups, height, width = (
        np.broadcast_to(np.asarray(field, dtype=np.float64), n) for field in fields
    )
    exists = np.broadcast_to(np.asarray(layer.exists, dtype=np.float64), n)
    depthwise, grouped = (groups == cin) & (groups > 1), groups > 1
    vector = (height == 1) & (width == 1)
    cls = np.select([vector, depthwise, grouped, kernel > 1], [4, 3, 2, 1], default=0)
    rows, columns = np.ceil(height / stride), np.ceil(width / stride)
    per_group_in, per_group_out = cin / groups, cout / groups

    def padded(step: int) -> NDArray[np.float64]:
        macs = taps * np.ceil(per_group_in / step) * np.ceil(per_group_out / step) * step**2 * groups
        return np.where(depthwise, taps * np.ceil(cin / step) * step, macs) * exists

    macs = np.broadcast_to(layer.macs, n).astype(np.float64)
    return cls, [
        exists,
        macs,
        padded(TILE) * (rows * columns),
        padded(LANES) * np.ceil(columns / 16) * 16 * rows,
        np.broadcast_to(layer.activations, n).astype(np.float64),
        np.broadcast_to(layer.params, n).astype(np.float64),
    ]


def _elementwise(slots: BlockSlots) -> NDArray[np.float64]:
    """The quantities of `_ELEMENTWISE` for each block, (n, slots, quantities)."""
    found = np.zeros((*slots.kind.shape, len(_ELEMENTWISE)))
    for family, mask, blocks in slots.by_family():
        work = family.elementwise(blocks)
        hardswish = slots.activation[mask] == _HARDSWISH
        quantities = (
            np.asarray(work.added) > 0, work.added, work.gated, work.activated * hardswish, work.pooled, work.upsampled,
            work.arranged,
        )  # fmt: skip
        found[mask] = np.stack([np.broadcast_to(q, len(hardswish)) for q in quantities], axis=-1)
    return found
