"""The space of one-stage detectors: a staged backbone, an FPN or PAN neck, and a decoupled head without anchor boxes.

The backbone's decisions and blocks are those of a staged space, so that one device profile serves both. The neck
(`neck.*`) brings the last three stages to one width: from coarse to fine by 1x1 convolutions and sums (FPN, Lin et al.
2017, https://arxiv.org/abs/1612.03144), and where `neck.path` is `pan` back to coarse by stride 2 and sums (Liu et al.
2018, https://arxiv.org/abs/1803.01534). Each level then has a tower for classes and one for boxes (`head.*`; YOLOX, Ge
et al. 2021, https://arxiv.org/abs/2107.08430) of the neck's width.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from search_spaces.architecture import Architecture, Decision
from search_spaces.blocks import BlockFamily, Ints
from search_spaces.families.detection import BOX_SIDES
from search_spaces.signature import OutputSpec, Signature, Size, class_count
from search_spaces.slots import BlockSlots, SlotColumns
from search_spaces.space import Choices
from search_spaces.staged import IMAGENET, SpaceTable, StagedSpace, add_blocks, block_options, section_decisions

if TYPE_CHECKING:
    from torch import nn

ANCHOR_FREE = "anchor-free"
"""Kind of the output: distances to the sides of a box and class logits, for each cell of each level."""
PATHS = ("fpn", "pan")
STRIDES = (8, 16, 32)
"""Pixels per cell of each level, finest first."""
LEVELS = range(len(STRIDES))
PARTS = ("laterals", "tops", "downs", "bottoms", "class_towers", "box_towers", "predictions")
"""Parts of a detector behind its backbone, each a list of modules."""
TOWER_OPTIONS = frozenset({"kernel", "expansion"})
"""Neck and head decide about no squeeze-and-excitation and no groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectTable(SpaceTable):
    """A staged backbone and what can follow it. Resolutions are multiples of 32 from 128 px on."""

    neck_widths: tuple[int, ...]
    neck_depths: tuple[int, ...]
    head_depths: tuple[int, ...]

    def __post_init__(self) -> None:
        if any(r < 128 or r % STRIDES[-1] for r in self.resolutions):
            raise ValueError(f"detectors need multiples of 32 px from 128 on, got {self.resolutions}")
        if len(self.stages) < len(STRIDES):
            raise ValueError(f"a detector needs {len(STRIDES)} stages, got {len(self.stages)}")


