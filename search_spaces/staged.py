"""The staged search space: stem, stages of equal blocks, head. `mobile`, `dense` and `mixed` differ only in tables.

The skeleton follows the input: total stride 32 from 128 px, 16 at 64-96 px, 8 below. Decisions are per
stage (as in RegNet), so the first block of a stage changes width and resolution and the others repeat.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from search_spaces.architecture import Architecture, Decision, Option
from search_spaces.blocks import ACTIVATIONS, EXPANSION_LEVELS, BlockColumns, BlockSpec, Conv, Ints, round_channels
from search_spaces.families import FAMILIES
from search_spaces.space import Choices, SearchSpace

if TYPE_CHECKING:
    from torch import nn

KINDS = tuple(FAMILIES)
"""Block kinds in table order; `BlockSlots.kind` holds positions in it."""

GROUP_WIDTH = 16
"""Channels per group of a grouped convolution (RegNet's typical value)."""


@dataclass(frozen=True, slots=True)
class StageTable:
    """Options of one stage."""

    widths: tuple[int, ...]
    depths: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceTable:
    """Everything that tells one staged space from another."""

    name: str
    families: tuple[str, ...]
    stem_widths: tuple[int, ...]
    stages: tuple[StageTable, ...]
    kernels: tuple[int, ...] = (3, 5, 7)
    resolutions: tuple[int, ...] = (32, 48, 64, 96, 128, 160, 192, 224)
    anchors: tuple[Mapping[str, Option], ...] = ()
    """Known designs as `{"stage1.width": 64, ...}`; decisions left out take their first option."""


@dataclass(frozen=True, slots=True)
class BlockSlots:
    """The blocks of n architectures as arrays (n, slots): stem, then first and repeated block of each stage, head."""

    kind: Ints
    """Position in `KINDS`."""
    columns: BlockColumns
    activation: Ints
    """Position in `ACTIVATIONS`."""
    count: Ints
    """How often the block occurs; 0 where a stage has no repeated block."""

    def layers(self) -> list[tuple[NDArray[np.bool_], Conv]]:
        """For each family, the mask (n, slots) of its blocks and each layer's fields, flattened over the mask."""
        found: list[tuple[NDArray[np.bool_], Conv]] = []
        for position, family in enumerate(FAMILIES.values()):
            mask = self.kind == position
            if mask.any():
                found.extend((mask, layer) for layer in family.layers(self.columns.select(mask)))
        return found

    def totals(self) -> dict[str, NDArray[np.float64]]:
        """Per block, (n, slots): `macs`, `params`, `activations` (elements moved), `depthwise_macs`, `layers`."""
        names = ("macs", "params", "activations", "depthwise_macs", "layers")
        sums = {name: np.zeros(self.kind.shape) for name in names}
        for mask, layer in self.layers():
            macs = layer.macs
            values = (macs, layer.params, layer.activations, macs * layer.depthwise, (macs > 0).astype(np.float64))
            for name, value in zip(names, values, strict=True):
                sums[name][mask] += np.asarray(value, dtype=np.float64)
        return sums


def concatenate_slots(parts: Sequence[BlockSlots]) -> BlockSlots:
    """The rows of several arrays of blocks, of spaces with equally many stages."""
    columns = BlockColumns(
        *(np.concatenate([getattr(p.columns, name) for p in parts]) for name in BlockColumns.__slots__)
    )
    return BlockSlots(
        kind=np.concatenate([p.kind for p in parts]),
        columns=columns,
        activation=np.concatenate([p.activation for p in parts]),
        count=np.concatenate([p.count for p in parts]),
    )


def strides(resolution: Ints, stages: int) -> Ints:
    """Strides (..., 1 + stages) of stem and stages: halve early only where there is enough to halve."""
    full, half = resolution >= 128, resolution >= 64
    columns = [np.where(half, 2, 1), np.where(full, 2, 1)] + [np.full_like(resolution, 2)] * (stages - 1)
    return np.stack(columns, axis=-1)


class StagedSpace(SearchSpace):
    """A search space given by a `SpaceTable`."""

    def __init__(self, table: SpaceTable, allowed: Sequence[Sequence[int]] | None = None) -> None:
        self.table = table
        unknown = set(table.families) - set(FAMILIES)
        if unknown:
            raise ValueError(f"space {table.name!r} names unknown families {sorted(unknown)}")
        super().__init__(table.name, _decisions(table), allowed)

    def _restricted(self, allowed: Sequence[Sequence[int]]) -> Self:
        return type(self)(self.table, allowed)

    # -- canonical form and size ---------------------------------------------------------------

    @cached_property
    def _stage_columns(self) -> list[dict[str, int]]:
        """For each stage, decision's short name -> column."""
        stages: list[dict[str, int]] = [{} for _ in self.table.stages]
        for column, decision in enumerate(self.decisions):
            head, _, short = decision.name.partition(".")
            if head.startswith("stage"):
                stages[int(head.removeprefix("stage")) - 1][short] = column
        return stages

    @cached_property
    def _uses(self) -> dict[str, NDArray[np.bool_]]:
        """Short decision name -> for each family of the table, whether the decision matters."""
        families = [FAMILIES[f] for f in self.table.families]
        return {
            short: np.array([short in family.uses for family in families])
            for short in ("kernel", "expansion", "se", "groups")
        }

    def _family(self, choices: Choices, stage: int) -> Ints:
        """Position in `table.families` for each row."""
        column = self._stage_columns[stage].get("family")
        return np.zeros(len(choices), dtype=np.int64) if column is None else choices[:, column]

    def _grouped_channels(self, choices: Choices, stage: int) -> Ints:
        """Channels of the convolution that `groups` divides; 0 where the family has none."""
        columns = self._stage_columns[stage]
        family = self._family(choices, stage)
        width = np.array(self.table.stages[stage].widths)[choices[:, columns["width"]]]
        level = choices[:, columns["expansion"]] if "expansion" in columns else np.zeros(len(choices), dtype=np.int64)
        ratios = np.array([FAMILIES[f].expansions for f in self.table.families])[family, level]
        return np.where(self._uses["groups"][family], round_channels(width * ratios), 0)

    def canonical(self, choices: Choices) -> Choices:
        choices = choices.copy()
        for stage, columns in enumerate(self._stage_columns):
            family = self._family(choices, stage)
            for short, used in self._uses.items():
                if short in columns and short != "groups":
                    choices[:, columns[short]] *= used[family]
            if "groups" in columns:
                channels = self._grouped_channels(choices, stage)
                choices[:, columns["groups"]] *= (channels > GROUP_WIDTH) & (channels % GROUP_WIDTH == 0)
        return choices

    @cached_property
    def size(self) -> int:
        """Counted exactly: stages are independent, so the distinct canonical stages multiply."""
        in_a_stage = {c for columns in self._stage_columns for c in columns.values()}
        sizes = [len(a) for i, a in enumerate(self.allowed) if i not in in_a_stage]
        first = np.array([[a[0] for a in self.allowed]], dtype=np.int64)
        for columns in self._stage_columns:
            own = list(columns.values())
            rows = np.array(list(product(*(self.allowed[c] for c in own))), dtype=np.int64)
            whole = np.repeat(first, len(rows), axis=0)
            whole[:, own] = rows
            sizes.append(len(np.unique(self.canonical(whole)[:, own], axis=0)))
        return math.prod(sizes)

    # -- from choices to blocks ------------------------------------------------------------------

    def resolutions(self, choices: Choices) -> Ints:
        """Input resolution in pixels, (n,)."""
        return np.array(self.table.resolutions, dtype=np.int64)[choices[:, self.column("resolution")]]

    def resolution(self, arch: Architecture) -> int:
        return int(self.resolutions(self.choices([arch]))[0])

    def slots(self, choices: Choices, num_classes: int = 1000) -> BlockSlots:
        """The blocks of all rows of `choices` at once; the source of `blocks`, of costs and of predictor features."""
        n, stages = len(choices), len(self.table.stages)
        resolution = self.resolutions(choices)
        stride = strides(resolution, stages)
        stem = np.array(self.table.stem_widths, dtype=np.int64)[choices[:, self.column("stem.width")]]
        ones, zeros = np.ones(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
        parts: list[tuple[Ints, ...]] = []  # kind, in, out, kernel, stride, groups, se, height, activation, count
        ratios: list[NDArray[np.float64]] = []

        def add(kind: Ints, *values: Ints, ratio: NDArray[np.float64]) -> None:
            parts.append((kind, *values))
            ratios.append(ratio)

        add(ones * KINDS.index("stem"), ones * 3, stem, ones * 3, stride[:, 0], ones, zeros, resolution,
            self._stage_option(choices, 0, "act", zeros), ones, ratio=np.ones(n))  # fmt: skip
        height, channels = -(-resolution // stride[:, 0]), stem
        kinds = np.array([KINDS.index(f) for f in self.table.families], dtype=np.int64)
        expansions = np.array([FAMILIES[f].expansions for f in self.table.families])
        for stage, table in enumerate(self.table.stages):
            columns = self._stage_columns[stage]
            family = self._family(choices, stage)
            width = np.array(table.widths, dtype=np.int64)[choices[:, columns["width"]]]
            depth = np.array(table.depths, dtype=np.int64)[choices[:, columns["depth"]]]
            kernel = np.where(
                self._uses["kernel"][family],
                np.array(self.table.kernels)[self._stage_option(choices, stage, "kernel", zeros)],
                3,
            )
            ratio = expansions[family, self._stage_option(choices, stage, "expansion", zeros)]
            grouped = self._stage_option(choices, stage, "groups", zeros) > 0
            groups = np.where(grouped, np.maximum(1, self._grouped_channels(choices, stage) // GROUP_WIDTH), 1)
            se, act = self._stage_option(choices, stage, "se", zeros), self._stage_option(choices, stage, "act", zeros)
            step = stride[:, stage + 1]
            add(kinds[family], channels, width, kernel, step, groups, se, height, act, ones, ratio=ratio)
            height, channels = -(-height // step), width
            add(kinds[family], width, width, kernel, ones, groups, se, height, act, depth - 1, ratio=ratio)
        add(ones * KINDS.index("head"), channels, ones * num_classes, ones, ones, ones, zeros, height, zeros, ones,
            ratio=np.ones(n))  # fmt: skip
        kind, inp, out, kernel, step, groups, se, height, act, count = (
            np.stack(column, axis=1) for column in zip(*parts, strict=True)
        )
        blocks = BlockColumns(inp, out, kernel, step, np.stack(ratios, axis=1), groups, se > 0, height, height)
        return BlockSlots(kind, blocks, act, count)

    @cached_property
    def slot_decisions(self) -> tuple[tuple[int, ...], ...]:
        """For each slot of `slots`, the columns of the decisions its block depends on (all but how often it occurs)."""
        resolution, stem = self.column("resolution"), self.column("stem.width")
        found: list[tuple[int, ...]] = []
        width = stem
        for columns in self._stage_columns:
            own = tuple(column for short, column in columns.items() if short != "depth")
            found += [(width, *own, resolution), (*own, resolution)]
            width = columns["width"]
        act = self._stage_columns[0].get("act")
        ends = (stem, resolution) if act is None else (stem, act, resolution)
        return (ends, *found, (width, resolution))

    def slot_counts(self, choices: Choices) -> Ints:
        """How often each slot's block occurs, (n, slots): `slots(choices).count` without the rest."""
        counts = np.ones((len(choices), 2 + 2 * len(self.table.stages)), dtype=np.int64)
        for stage, table in enumerate(self.table.stages):
            depth = np.array(table.depths, dtype=np.int64)[choices[:, self._stage_columns[stage]["depth"]]]
            counts[:, 2 + 2 * stage] = depth - 1
        return counts

    def _stage_option(self, choices: Choices, stage: int, short: str, default: Ints) -> Ints:
        column = self._stage_columns[stage].get(short)
        return default if column is None else choices[:, column]

    def blocks(self, arch: Architecture, num_classes: int = 1000) -> tuple[BlockSpec, ...]:
        slots = self.slots(self.choices([arch]), num_classes)
        c = slots.columns
        found: list[BlockSpec] = []
        for s in range(slots.kind.shape[1]):
            spec = BlockSpec(
                kind=KINDS[slots.kind[0, s]],
                in_channels=int(c.in_channels[0, s]), out_channels=int(c.out_channels[0, s]),
                kernel=int(c.kernel[0, s]), stride=int(c.stride[0, s]), expansion=float(c.expansion[0, s]),
                groups=int(c.groups[0, s]), se=bool(c.se[0, s]), activation=ACTIVATIONS[slots.activation[0, s]],
                height=int(c.height[0, s]), width=int(c.width[0, s]),
            )  # fmt: skip
            found.extend([spec] * int(slots.count[0, s]))
        return tuple(found)

    def stage_depths(self, arch: Architecture) -> tuple[int, ...]:
        """Blocks of each stage."""
        stages = zip(self.table.stages, self._stage_columns, strict=True)
        return tuple(table.depths[arch.choices[columns["depth"]]] for table, columns in stages)

    def build(self, arch: Architecture, num_classes: int = 1000) -> "nn.Module":
        from search_spaces.modules import StagedNetwork, sequential

        modules = [FAMILIES[spec.kind].build(spec) for spec in self.blocks(arch, num_classes)]
        bounds = np.cumsum([1, *self.stage_depths(arch)])
        stages: list[nn.Module] = [sequential(*modules[a:b]) for a, b in pairwise(bounds)]
        return StagedNetwork(modules[0], stages, modules[-1])

    # -- costs and features ------------------------------------------------------------------------

    def costs(self, choices: Choices, num_classes: int = 1000) -> dict[str, NDArray[np.float64]]:
        """Totals of the deployed networks, each (n,): `macs`, `params`, `activations`, `depthwise_macs`, `layers`."""
        slots = self.slots(choices, num_classes)
        return {name: (value * slots.count).sum(axis=1) for name, value in slots.totals().items()}

    def features(self, choices: Choices) -> NDArray[np.float64]:
        costs = self.costs(choices)
        columns = [
            np.log(costs["macs"]),
            np.log(costs["params"]),
            np.log(costs["activations"]),
            costs["depthwise_macs"] / costs["macs"],
            np.log(costs["layers"]),
            np.log(self.resolutions(choices)),
        ]
        for stage, table in enumerate(self.table.stages):
            at = self._stage_columns[stage]
            columns.append(np.log(np.array(table.widths)[choices[:, at["width"]]]))
            columns.append(np.array(table.depths)[choices[:, at["depth"]]])
            columns += [choices[:, at[s]] for s in ("kernel", "expansion", "se", "act", "groups") if s in at]
            if "family" in at:
                columns += [choices[:, at["family"]] == f for f in range(len(self.table.families))]
        return np.stack([np.asarray(c, dtype=np.float64) for c in columns], axis=1)

    @property
    def feature_names(self) -> tuple[str, ...]:
        names = ["log_macs", "log_params", "log_activations", "depthwise_share", "log_layers", "log_resolution"]
        for stage in range(len(self.table.stages)):
            at = self._stage_columns[stage]
            shorts = ["log_width", "depth", *(s for s in ("kernel", "expansion", "se", "act", "groups") if s in at)]
            if "family" in at:
                shorts += [f"is_{family}" for family in self.table.families]
            names += [f"stage{stage + 1}.{short}" for short in shorts]
        return tuple(names)

    @property
    def anchors(self) -> tuple[Architecture, ...]:
        found: list[Architecture] = []
        for anchor in self.table.anchors:
            row = [d.index(anchor[d.name]) if d.name in anchor else 0 for d in self.decisions]
            found.extend(
                self.architecture([*row[:-1], resolution])
                for resolution in self.allowed[-1]
                if all(c in a for c, a in zip(row[:-1], self.allowed[:-1], strict=True))
            )
        return tuple(found)


def _decisions(table: SpaceTable) -> list[Decision]:
    families = [FAMILIES[f] for f in table.families]
    used = frozenset().union(*(f.uses for f in families))
    decisions = [Decision("stem.width", table.stem_widths)]
    for number, stage in enumerate(table.stages, start=1):
        options: list[tuple[str, tuple[Option, ...]]] = []
        if len(families) > 1:
            options.append(("family", table.families))
        options += [("width", stage.widths), ("depth", stage.depths)]
        if "kernel" in used:
            options.append(("kernel", table.kernels))
        if "expansion" in used:
            options.append(("expansion", EXPANSION_LEVELS))
        if "se" in used:
            options.append(("se", (0, 1)))
        options.append(("act", ACTIVATIONS))
        if "groups" in used:
            options.append(("groups", ("dense", f"width{GROUP_WIDTH}")))
        decisions += [Decision(f"stage{number}.{short}", values) for short, values in options]
    return [*decisions, Decision("resolution", table.resolutions)]
