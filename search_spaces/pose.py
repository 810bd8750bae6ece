"""The space of one-stage pose networks: that of detectors, with a third tower on each level for the points of a person.

As in YOLO-NAS-Pose (Aharon et al. 2023) and YOLOv8-pose (Jocher et al. 2023) each cell predicts a box, a score and
where the points are, so that a picture takes one call however many persons are on it. Points want more than boxes do:
the tower (`pose.*`) decides about blocks of its own, and may be wider than the neck.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from search_spaces.architecture import Architecture, Decision
from search_spaces.blocks import Ints
from search_spaces.detect import LEVELS, PARTS, STRIDES, TOWER_OPTIONS, DetectSpace, DetectTable, chain
from search_spaces.families.pose import BEFORE_POINTS, POINT_VALUES
from search_spaces.signature import OutputSpec, Signature, Size
from search_spaces.slots import SlotColumns
from search_spaces.space import Choices
from search_spaces.staged import add_blocks, block_options, section_decisions

if TYPE_CHECKING:
    from torch import nn

ANCHOR_FREE_POSE = "anchor-free-pose"
"""Kind of the output: a box, the logit of the one class, and x, y and the logit of each point, for each cell."""
COCO_PERSON: Size = (1, 17)
"""One class with the 17 points of COCO's persons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoseTable(DetectTable):
    """A detector, and what its third tower can be."""

    pose_depths: tuple[int, ...]
    pose_width_percents: tuple[int, ...]
    """Widths of the tower, in per cent of the neck's."""


class PoseSpace(DetectSpace):
    """A space of pose networks given by a `PoseTable`.

    The size of an answer is `(1, points)`. Networks that are built to be timed beside those of other tasks are given a
    number of classes alone, and have COCO's points then.
    """

    task = "pose"
    usual_size: Size = COCO_PERSON
    table: PoseTable

    def _table_decisions(self) -> list[Decision]:
        *detector, resolution = super()._table_decisions()
        used = block_options(self._table_families) & TOWER_OPTIONS
        tower = section_decisions("pose", self.table, used, (), self.table.pose_depths)
        width = Decision("pose.width_percent", self.table.pose_width_percents)
        return [*detector, *tower, width, resolution]

    def signature(self, arch: Architecture, size: Size = COCO_PERSON) -> Signature:
        """An RGB image; raw boxes, scores and points of the cells of all levels, `(cells, 5 + 3 * points)`."""
        cells = sum((self.resolution(arch) // stride) ** 2 for stride in STRIDES)
        return Signature(self.input(arch), OutputSpec(ANCHOR_FREE_POSE, size, (cells, row_length(size))))

    def _add_predictions(
        self, found: SlotColumns, choices: Choices, size: Size, heights: Sequence[Ints], width: Ints,
        counts: Iterator[Ints],
    ) -> None:  # fmt: skip
        percent = self._values(choices, self._sections["pose"], "width_percent")
        wide = width * percent // 100
        tower = self._section_blocks(choices, self._sections["pose"], wide)
        for height in heights:
            for given in (width, wide):
                add_blocks(found, tower, given, height, count=next(counts))
        for height in heights:
            found.add("predict_pose", width, row_length(size), height, ratio=percent / 100, count=next(counts))

    @property
    def _prediction_decisions(self) -> tuple[tuple[int, ...], ...]:
        width, resolution, own = self.column("neck.width"), self.column("resolution"), self._sections["pose"]
        block = tuple(own[d] for d in ("family", "width_percent", "kernel", "expansion", "act") if d in own)
        return (
            *((width, *block, resolution) for _ in LEVELS for _ in range(2)),
            *((width, own["width_percent"], resolution) for _ in LEVELS),
        )

    def _prediction_counts(self, choices: Choices) -> list[Ints]:
        ones = np.ones(len(choices), dtype=np.int64)
        depth = self._values(choices, self._sections["pose"], "depth")
        return [*(count for _ in LEVELS for count in (ones, depth - 1)), *(ones for _ in LEVELS)]

    def _prediction_places(self, choices: Choices) -> tuple[tuple[str, ...], ...]:
        depth = int(self._values(choices, self._sections["pose"], "depth")[0])
        towers = [chain("pose_towers", level, depth) for level in LEVELS]
        ends = super()._prediction_places(choices)
        return (*(part for tower in towers for part in (tower[:1], tower[1:])), *ends)

    def _assembled(self, stem: "nn.Module", each: Callable[[str], list["nn.Module"]]) -> "nn.Module":
        from search_spaces.pose_network import PoseNetwork

        return PoseNetwork(stem, each("stages"), **{name: each(name) for name in (*PARTS, "pose_towers")})


def row_length(size: Size) -> int:
    """Numbers that are predicted for each cell; raises `ValueError` for more than one class."""
    if len(size) == 1:
        size = COCO_PERSON
    if len(size) != 2 or size[0] != 1:
        raise ValueError(f"an answer of poses has the size (1, points), got {size}")
    return BEFORE_POINTS + POINT_VALUES * size[1]
