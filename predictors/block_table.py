"""Networks as rows of a table of blocks; for a whole space the table is made once, and candidates only index it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from predictors.block_features import block_columns, block_geometry
from search_spaces import Choices, SearchSpace
from search_spaces.blocks import BlockColumns, BlockFamily
from search_spaces.signature import Size
from search_spaces.slots import BlockSlots

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class BlockFeatures:
    """Properties of m blocks that are known before anything is measured."""

    kinds: tuple[str, ...]
    """Names of the families that blocks may be of."""
    kind: NDArray[np.int64]
    """(m,): position in `kinds`."""
    columns: Floats
    """(m, k): `block_features.block_columns`."""
    geometry: Floats
    """(m, g): `block_features.block_geometry`."""

    @classmethod
    def of(cls, slots: BlockSlots) -> Self:
        """Features of every block in arrays (n, slots), row after row."""
        columns, geometry = block_columns(slots), block_geometry(slots)
        kinds = tuple(family.name for family in slots.families)
        return cls(
            kinds, slots.kind.ravel(), columns.reshape(-1, columns.shape[-1]), geometry.reshape(-1, geometry.shape[-1])
        )

    @property
    def occurring(self) -> frozenset[str]:
        """Names of the families that there is a block of."""
        return frozenset(self.kinds[kind] for kind in np.unique(self.kind))

    def are(self, kind: str) -> NDArray[np.bool_]:
        """Mask (m,) of the blocks of the family `kind`."""
        return np.asarray(self.kind == (self.kinds.index(kind) if kind in self.kinds else -1))

    def select(self, which: NDArray[np.bool_] | NDArray[np.int32]) -> Self:
        """The blocks of a mask (m,), or those at some positions."""
        return type(self)(self.kinds, self.kind[which], self.columns[which], self.geometry[which])


@dataclass(frozen=True, slots=True)
class NetworkBlocks:
    """n networks of up to s different blocks each."""

    blocks: BlockFeatures
    positions: NDArray[np.int32]
    """(n, s): which of `blocks`."""
    counts: NDArray[np.int64]
    """(n, s): how often; 0 where a network has fewer different blocks."""

    @classmethod
    def of(cls, slots: BlockSlots) -> Self:
        """Networks given by their blocks, arrays (n, slots)."""
        positions = np.arange(slots.kind.size, dtype=np.int32).reshape(slots.kind.shape)
        return cls(BlockFeatures.of(slots), positions, slots.count)

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def occurring(self) -> frozenset[str]:
        """Names of the families that some of the networks have a block of."""
        return frozenset(self.blocks.kinds[k] for k in np.unique(self.blocks.kind[self.positions[self.counts > 0]]))

    def select(self, networks: NDArray[np.int64]) -> Self:
        return type(self)(self.blocks, self.positions[networks], self.counts[networks])

    def sums(self, values: Floats) -> Floats:
        """Sum over each network's blocks of `values` (m, ...) -> (n, ...)."""
        starts = np.arange(len(self) + 1) * self.positions.shape[1]
        shape = (len(self), len(self.blocks.kind))
        occurrences = csr_array((self.counts.ravel(), self.positions.ravel(), starts), shape=shape)
        return np.asarray(occurrences @ values)

    def largest(self, values: Floats) -> Floats:
        """Largest of `values` (m,), which are positive, over each network's blocks -> (n,)."""
        return np.asarray((values[self.positions] * (self.counts > 0)).max(axis=1))


class SpaceBlocks:
    """Every block that occurs in a space, once, and where the blocks of a candidate are in that list.

    A space has some ten thousand distinct blocks but 10^13 networks: whatever is known of the blocks is computed once,
    and a candidate costs a few additions. Restrictions of the space share its blocks.
    """

    def __init__(self, space: SearchSpace, size: Size) -> None:
        """Enumerate the blocks of `space` in networks whose answers have `size`.

        Raises `ValueError` for a space that has no `slot_decisions`.
        """
        if space.slot_decisions is None:
            raise ValueError(f"the blocks of space {space.name!r} cannot be enumerated")
        self.space, self._slot_decisions = space, space.slot_decisions
        parts = [_slot_blocks(space, slot, decisions, size) for slot, decisions in enumerate(space.slot_decisions)]
        unique, inverse = _distinct(np.concatenate(parts))
        bounds = np.cumsum([len(part) for part in parts])[:-1]
        self.blocks = BlockFeatures.of(_as_slots(unique, tuple(space.families.values())))
        self._positions = [part.astype(np.int32) for part in np.split(inverse, bounds)]
        """For each slot, the position in `blocks` of every combination of the decisions it depends on."""

    def networks(self, choices: Choices) -> NetworkBlocks:
        """Candidates (n, decisions) as networks of these blocks."""
        sizes = [len(d.options) for d in self.space.decisions]
        positions = np.empty((len(choices), len(self._positions)), dtype=np.int32)
        for slot, (decisions, known) in enumerate(zip(self._slot_decisions, self._positions, strict=True)):
            index = np.zeros(len(choices), dtype=np.int64)
            for column in decisions:
                index = index * sizes[column] + choices[:, column]
            positions[:, slot] = known[index]
        return NetworkBlocks(self.blocks, positions, self.space.slot_counts(choices))


def _distinct(rows: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """The different rows of (n, fields), sorted, and where each of the n is among them.

    As `numpy.unique` with an axis, which takes ten times as long.
    """
    order = np.lexsort(rows.T[::-1])
    ordered = rows[order]
    first = np.ones(len(rows), dtype=np.bool_)
    first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    where = np.empty(len(rows), dtype=np.int64)
    where[order] = np.cumsum(first) - 1
    return ordered[first], where


def _slot_blocks(space: SearchSpace, slot: int, decisions: Sequence[int], size: Size) -> Floats:
    """The fields of one slot's block for every combination of the decisions it depends on, (combinations, fields)."""
    grid = np.indices([len(space.decisions[column].options) for column in decisions]).reshape(len(decisions), -1)
    choices = np.zeros((grid.shape[1], len(space.decisions)), dtype=np.int64)
    choices[:, list(decisions)] = grid.T
    slots = space.slots(space.canonical(choices), size)
    fields = [slots.kind, *(getattr(slots.columns, name) for name in BlockColumns.__slots__), slots.activation]
    return np.stack([np.asarray(field[:, slot], dtype=np.float64) for field in fields], axis=1)


def _as_slots(fields: Floats, families: tuple[BlockFamily, ...]) -> BlockSlots:
    """Undo `_slot_blocks`: one block per row."""
    kind, *columns, activation = fields.T[:, :, None]
    names = dict(zip(BlockColumns.__slots__, columns, strict=True))
    typed = {name: values.astype(np.int64) for name, values in names.items()}
    blocks = BlockColumns(**{**typed, "expansion": names["expansion"], "se": names["se"] > 0})
    counts = np.ones_like(kind, dtype=np.int64)
    return BlockSlots(families, kind.astype(np.int64), blocks, activation.astype(np.int64), counts)
