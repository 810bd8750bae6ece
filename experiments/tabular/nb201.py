"""The cell space of NAS-Bench-201 (Dong & Yang 2020, https://arxiv.org/abs/2001.00326) as a network space.

A cell has four nodes; node 0 is its input, node 3 its output, and each of the six edges carries one of five
operations. The macro skeleton is fixed: stem, three stages of five equal cells with 16, 32 and 64 channels, a residual
block of stride 2 between stages, and a linear head. Choices are the operation ids that the public tables use, edges
in their order, so a row of a table is an architecture.
"""

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from search_spaces.architecture import Architecture, Decision
from search_spaces.blocks import BlockSpec
from search_spaces.errors import UserError
from search_spaces.signature import LOGITS, OutputSpec, Signature, Size, TensorSpec, class_count
from search_spaces.space import Choices, SearchSpace

if TYPE_CHECKING:
    from torch import nn

EDGES = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))
"""(from node, to node), in the order of the choices."""

OPERATIONS = ("none", "skip", "conv1x1", "conv3x3", "avgpool3x3")
"""Operation of each id. Convolutions are ReLU, convolution, batch norm."""

NONE, SKIP, CONV1, CONV3, POOL = range(len(OPERATIONS))

CHANNELS = (16, 32, 64)
"""Width of each stage."""

CELLS_PER_STAGE = 5
RESOLUTION = 32


class Nb201Space(SearchSpace):
    """All 15,625 cells, at 32 px. It can be built, trained, scored and sampled; it is no chain of blocks.

    Cells are kept as written: an edge that reaches nothing still has its weights and costs time, and the tables tell
    such cells apart. `experiments.tabular.cells.prune` removes such edges where only the function counts.
    """

    def __init__(self, allowed: Sequence[Sequence[int]] | None = None) -> None:
        super().__init__("nb201", [Decision(f"edge{a}{b}", OPERATIONS) for a, b in EDGES], allowed)

    def canonical(self, choices: Choices) -> Choices:
        return choices.copy()

    @property
    def size(self) -> int:
        return prod(len(a) for a in self.allowed)

    def costs(self, choices: Choices, size: Size = (10,)) -> dict[str, NDArray[np.float64]]:
        """`macs` and `params` (n,) of the networks as built, batch norms and edges that reach nothing included."""
        num_classes, channels = class_count(size), np.array(CHANNELS, dtype=np.float64)
        pixels = (RESOLUTION / 2.0 ** np.arange(len(CHANNELS))) ** 2
        convs = (choices == CONV1).sum(1) + (choices == CONV3).sum(1)
        taps = (choices == CONV1).sum(1) + 9.0 * (choices == CONV3).sum(1)
        wide, narrow = channels[1:], channels[:-1]
        reductions = 9 * narrow * wide + 9 * wide**2 + narrow * wide
        ends_macs = 27 * channels[0] * pixels[0] + channels[-1] * num_classes + (reductions * pixels[1:]).sum()
        ends = 27 * channels[0] + 2 * channels[0] + 2 * channels[-1] + (channels[-1] + 1) * num_classes
        ends += (reductions + 4 * wide).sum()
        cells = CELLS_PER_STAGE * (channels**2).sum() * taps + CELLS_PER_STAGE * 2 * channels.sum() * convs
        return {
            "macs": ends_macs + CELLS_PER_STAGE * (channels**2 * pixels).sum() * taps,
            "params": ends + cells,
        }

    def features(self, choices: Choices) -> NDArray[np.float64]:
        costs = self.costs(choices)
        counts = [(choices == op).sum(1) for op in range(len(OPERATIONS))]
        return np.stack([np.log(costs["macs"]), np.log(costs["params"]), *counts], axis=1).astype(np.float64)

    @property
    def feature_names(self) -> tuple[str, ...]:
        return ("log_macs", "log_params", *OPERATIONS)

    def signature(self, arch: Architecture, size: Size = (10,)) -> Signature:
        return Signature(TensorSpec((3, RESOLUTION, RESOLUTION)), OutputSpec(LOGITS, size, (class_count(size),)))

    def blocks(self, arch: Architecture, size: Size = (10,)) -> tuple[BlockSpec, ...]:
        """Raises `UserError`: a cell's edges run beside each other."""
        raise UserError("a network of space 'nb201' is no chain of blocks", "measure it as a whole")

    def build(self, arch: Architecture, size: Size = (10,)) -> "nn.Module":
        """With PyTorch's own initialisation, as the benchmark trains and the zero-cost papers score it."""
        from experiments.tabular.nb201_network import CellNetwork

        return CellNetwork(self.architecture(arch.choices).choices, class_count(size))
