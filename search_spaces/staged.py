"""The staged search space: stem, stages of equal blocks, head. The classification spaces differ only in tables.
What else is made of a staged backbone (`search_spaces.detect`) adds sections of decisions and slots of its own.

The skeleton follows the input: total stride 32 from 128 px, 16 at 64-96 px, 8 below. Decisions are per
stage (as in RegNet), so the first block of a stage changes width and resolution and the others repeat.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from search_spaces.architecture import Architecture, Decision, Option
from search_spaces.blocks import ACTIVATIONS, EXPANSION_LEVELS, BlockFamily, BlockSpec, Ints, round_channels
from search_spaces.families import families_with
from search_spaces.signature import LOGITS, OutputSpec, Signature, Size, TensorSpec, class_count
from search_spaces.slots import BlockSlots, SlotColumns
from search_spaces.space import Choices, SearchSpace

if TYPE_CHECKING:
    from torch import nn

IMAGENET: Size = (1000,)
GROUP_WIDTH = 16
"""Channels per group of a grouped convolution (RegNet's typical value)."""
EARLY = "stem.early"
"""Decision whether maps shrink one place earlier, see `strides`."""


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
    early: bool = False
    """Whether the space decides if maps shrink one place earlier, see `strides`."""
    kernels: tuple[int, ...] = (3, 5, 7)
    resolutions: tuple[int, ...] = (32, 48, 64, 96, 128, 160, 192, 224)
    anchors: tuple[Mapping[str, Option], ...] = ()
    """Known designs as `{"stage1.width": 64, ...}`; decisions left out take their first option."""


def strides(resolution: Ints, stages: int, early: Ints | int = 0) -> Ints:
    """Strides (..., 1 + stages) of stem and stages: halve early only where there is enough to halve.

    Where `early` (...) is 1, the first place that does not halve its map does, and the last stage does not: the map
    behind all stages is as large, those between are half as high and wide. Where each place halves nothing changes.
    """
    full, half = resolution >= 128, resolution >= 64
    columns = [np.where(half, 2, 1), np.where(full, 2, 1)] + [np.full_like(resolution, 2)] * (stages - 1)
    usual = np.stack(columns, axis=-1)
    place, first = np.arange(1 + stages), usual.argmin(axis=-1)[..., None]
    earlier = np.where(place == first, 2, np.where(place == stages, 1, usual))
    return np.where((np.asarray(early) > 0)[..., None] & may_halve_early(usual)[..., None], earlier, usual)


def may_halve_early(usual: Ints) -> NDArray[np.bool_]:
    """Where (...) one of the usual `strides` (..., 1 + stages) is 1."""
    found: NDArray[np.bool_] = usual.min(axis=-1) == 1
    return found


@dataclass(frozen=True, slots=True)
class SectionBlocks:
    """The blocks that a section of decisions stands for, in n networks: every field is (n,)."""

    kind: Ints
    width: Ints
    kernel: Ints
    ratio: NDArray[np.float64]
    groups: Ints
    se: Ints
    activation: Ints


class StagedSpace(SearchSpace):
    """A search space given by a `SpaceTable`.

    Its decisions come in sections, named by what stands before the dot: `stage1` to `stageN` here. The decisions of a
    section describe one kind of block and how often it occurs.
    """

    usual_size: Size = IMAGENET
    """Size of the answers of the networks whose costs are features: where most of them are known from (ImageNet)."""
    chained = True
    """True if each block takes the output of the one before it and nothing else."""

    def __init__(
        self,
        table: SpaceTable,
        allowed: Sequence[Sequence[int]] | None = None,
        *,
        families: Sequence[BlockFamily] = (),
    ) -> None:
        """`families` that the table names beside ours; raises `ValueError` for a name that is neither or both."""
        self.table = table
        self.families = families_with(families)
        unknown = set(table.families) - set(self.families)
        if unknown:
            raise ValueError(f"space {table.name!r} names unknown families {sorted(unknown)}")
        super().__init__(table.name, self._table_decisions(), allowed)

    @cached_property
    def _table_families(self) -> tuple[BlockFamily, ...]:
        """The table's, in its order."""
        return tuple(self.families[name] for name in self.table.families)

    def _table_decisions(self) -> list[Decision]:
        """All decisions in order, the resolution last."""
        table, options = self.table, block_options(self._table_families)
        decisions = [Decision("stem.width", table.stem_widths)]
        decisions += [Decision(EARLY, (0, 1))] if table.early else []
        for number, stage in enumerate(table.stages, start=1):
            decisions += section_decisions(f"stage{number}", table, options, stage.widths, stage.depths)
        return [*decisions, Decision("resolution", table.resolutions)]

    # -- canonical form and size ---------------------------------------------------------------

    @cached_property
    def _sections(self) -> dict[str, dict[str, int]]:
        """For each section of decisions about blocks, decision's short name -> column."""
        sections: dict[str, dict[str, int]] = {}
        for column, decision in enumerate(self.decisions):
            head, _, short = decision.name.partition(".")
            if short and head != "stem":
                sections.setdefault(head, {})[short] = column
        return sections

    @cached_property
    def _stage_columns(self) -> list[dict[str, int]]:
        """The sections of the stages."""
        return [self._sections[f"stage{number}"] for number in range(1, len(self.table.stages) + 1)]

    @cached_property
    def _uses(self) -> dict[str, NDArray[np.bool_]]:
        """Short decision name -> for each family of the table, whether the decision matters."""
        return {
            short: np.array([short in family.uses for family in self._table_families])
            for short in ("kernel", "expansion", "se", "groups")
        }

    def _option(self, choices: Choices, columns: Mapping[str, int], short: str) -> Ints:
        """Chosen options (n,) of a section's decision; 0 where the section has no such decision."""
        return choices[:, columns[short]] if short in columns else np.zeros(len(choices), dtype=np.int64)

    def _values(self, choices: Choices, columns: Mapping[str, int], short: str) -> Ints:
        """Chosen numbers (n,), such as widths or depths, of a section's decision."""
        return np.array(self.decisions[columns[short]].options, dtype=np.int64)[choices[:, columns[short]]]

    def _grouped_channels(self, choices: Choices, columns: Mapping[str, int]) -> Ints:
        """Channels of the convolution that `groups` divides; 0 where the family has none."""
        family, level = self._option(choices, columns, "family"), self._option(choices, columns, "expansion")
        ratios = np.array([family.expansions for family in self._table_families])[family, level]
        channels = round_channels(self._values(choices, columns, "width") * ratios)
        return np.where(self._uses["groups"][family], channels, 0)

    def _early(self, choices: Choices) -> Ints:
        """1 (n,) where maps are to shrink one place earlier; 0 where the space does not decide about it."""
        return choices[:, self.column(EARLY)] if self.table.early else np.zeros(len(choices), dtype=np.int64)

    def canonical(self, choices: Choices) -> Choices:
        choices = choices.copy()
        if self.table.early:
            usual = strides(self.resolutions(choices), len(self.table.stages))
            choices[:, self.column(EARLY)] *= may_halve_early(usual)
        for columns in self._sections.values():
            family = self._option(choices, columns, "family")
            for short, used in self._uses.items():
                if short in columns and short != "groups":
                    choices[:, columns[short]] *= used[family]
            if "groups" in columns:
                channels = self._grouped_channels(choices, columns)
                choices[:, columns["groups"]] *= (channels > GROUP_WIDTH) & (channels % GROUP_WIDTH == 0)
        return choices

    @cached_property
    def size(self) -> int:
        """Counted exactly: sections are independent, so their distinct canonical forms multiply."""
        groups = [list(columns.values()) for columns in self._sections.values()]
        groups += [[self.column(EARLY), self.column("resolution")]] if self.table.early else []
        grouped = {c for columns in groups for c in columns}
        sizes = [len(a) for i, a in enumerate(self.allowed) if i not in grouped]
        first = np.array([[a[0] for a in self.allowed]], dtype=np.int64)
        for own in groups:
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
        """Input height = width in pixels."""
        return int(self.resolutions(self.choices([arch]))[0])

    def signature(self, arch: Architecture, size: Size = IMAGENET) -> Signature:
        """An RGB image, float32 `(3, resolution, resolution)`; logits of the classes, `size = (classes,)`."""
        return Signature(self.input(arch), OutputSpec(LOGITS, size, (class_count(size),)))

    def input(self, arch: Architecture) -> TensorSpec:
        """Input of the network."""
        return _image(self.resolution(arch))

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Inputs of the space's networks, the smallest first."""
        return tuple(_image(side) for side in sorted(self.table.resolutions[i] for i in self.allowed[-1]))

    def inputs_of(self, choices: Choices) -> tuple[tuple[TensorSpec, ...], Ints]:
        sides, places = np.unique(self.resolutions(choices), return_inverse=True)
        return tuple(_image(int(side)) for side in sides), places.astype(np.int64)

    def slots(self, choices: Choices, size: Size = IMAGENET) -> BlockSlots:
        """The blocks of all rows of `choices` at once; the source of `blocks`, of costs and of predictor features.

        Slots are the stem, then the first and the repeated block of each stage, then the head.
        """
        found = SlotColumns(len(choices), self.families)
        height, channels = self._add_backbone(found, choices)[-1]
        found.add("head", channels, class_count(size), height)
        return found.slots()

    def _add_backbone(self, found: SlotColumns, choices: Choices) -> list[tuple[Ints, Ints]]:
        """Add the slots of stem and stages; returns the height and the channels (n,) behind each stage."""
        resolution = self.resolutions(choices)
        stride = strides(resolution, len(self.table.stages), self._early(choices))
        channels = np.array(self.table.stem_widths, dtype=np.int64)[choices[:, self.column("stem.width")]]
        found.add("stem", 3, channels, resolution, kernel=3, stride=stride[:, 0],
                  activation=self._option(choices, self._stage_columns[0], "act"))  # fmt: skip
        height = -(-resolution // stride[:, 0])
        ends: list[tuple[Ints, Ints]] = []
        for stage, columns in enumerate(self._stage_columns):
            blocks, step = self._section_blocks(choices, columns), stride[:, stage + 1]
            add_blocks(found, blocks, channels, height, stride=step)
            height, channels = -(-height // step), blocks.width
            add_blocks(found, blocks, channels, height, count=self._values(choices, columns, "depth") - 1)
            ends.append((height, channels))
        return ends

    def _section_blocks(self, choices: Choices, columns: Mapping[str, int], width: Ints | None = None) -> SectionBlocks:
        """Blocks that the decisions of one section stand for; `width` where the section does not decide about it."""
        family = self._option(choices, columns, "family")
        kernels = np.array(self.table.kernels)[self._option(choices, columns, "kernel")]
        ratios = np.array([family.expansions for family in self._table_families])
        groups = np.ones(len(choices), dtype=np.int64)
        if "groups" in columns:
            grouped = self._option(choices, columns, "groups") > 0
            groups = np.where(grouped, np.maximum(1, self._grouped_channels(choices, columns) // GROUP_WIDTH), 1)
        return SectionBlocks(
            kind=np.array([list(self.families).index(f) for f in self.table.families], dtype=np.int64)[family],
            width=self._values(choices, columns, "width") if width is None else width,
            kernel=np.where(self._uses["kernel"][family], kernels, 3),
            ratio=ratios[family, self._option(choices, columns, "expansion")],
            groups=groups,
            se=self._option(choices, columns, "se"),
            activation=self._option(choices, columns, "act"),
        )

    @cached_property
    def slot_decisions(self) -> tuple[tuple[int, ...], ...]:
        width, resolution = self._stage_columns[-1]["width"], self.column("resolution")
        return (*self._backbone_decisions, (width, resolution))

    @cached_property
    def _backbone_decisions(self) -> tuple[tuple[int, ...], ...]:
        """`slot_decisions` of stem and stages."""
        stem, act = self.column("stem.width"), self._stage_columns[0].get("act")
        places = (*([self.column(EARLY)] if self.table.early else []), self.column("resolution"))
        found: list[tuple[int, ...]] = [(stem, *places) if act is None else (stem, act, *places)]
        width = stem
        for columns in self._stage_columns:
            own = tuple(column for short, column in columns.items() if short != "depth")
            found += [(width, *own, *places), (*own, *places)]
            width = columns["width"]
        return tuple(found)

    def slot_counts(self, choices: Choices) -> Ints:
        return np.stack([*self._backbone_counts(choices), np.ones(len(choices), dtype=np.int64)], axis=1)

    def _backbone_counts(self, choices: Choices) -> list[Ints]:
        """`slot_counts` of stem and stages, each (n,)."""
        ones = np.ones(len(choices), dtype=np.int64)
        depths = [self._values(choices, columns, "depth") for columns in self._stage_columns]
        return [ones, *(count for depth in depths for count in (ones, depth - 1))]

    def slot_places(self, arch: Architecture) -> tuple[tuple[str, ...], ...]:
        return (*self._backbone_places(arch), ("head",))

    def _backbone_places(self, arch: Architecture) -> list[tuple[str, ...]]:
        """`slot_places` of stem and stages."""
        places: list[tuple[str, ...]] = [("stem",)]
        for stage, depth in enumerate(self.stage_depths(arch)):
            places += [(f"stages.{stage}.0",), tuple(f"stages.{stage}.{i}" for i in range(1, depth))]
        return places

    def blocks(self, arch: Architecture, size: Size = IMAGENET) -> tuple[BlockSpec, ...]:
        return tuple(self.slots(self.choices([arch]), size).specs(0))

    def stage_depths(self, arch: Architecture) -> tuple[int, ...]:
        """Blocks of each stage."""
        choices = self.choices([arch])
        return tuple(int(self._values(choices, columns, "depth")[0]) for columns in self._stage_columns)

    def build(self, arch: Architecture, size: Size = IMAGENET) -> "nn.Module":
        from search_spaces.modules import StagedNetwork, sequential

        modules = [self.families[spec.kind].build(spec) for spec in self.blocks(arch, size)]
        bounds = np.cumsum([1, *self.stage_depths(arch)])
        stages: list[nn.Module] = [sequential(*modules[a:b]) for a, b in pairwise(bounds)]
        return StagedNetwork(modules[0], stages, modules[-1])

    # -- costs and features ------------------------------------------------------------------------

    def costs(self, choices: Choices, size: Size = IMAGENET) -> dict[str, NDArray[np.float64]]:
        return super().costs(choices, size)

    def features(self, choices: Choices) -> NDArray[np.float64]:
        costs = self.costs(choices, self.usual_size)
        columns = [
            np.log(costs["macs"]),
            np.log(costs["params"]),
            np.log(costs["activations"]),
            costs["depthwise_macs"] / costs["macs"],
            np.log(costs["layers"]),
            np.log(self.resolutions(choices)),
            *([self._early(choices)] if self.table.early else []),
        ]
        for at in self._sections.values():
            if "width" in at:
                columns.append(np.log(self._values(choices, at, "width")))
            columns.append(self._values(choices, at, "depth"))
            columns += [choices[:, at[s]] for s in _PLAIN_FEATURES if s in at]
            if "family" in at:
                columns += [choices[:, at["family"]] == f for f in range(len(self.table.families))]
        return np.stack([np.asarray(c, dtype=np.float64) for c in columns], axis=1)

    @property
    def feature_names(self) -> tuple[str, ...]:
        names = ["log_macs", "log_params", "log_activations", "depthwise_share", "log_layers", "log_resolution"]
        names += [EARLY] if self.table.early else []
        for section, at in self._sections.items():
            shorts = ["log_width"] * ("width" in at) + ["depth", *(s for s in _PLAIN_FEATURES if s in at)]
            if "family" in at:
                shorts += [f"is_{family}" for family in self.table.families]
            names += [f"{section}.{short}" for short in shorts]
        return tuple(names)

    @property
    def anchors(self) -> tuple[Architecture, ...]:
        """Those of the table at each resolution; one that shrinks its maps earlier where it can."""
        found: list[Architecture] = []
        for anchor in self.table.anchors:
            row = [d.index(anchor[d.name]) if d.name in anchor else 0 for d in self.decisions]
            same = [
                self.architecture([*row[:-1], resolution])
                for resolution in self.allowed[-1]
                if all(c in a for c, a in zip(row[:-1], self.allowed[:-1], strict=True))
            ]
            found += [arch for arch in same if self.parameters(arch).get(EARLY, 0) == anchor.get(EARLY, 0)]
        return tuple(found)

    @property
    def designs(self) -> tuple[tuple[Architecture, ...], ...]:
        found: dict[tuple[int, ...], list[Architecture]] = {}
        for anchor in self.anchors:
            found.setdefault(anchor.choices[:-1], []).append(anchor)
        return tuple(tuple(sorted(same, key=self.resolution, reverse=True)) for same in found.values())


_PLAIN_FEATURES = ("kernel", "expansion", "se", "act", "groups", "path", "width_percent")
"""Decisions whose option numbers are features as they are."""


def _image(side: int) -> TensorSpec:
    """An RGB image of `side` rows and columns."""
    return TensorSpec((3, side, side))


def add_blocks(
    found: SlotColumns, blocks: SectionBlocks, channels: Ints, height: Ints, *, stride: Any = 1, count: Any = 1
) -> None:
    """Add a slot of a section's block, with `channels` (n,) coming in on a map of `height` (n,)."""
    found.add(blocks.kind, channels, blocks.width, height, kernel=blocks.kernel, stride=stride, ratio=blocks.ratio,
              groups=blocks.groups, se=blocks.se, activation=blocks.activation, count=count)  # fmt: skip


def block_options(families: Sequence[BlockFamily]) -> frozenset[str]:
    """Which of `kernel`, `expansion`, `se` and `groups` matter to some of the families."""
    return frozenset().union(*(family.uses for family in families))


def section_decisions(
    section: str, table: SpaceTable, used: frozenset[str], widths: tuple[int, ...], depths: tuple[int, ...]
) -> list[Decision]:
    """The decisions about one section's blocks; `used` are those of `block_options` to decide about. Without `widths`,
    the section does not decide about its width."""
    options: list[tuple[str, tuple[Option, ...]]] = []
    if len(table.families) > 1:
        options.append(("family", table.families))
    if widths:
        options.append(("width", widths))
    options.append(("depth", depths))
    if "kernel" in used:
        options.append(("kernel", table.kernels))
    if "expansion" in used:
        options.append(("expansion", EXPANSION_LEVELS))
    if "se" in used:
        options.append(("se", (0, 1)))
    options.append(("act", ACTIVATIONS))
    if "groups" in used:
        options.append(("groups", ("dense", f"width{GROUP_WIDTH}")))
    return [Decision(f"{section}.{short}", values) for short, values in options]
