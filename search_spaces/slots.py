"""The blocks of many networks at once, as arrays: a column per slot, whatever space the networks are of.

A slot is a place where one and the same block occurs a number of times in a network (0 where the network has none).
Every space has its own fixed list of slots, and its own families of blocks.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_spaces.blocks import ACTIVATIONS, BlockColumns, BlockFamily, BlockSpec, Conv, Ints


@dataclass(frozen=True, slots=True)
class BlockSlots:
    """The blocks of n architectures as arrays (n, slots)."""

    families: tuple[BlockFamily, ...]
    """All that a block may be of."""
    kind: Ints
    """Position in `families`."""
    columns: BlockColumns
    activation: Ints
    """Position in `ACTIVATIONS`."""
    count: Ints
    """Occurrences of the block; 0 where a network has none."""

    def by_family(self) -> Iterator[tuple[BlockFamily, NDArray[np.bool_], BlockColumns]]:
        """Each family that occurs, the mask (n, slots) of its blocks, and these flattened over the mask."""
        for position, family in enumerate(self.families):
            mask = self.kind == position
            if mask.any():
                yield family, mask, self.columns.select(mask)

    def layers(self) -> list[tuple[NDArray[np.bool_], Conv]]:
        """For each family, the mask (n, slots) of its blocks and each layer's fields, flattened over the mask."""
        return [(mask, layer) for family, mask, blocks in self.by_family() for layer in family.layers(blocks)]

    def rows(self, order: NDArray[np.int64]) -> "BlockSlots":
        """The networks at some positions, in that order."""
        columns = BlockColumns(*(getattr(self.columns, name)[order] for name in BlockColumns.__slots__))
        return BlockSlots(self.families, self.kind[order], columns, self.activation[order], self.count[order])

    @property
    def occurring(self) -> frozenset[str]:
        """Names of the families that some of the networks have a block of."""
        return frozenset(self.families[kind].name for kind in np.unique(self.kind[self.count > 0]))

    def totals(self) -> dict[str, NDArray[np.float64]]:
        """Costs per block, (n, slots): `macs`, `params`, `activations` (elements moved), `depthwise_macs`, `layers`."""
        names = ("macs", "params", "activations", "depthwise_macs", "layers")
        sums = {name: np.zeros(self.kind.shape) for name in names}
        for mask, layer in self.layers():
            macs = layer.macs
            values = (macs, layer.params, layer.activations, macs * layer.depthwise, (macs > 0).astype(np.float64))
            for name, value in zip(names, values, strict=True):
                sums[name][mask] += np.asarray(value, dtype=np.float64)
        return sums

    def specs(self, row: int) -> Iterator[BlockSpec]:
        """The blocks of one network, slot by slot, each as often as it occurs."""
        c = self.columns
        for s in np.flatnonzero(self.count[row]):
            spec = BlockSpec(
                kind=self.families[self.kind[row, s]].name,
                in_channels=int(c.in_channels[row, s]), out_channels=int(c.out_channels[row, s]),
                kernel=int(c.kernel[row, s]), stride=int(c.stride[row, s]), expansion=float(c.expansion[row, s]),
                groups=int(c.groups[row, s]), se=bool(c.se[row, s]), activation=ACTIVATIONS[self.activation[row, s]],
                height=int(c.height[row, s]), width=int(c.width[row, s]),
            )  # fmt: skip
            yield from [spec] * int(self.count[row, s])


