"""Analytic costs of the two layered spaces that public latency tables use: FBNet and OFA-MobileNetV3.

The costs are the physical quantities that any device pays for (multiply-adds, bytes moved, weights, kernel launches),
not latencies; what each is worth is learned from the device's own measurements.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from experiments.tabular.features import FeatureGroup, one_hot
from experiments.tabular.rows import Matrix

# FBNet (Wu et al. 2019) with the CIFAR strides of HW-NAS-Bench (Li et al. 2021): 22 layers, input 32 x 32, stem of 16.
FBNET_STAGES = ((1, 16, 1), (4, 24, 1), (4, 32, 2), (4, 64, 2), (4, 112, 1), (4, 184, 2), (1, 352, 1))
"""(layers, channels, stride of the first layer)."""

FBNET_OPS = ((3, 1, 1), (3, 1, 2), (3, 3, 1), (3, 6, 1), (5, 1, 1), (5, 1, 2), (5, 3, 1), (5, 6, 1))
"""(kernel, expansion, groups of the pointwise convolutions); id 8 is skip."""

FBNET_SKIP = len(FBNET_OPS)
_FBNET_LAYERS = sum(layers for layers, _, _ in FBNET_STAGES)
_FBNET_STAGE_OF = np.repeat(np.arange(len(FBNET_STAGES)), [layers for layers, _, _ in FBNET_STAGES])

# kernel 5, expansion, expanded at all, grouped, present
_FBNET_ATTRIBUTES = np.array([[k == 5, e, e > 1, g > 1, 1] for k, e, g in FBNET_OPS] + [[0] * 5], dtype=np.float64)


def fbnet_cost_table() -> NDArray[np.float64]:
    """(22, 9, 8) per layer and operation: pointwise MACs, depthwise MACs, activations, weights, blocks, residual sums,
    channel shuffles, activation functions. A skip that changes the shape is a strided 1x1 convolution."""
    rows = np.zeros((_FBNET_LAYERS, FBNET_SKIP + 1, 8))
    channels, size, layer = 16, 32, 0
    for n_layers, out, first_stride in FBNET_STAGES:
        for k in range(n_layers):
            stride = first_stride if k == 0 else 1
            out_size = size // stride
            area, out_area = size * size, out_size * out_size
            keeps_shape = stride == 1 and channels == out
            for op, (kernel, expansion, groups) in enumerate(FBNET_OPS):
                mid = channels * expansion
                rows[layer, op] = (
                    (area * channels * mid + out_area * mid * out) / groups,
                    out_area * mid * kernel**2,
                    area * (channels + 2 * mid) + out_area * (2 * mid + out),
                    (channels * mid + mid * out) / groups + mid * kernel**2,
                    1,
                    keeps_shape,
                    groups > 1,
                    area * mid + out_area * mid,
                )
            if not keeps_shape:
                rows[layer, FBNET_SKIP, :5] = (
                    out_area * channels * out,
                    0,
                    area * channels + out_area * out,
                    channels * out,
                    0.3,  # one convolution where a block launches three
                )
            channels, size, layer = out, out_size, layer + 1
    return rows


_FBNET_COSTS = fbnet_cost_table()


def fbnet_groups() -> tuple[FeatureGroup, ...]:
    """Physical costs in total, attributes of the operations in total and per stage, a cost per layer and operation."""
    layers = np.arange(_FBNET_LAYERS)

    def totals(x: Matrix) -> Matrix:
        return np.asarray(_FBNET_COSTS[layers[None, :], _ops(x)].sum(1))

    def attributes(x: Matrix) -> Matrix:
        return np.asarray(_FBNET_ATTRIBUTES[_ops(x)].sum(1))

    def stage_attributes(x: Matrix) -> Matrix:
        per_layer = _FBNET_ATTRIBUTES[_ops(x)]
        return np.concatenate([per_layer[:, s == _FBNET_STAGE_OF].sum(1) for s in range(len(FBNET_STAGES))], axis=1)

    return (
        FeatureGroup("costs", totals, 0.03, standardise=True, costs=True),
        FeatureGroup("attributes", attributes, 0.003, standardise=True),
        FeatureGroup("attributes by stage", stage_attributes, 3e-4, standardise=True),
        FeatureGroup("ops by layer", lambda x: one_hot(_ops(x), FBNET_SKIP + 1), 3e-4),
    )


def is_fbnet_table(choices: Matrix) -> bool:
    """22 decisions with the nine operation ids 0-8."""
    return choices.shape[1] == _FBNET_LAYERS and choices.max() == FBNET_SKIP and bool(np.isin(choices, range(9)).all())


# OFA-MobileNetV3 (Cai et al. 2020), width 1.0: five units of up to four layers.
OFA_UNITS = (
    (24, 2, False, False),
    (40, 2, True, False),
    (80, 2, False, True),
    (112, 1, True, True),
    (160, 2, True, True),
)
"""(channels, stride, squeeze-excitation, hard swish)."""

OFA_MAX_DEPTH = 4
OFA_SLOTS = len(OFA_UNITS) * OFA_MAX_DEPTH
_STEM_CHANNELS = 16


def ofa_layer_costs(choices: Matrix) -> NDArray[np.float64]:
    """(n, 45 or 46) rows of kernel x 20, expansion x 20, depth x 5 and the resolution to (n, 20, 8) costs.

    The costs: pointwise MACs, depthwise MACs, activations, weights, pointwise activations, hard swishes, blocks,
    squeeze-excitations; zero for a slot beyond the unit's depth.
    """
    kernel, expansion = choices[:, :OFA_SLOTS], choices[:, OFA_SLOTS : 2 * OFA_SLOTS]
    depth = choices[:, 2 * OFA_SLOTS : 2 * OFA_SLOTS + len(OFA_UNITS)]
    size = np.ceil(choices[:, -1] / 2)
    channels = float(_STEM_CHANNELS)
    costs = np.zeros((len(choices), OFA_SLOTS, 8))
    for unit, (out, unit_stride, has_se, has_swish) in enumerate(OFA_UNITS):
        for k in range(OFA_MAX_DEPTH):
            slot = unit * OFA_MAX_DEPTH + k
            out_size = np.ceil(size / (unit_stride if k == 0 else 1))
            area, out_area = size**2, out_size**2
            mid, window = channels * expansion[:, slot], kernel[:, slot] ** 2
            live = depth[:, unit] > k
            columns = (
                area * channels * mid + out_area * mid * out,
                out_area * mid * window,
                area * (channels + 2 * mid) + out_area * (2 * mid + out),
                channels * mid + mid * out + mid * window + has_se * mid**2 / 2,
                area * mid,
                has_swish * out_area * mid,
                np.ones(len(choices)),
                np.full(len(choices), float(has_se)),
            )
            costs[:, slot] = np.stack(columns, axis=1) * live[:, None]
            channels, size = float(out), out_size
    return costs


def ofa_groups() -> tuple[FeatureGroup, ...]:
    """Work that grows with the resolution, launches that do not, a smooth curve over the resolution (tiles, caches)."""

    def work(x: Matrix) -> Matrix:
        return np.column_stack([ofa_layer_costs(x)[:, :, :6].sum(1), x[:, -1] ** 2])

    def launches(x: Matrix) -> Matrix:
        late = x[:, 2 * OFA_SLOTS + 2 : 2 * OFA_SLOTS + len(OFA_UNITS)].sum(1)
        return np.column_stack([ofa_layer_costs(x)[:, :, 6:].sum(1), late])

    return (
        FeatureGroup("work", work, 0.05, standardise=True, costs=True),
        FeatureGroup("launches", launches, 0.03, standardise=True, costs=True),
        FeatureGroup("resolution", lambda x: np.log(x[:, -1:]), 3e-4, "rbf", standardise=True),
        FeatureGroup("choices by slot", _live_choices, 3e-4),
    )


def is_ofa_table(choices: Matrix) -> bool:
    """46 decisions: kernels 3/5/7, expansions 3/4/6, depths 2-4, a resolution."""
    if choices.shape[1] != 2 * OFA_SLOTS + len(OFA_UNITS) + 1:
        return False
    kernel, expansion, depth = np.split(choices[:, :-1], [OFA_SLOTS, 2 * OFA_SLOTS], axis=1)
    legal = np.isin(kernel, (3, 5, 7)).all() and np.isin(expansion, (3, 4, 6)).all() and np.isin(depth, (2, 3, 4)).all()
    return bool(legal and (choices[:, -1] >= 32).all())


def _live_choices(choices: Matrix) -> Matrix:
    """(n, 20 * 7): slot live, its kernel one-hot, its expansion one-hot; zeros beyond the depth."""
    depth = choices[:, 2 * OFA_SLOTS : 2 * OFA_SLOTS + len(OFA_UNITS)]
    live = (np.arange(OFA_MAX_DEPTH)[None, None, :] < depth[:, :, None]).reshape(len(choices), OFA_SLOTS)
    kernel = (choices[:, :OFA_SLOTS, None] == np.array([3, 5, 7])) & live[:, :, None]
    expansion = (choices[:, OFA_SLOTS : 2 * OFA_SLOTS, None] == np.array([3, 4, 6])) & live[:, :, None]
    parts = [live, kernel.reshape(len(choices), -1), expansion.reshape(len(choices), -1)]
    return np.concatenate(parts, axis=1).astype(np.float64)


def _ops(choices: Matrix) -> NDArray[np.int64]:
    return choices.astype(np.int64)
