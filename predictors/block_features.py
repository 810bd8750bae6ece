"""Physical quantities of a network that explain its latency, summed over its blocks.

Every column is additive over layers and non-negative, so a non-negative linear model over them is a table of layer
costs. Nothing here depends on the space: one device profile serves all staged spaces.
"""

import numpy as np
from numpy.typing import NDArray

from search_spaces.blocks import Conv, round_channels
from search_spaces.families import FAMILIES
from search_spaces.slots import KINDS, BlockSlots

CLASSES = ("pointwise", "spatial", "grouped", "depthwise", "vector")
"""Kinds of layers that hardware treats differently; `vector` is a linear layer on a 1x1 map."""

_PER_CLASS = ("calls", "macs", "tile_macs", "row_macs", "moved", "weights")
_ELEMENTWISE = ("add_calls", "added", "gated", "hardswish", "pooled", "upsampled", "arranged")

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
    return np.concatenate([per_layer, np.stack(_elementwise(slots), axis=-1)], axis=-1)


def block_geometry(slots: BlockSlots) -> NDArray[np.float64]:
    """Sizes (n, slots, 9) of each block: logarithms to base 2 of channels in, out and inside, kernel and input height;
    stride, and whether it is grouped, has squeeze-and-excitation, or hard-swish."""
    c = slots.columns
    sizes = [np.log2(np.maximum(1, v)) for v in (c.in_channels, c.out_channels, _inner(slots), c.kernel, c.height)]
    flags = [c.stride, c.groups > 1, c.se, slots.activation]
    return np.stack([np.asarray(v, dtype=np.float64) for v in (*sizes, *flags)], axis=-1)


def _inner(slots: BlockSlots) -> NDArray[np.int64]:
    """Channels between a block's first and last layer, (n, slots)."""
    c = slots.columns
    inverted = np.isin(slots.kind, [KINDS.index("mbconv"), KINDS.index("fused")])
    narrowed = slots.kind == KINDS.index("bottleneck")
    return np.select(
        [inverted, narrowed],
        [round_channels(c.in_channels * c.expansion), round_channels(c.out_channels * c.expansion)],
        default=c.out_channels,
    )


def _layer_columns(layer: Conv, n: int) -> tuple[NDArray[np.int64], list[NDArray[np.float64]]]:
    """Class (n,) and the six per-class quantities, each (n,), of one layer in n blocks."""
    fields = (layer.in_channels, layer.out_channels, layer.kernel, layer.stride, layer.groups, layer.height)
    cin, cout, kernel, stride, groups, height = (np.broadcast_to(np.asarray(f, dtype=np.float64), n) for f in fields)
    exists = np.broadcast_to(np.asarray(layer.exists, dtype=np.float64), n)
    depthwise, grouped = (groups == cin) & (groups > 1), groups > 1
    vector = height == 1
    cls = np.select([vector, depthwise, grouped, kernel > 1], [4, 3, 2, 1], default=0)
    out = np.ceil(height / stride)
    per_group_in, per_group_out = cin / groups, cout / groups

    def padded(step: int) -> NDArray[np.float64]:
        macs = kernel**2 * np.ceil(per_group_in / step) * np.ceil(per_group_out / step) * step**2 * groups
        return np.where(depthwise, kernel**2 * np.ceil(cin / step) * step, macs) * exists

    macs = np.broadcast_to(layer.macs, n).astype(np.float64)
    return cls, [
        exists,
        macs,
        padded(TILE) * out**2,
        padded(LANES) * np.ceil(out / 16) * 16 * out,
        np.broadcast_to(layer.activations, n).astype(np.float64),
        np.broadcast_to(layer.params, n).astype(np.float64),
    ]


def _elementwise(slots: BlockSlots) -> list[NDArray[np.float64]]:
    """The quantities of `_ELEMENTWISE` for each block, (n, slots)."""
    c = slots.columns
    area = (-(-c.height // c.stride)) ** 2
    out = area * c.out_channels
    kinds = {name: slots.kind == KINDS.index(name) for name in KINDS}
    identity = (c.stride == 1) & (c.in_channels == c.out_channels)
    added = kinds["basic"] | kinds["bottleneck"] | ((kinds["mbconv"] | kinds["fused"]) & identity)
    added |= kinds["merge"] | kinds["down"]
    inner = np.where(kinds["mbconv"] | kinds["fused"] | kinds["bottleneck"], _inner(slots), 0)
    # A depthwise way down has its one activation inside, a dense one has none.
    activated = np.where(kinds["down"], out * (c.groups > 1), out + inner * area)
    uses_act = np.array([FAMILIES[k].activation_choice for k in KINDS])[slots.kind]
    return [
        added.astype(np.float64),
        (out * added).astype(np.float64),
        (inner * area * c.se).astype(np.float64),
        (activated * (slots.activation == 1) * uses_act).astype(np.float64),
        (c.height**2 * c.in_channels * kinds["head"]).astype(np.float64),
        (out * kinds["merge"]).astype(np.float64),
        (out * kinds["predict"]).astype(np.float64),
    ]