class SlotColumns:
    """Puts `BlockSlots` of n networks together, one slot after the other."""

    def __init__(self, n: int, families: Mapping[str, BlockFamily]) -> None:
        """`families`: all that blocks may be of, by name."""
        self._n = n
        self._families = tuple(families.values())
        self._positions = {name: position for position, name in enumerate(families)}
        self._slots: list[list[NDArray[Any]]] = []

    def add(
        self, kind: Any, in_channels: Any, out_channels: Any, height: Any, *, kernel: Any = 1, stride: Any = 1,
        ratio: Any = 1.0, groups: Any = 1, se: Any = 0, activation: Any = 0, count: Any = 1, width: Any = None,
    ) -> None:  # fmt: skip
        """One slot; every value is one number for all networks or an array (n,).

        `kind` is the name of a family, or an array of positions in the list of families. `width`: of the input; None:
        as its height.
        """
        kind = self._positions[kind] if isinstance(kind, str) else kind
        across = height if width is None else width
        whole = (kind, in_channels, out_channels, kernel, stride, groups, se, height, across, activation, count)
        columns = [np.broadcast_to(np.asarray(value, dtype=np.int64), self._n) for value in whole]
        self._slots.append([*columns, np.broadcast_to(np.asarray(ratio, dtype=np.float64), self._n)])

    def slots(self) -> BlockSlots:
        """Blocks that were added, in order."""
        kind, inp, out, kernel, stride, groups, se, height, width, act, count, ratio = (
            np.stack(column, axis=1) for column in zip(*self._slots, strict=True)
        )
        return BlockSlots(
            self._families,
            kind,
            BlockColumns(inp, out, kernel, stride, ratio, groups, se > 0, height, width),
            act,
            count,
        )


def concatenate_slots(parts: Sequence[BlockSlots]) -> BlockSlots:
    """The rows of several arrays of blocks; those of spaces with fewer slots get some without a block at the end.

    Raises `ValueError` where two spaces have different families of one name.
    """
    families: dict[str, BlockFamily] = {}
    for part in parts:
        for family in part.families:
            if families.setdefault(family.name, family) != family:
                raise ValueError(f"two different families of blocks are called {family.name!r}")
    position = {name: at for at, name in enumerate(families)}
    kinds = [np.array([position[f.name] for f in p.families], dtype=np.int64)[p.kind] for p in parts]
    most = max(p.kind.shape[1] for p in parts)

    def joined(arrays: Sequence[NDArray[Any]], mode: Any) -> NDArray[Any]:
        return np.concatenate([np.pad(a, ((0, 0), (0, most - a.shape[1])), mode) for a in arrays])

    # A slot without a block repeats the last one's fields, so that it stands for no kind of its own.
    columns = BlockColumns(
        *(joined([getattr(p.columns, name) for p in parts], "edge") for name in BlockColumns.__slots__)
    )
    return BlockSlots(
        families=tuple(families.values()),
        kind=joined(kinds, "edge"),
        columns=columns,
        activation=joined([p.activation for p in parts], "edge"),
        count=joined([p.count for p in parts], "constant"),
    )


def slots_of_blocks(networks: Sequence[Sequence[BlockSpec]], families: Mapping[str, BlockFamily]) -> BlockSlots:
    """The blocks of n networks as arrays: slot k of a network is its k-th different block.

    Raises `ValueError` for a block of none of the `families`, or with an activation that is not in `ACTIVATIONS`.
    """
    counted = [Counter(network) for network in networks]
    most = max((len(found) for found in counted), default=0)
    kinds = {name: position for position, name in enumerate(families)}
    # A slot without a block repeats the network's last one, so that it stands for no kind of its own.
    rows = [list(found) + [next(reversed(found))] * (most - len(found)) for found in counted]
    for spec in {spec for row in rows for spec in row}:
        if spec.kind not in kinds or spec.activation not in ACTIVATIONS:
            raise ValueError(f"a block of unknown kind {spec.kind!r} or activation {spec.activation!r}")

    def column(value: Callable[[BlockSpec], Any], dtype: type = np.int64) -> NDArray[Any]:
        return np.array([[value(spec) for spec in row] for row in rows], dtype=dtype).reshape(len(rows), most)

    columns = {name: column(attrgetter(name), _DTYPES.get(name, np.int64)) for name in BlockColumns.__slots__}
    counts = [list(found.values()) + [0] * (most - len(found)) for found in counted]
    return BlockSlots(
        families=tuple(families.values()),
        kind=column(lambda spec: kinds[spec.kind]),
        columns=BlockColumns(**columns),
        activation=column(lambda spec: ACTIVATIONS.index(spec.activation)),
        count=np.array(counts, dtype=np.int64).reshape(len(rows), most),
    )


_DTYPES: Mapping[str, type] = {"expansion": np.float64, "se": np.bool_}
"""Element types of the columns that are no integers."""