class DetectSpace(StagedSpace):
    """A space of detectors given by a `DetectTable`."""

    task = "detection"
    usual_size: Size = (80,)
    """Number of classes of COCO."""
    chained = False
    table: DetectTable

    def __init__(
        self,
        table: DetectTable,
        allowed: Sequence[Sequence[int]] | None = None,
        *,
        families: Sequence[BlockFamily] = (),
    ) -> None:
        super().__init__(table, allowed, families=families)

    def _table_decisions(self) -> list[Decision]:
        *backbone, resolution = super()._table_decisions()
        table, used = self.table, block_options(self._table_families) & TOWER_OPTIONS
        neck = section_decisions("neck", table, used, table.neck_widths, table.neck_depths)
        head = section_decisions("head", table, used, (), table.head_depths)
        return [*backbone, Decision("neck.path", PATHS), *neck, *head, resolution]

    def signature(self, arch: Architecture, size: Size = IMAGENET) -> Signature:
        """An RGB image; raw boxes and classes of the cells of all levels, `(cells, 4 + classes)`."""
        cells = sum((self.resolution(arch) // stride) ** 2 for stride in STRIDES)
        return Signature(self.input(arch), OutputSpec(ANCHOR_FREE, size, (cells, BOX_SIDES + class_count(size))))

    # -- from choices to blocks ------------------------------------------------------------------

    def slots(self, choices: Choices, size: Size = IMAGENET) -> BlockSlots:
        """The blocks of all rows of `choices` at once.

        Slots are stem and stages as in a staged space, then for every level, finest first: the 1x1 convolutions; the
        neck's blocks; the ways down (from all but the coarsest); the blocks of both towers; the predictions.
        """
        found = SlotColumns(len(choices), self.families)
        ends = self._add_backbone(found, choices)[-len(STRIDES) :]
        counts = iter(self._tail_counts(choices))
        neck = self._section_blocks(choices, self._sections["neck"])
        tower = self._section_blocks(choices, self._sections["head"], neck.width)
        for level, (height, channels) in enumerate(ends):
            kind = "lateral" if level == LEVELS[-1] else "merge"
            found.add(kind, channels, neck.width, height, count=next(counts))
        for height, _ in ends:
            add_blocks(found, neck, neck.width, height, count=next(counts))
        depthwise = self._uses["kernel"][self._option(choices, self._sections["neck"], "family")]
        for height, _ in ends[:-1]:
            found.add("down", neck.width, neck.width, height, kernel=neck.kernel, stride=2,
                      groups=np.where(depthwise, neck.width, 1), activation=neck.activation * depthwise,
                      count=next(counts))  # fmt: skip
        for height, _ in ends:
            add_blocks(found, tower, neck.width, height, count=next(counts))
        self._add_predictions(found, choices, size, [height for height, _ in ends], neck.width, counts)
        return found.slots()

    def _add_predictions(
        self, found: SlotColumns, choices: Choices, size: Size, heights: Sequence[Ints], width: Ints,
        counts: Iterator[Ints],
    ) -> None:  # fmt: skip
        """Add the slots behind the two towers of each level: maps of `heights` (n,) and of the neck's `width` (n,)."""
        for height in heights:
            found.add("predict", width, BOX_SIDES + class_count(size), height, count=next(counts))

    @cached_property
    def slot_decisions(self) -> tuple[tuple[int, ...], ...]:
        resolution, width = self.column("resolution"), self.column("neck.width")
        block = ("family", "width", "kernel", "expansion", "act")
        neck, head = (tuple(self._sections[s][d] for d in block if d in self._sections[s]) for s in ("neck", "head"))
        stages = [columns["width"] for columns in self._stage_columns[-len(STRIDES) :]]
        return (
            *self._backbone_decisions,
            *((stage, width, resolution) for stage in stages),
            *((*neck, resolution) for _ in LEVELS),
            *((*neck, resolution) for _ in LEVELS[1:]),
            *((width, *head, resolution) for _ in LEVELS),
            *self._prediction_decisions,
        )

    @property
    def _prediction_decisions(self) -> tuple[tuple[int, ...], ...]:
        """`slot_decisions` of what `_add_predictions` adds."""
        return tuple((self.column("neck.width"), self.column("resolution")) for _ in LEVELS)

    def slot_counts(self, choices: Choices) -> Ints:
        return np.stack([*self._backbone_counts(choices), *self._tail_counts(choices)], axis=1)

    def _tail_counts(self, choices: Choices) -> list[Ints]:
        """`slot_counts` of neck and head, each (n,)."""
        ones, both_ways = np.ones(len(choices), dtype=np.int64), self._both_ways(choices)
        neck = self._values(choices, self._sections["neck"], "depth")
        head = self._values(choices, self._sections["head"], "depth")
        blocks = [neck if level == 0 else neck * (1 + both_ways) for level in LEVELS]
        return [*(ones for _ in LEVELS), *blocks, *(both_ways for _ in LEVELS[1:]), *(2 * head for _ in LEVELS),
                *self._prediction_counts(choices)]  # fmt: skip

    def _prediction_counts(self, choices: Choices) -> list[Ints]:
        """`slot_counts` of what `_add_predictions` adds, each (n,)."""
        return [np.ones(len(choices), dtype=np.int64) for _ in LEVELS]

    def _both_ways(self, choices: Choices) -> Ints:
        """1 where the neck goes back to coarse, (n,)."""
        return np.asarray(choices[:, self.column("neck.path")] == PATHS.index("pan"), dtype=np.int64)

    def slot_places(self, arch: Architecture) -> tuple[tuple[str, ...], ...]:
        choices = self.choices([arch])
        neck, head = (int(self._values(choices, self._sections[s], "depth")[0]) for s in ("neck", "head"))
        both_ways = bool(self._both_ways(choices)[0])

        return (
            *self._backbone_places(arch),
            *((f"laterals.{level}",) for level in LEVELS),
            *(
                chain("tops", level, neck) + (chain("bottoms", level - 1, neck) if both_ways and level else ())
                for level in LEVELS
            ),
            *((f"downs.{level - 1}",) if both_ways else () for level in LEVELS[1:]),
            *(chain("class_towers", level, head) + chain("box_towers", level, head) for level in LEVELS),
            *self._prediction_places(choices),
        )

    def _prediction_places(self, choices: Choices) -> tuple[tuple[str, ...], ...]:
        """`slot_places` of what `_add_predictions` adds, of the one network in `choices`."""
        return tuple((f"predictions.{level}",) for level in LEVELS)

    def build(self, arch: Architecture, size: Size = IMAGENET) -> "nn.Module":
        from search_spaces.modules import sequential

        names = [name for places in self.slot_places(arch) for name in places]
        specs = self.blocks(arch, size)
        modules = {name: self.families[spec.kind].build(spec) for name, spec in zip(names, specs, strict=True)}

        def each(name: str) -> list["nn.Module"]:
            """The modules `name.0`, `name.1`, ...; where there are `name.0.0`, `name.0.1`, ..., these are chained."""
            chains: dict[str, list[nn.Module]] = {}
            for key, module in modules.items():
                if key.startswith(f"{name}."):
                    chains.setdefault(key.split(".")[1], []).append(module)
            single = name in ("laterals", "downs", "predictions")
            return [chains[n][0] if single else sequential(*chains[n]) for n in sorted(chains)]

        return self._assembled(modules["stem"], each)

    def _assembled(self, stem: "nn.Module", each: Callable[[str], list["nn.Module"]]) -> "nn.Module":
        """The network of a stem and of the modules that `each` gives by the name of their place."""
        from search_spaces.detection_network import DetectionNetwork

        return DetectionNetwork(stem, each("stages"), **{name: each(name) for name in PARTS})


def chain(name: str, index: int, depth: int) -> tuple[str, ...]:
    """The places of the blocks that follow one another in the module `name.index`."""
    return tuple(f"{name}.{index}.{i}" for i in range(depth))
