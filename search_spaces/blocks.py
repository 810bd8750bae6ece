"""Blocks as values: what they consist of and what they cost, for one block or a million at once.

Costs describe the *deployed* block: batch norms folded into their convolutions, re-parameterisable
branches merged. A multiply-add counts as one MAC (`flops = 2 * macs`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import nn

ACTIVATIONS = ("relu", "hardswish")
"""Known activations; tables of blocks hold the index."""

EXPANSION_LEVELS = ("low", "medium", "high")
"""Options of an expansion decision; each family says what ratio a level stands for."""


@dataclass(frozen=True, slots=True, order=True)
class BlockSpec:
    """Hashable signature of one block at one input shape: the unit of a latency table."""

    kind: str
    """Name of the block's family, a key in its space's `families`."""
    in_channels: int
    out_channels: int
    kernel: int
    stride: int
    expansion: float
    """Ratio of inner to outer channels, as the family defines it; 1 where it has no meaning."""
    groups: int
    """Groups of the spatial convolution (1 where the family fixes them itself)."""
    se: bool
    activation: str
    height: int
    """Input height in pixels; of a text its tokens, with a width of 1."""
    width: int


Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BlockColumns:
    """Many blocks of one family as columns; every array has the same shape."""

    in_channels: Ints
    out_channels: Ints
    kernel: Ints
    stride: Ints
    expansion: NDArray[np.float64]
    groups: Ints
    se: NDArray[np.bool_]
    height: Ints
    width: Ints

    @property
    def out_area(self) -> Ints:
        """Pixels of the output."""
        return np.asarray(-(-self.height // self.stride) * -(-self.width // self.stride))

    @property
    def outputs(self) -> Ints:
        """Elements of the output."""
        return self.out_area * self.out_channels

    def select(self, mask: NDArray[np.bool_]) -> "BlockColumns":
        """The blocks where `mask` holds, flattened."""
        return BlockColumns(*(getattr(self, name)[mask] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Conv:
    """One convolution with bias (a linear layer is a 1x1 one on a 1x1 map); fields are arrays or numbers."""

    in_channels: Any
    out_channels: Any
    kernel: Any = 1
    stride: Any = 1
    groups: Any = 1
    height: Any = 1
    width: Any = 1
    exists: Any = True
    """False where this block has no such layer; it then costs nothing."""

    @property
    def taps(self) -> Any:
        """Weights for each pair of an input and an output channel."""
        return self.kernel**2

    @property
    def macs(self) -> Ints:
        out = -(-self.height // self.stride) * -(-self.width // self.stride)
        weights = self.taps * (self.in_channels // self.groups) * self.out_channels
        return np.asarray(out * weights * self.exists, dtype=np.int64)

    @property
    def params(self) -> Ints:
        weights = self.taps * (self.in_channels // self.groups) * self.out_channels
        return np.asarray((weights + self.out_channels) * self.exists, dtype=np.int64)

    @property
    def activations(self) -> Ints:
        """Elements read plus elements written."""
        out = -(-self.height // self.stride) * -(-self.width // self.stride) * self.out_channels
        return np.asarray((self.height * self.width * self.in_channels + out) * self.exists, dtype=np.int64)

    @property
    def depthwise(self) -> NDArray[np.bool_]:
        return np.asarray((self.groups == self.in_channels) & (np.asarray(self.groups) > 1))


def squeeze_excite(channels: Any, exists: Any) -> list[Conv]:
    """The two linear layers of a squeeze-and-excitation unit (Hu et al. 2018), reduction 4, at least 8 wide."""
    squeezed = squeezed_channels(channels)
    return [Conv(channels, squeezed, exists=exists), Conv(squeezed, channels, exists=exists)]


def squeezed_channels(channels: Any) -> Any:
    return np.maximum(8, np.asarray(channels) // 4)


def _out_channels(blocks: BlockColumns) -> Ints:
    return blocks.out_channels


def round_channels(channels: Any) -> Any:
    """Nearest multiple of 8, at least 8."""
    return np.maximum(8, (np.asarray(channels + 4, dtype=np.float64) // 8 * 8)).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Elementwise:
    """The work of n blocks that is in none of their layers, in elements of maps; fields are arrays (n,) or numbers."""

    added: Any = 0
    """Written by an addition, such as a residual connection's."""
    gated: Any = 0
    """Scaled by a factor that is computed first: by the gates of squeeze-and-excitation, or by a layer norm."""
    activated: Any = 0
    """Passed through the block's activation; 0 where its family has none to choose."""
    pooled: Any = 0
    """Read by a mean over the map, by max-pooling, or by a softmax."""
    upsampled: Any = 0
    """Written by enlarging a map."""
    arranged: Any = 0
    """Put into another order in memory."""


@dataclass(frozen=True, slots=True)
class BlockFamily:
    """Everything the engine knows about a kind of block: how to build it and all that it costs.

    A family of ours is one file and one line in `FAMILIES`; a space may bring others (`SearchSpace.families`).
    """

    name: str
    uses: frozenset[str]
    """Which of `kernel`, `expansion`, `se`, `groups` change this block; the others are inactive."""
    expansions: tuple[float, ...]
    """Ratio for each of `EXPANSION_LEVELS`."""
    layers: Callable[[BlockColumns], Sequence[Conv]]
    """The deployed block's convolutions and linear layers."""
    elementwise: Callable[[BlockColumns], Elementwise]
    """Elementwise work of the deployed block, between its layers."""
    build: Callable[[BlockSpec], "nn.Module"]
    """A trainable module for one block: `(b, in, h, w)` -> `(b, out, ceil(h/stride), ceil(w/stride))`. What joins the
    levels of a detector takes and gives what its family says (`families/detection.py`), and so do the blocks of texts
    (`families/text.py`)."""
    inner: Callable[[BlockColumns], Ints] = _out_channels
    """Channels between the block's first and last layer."""

    def named(self, name: str) -> "BlockFamily":
        """The same blocks by another name."""
        return replace(self, name=name)
