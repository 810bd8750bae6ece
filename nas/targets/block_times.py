"""From operators' times to blocks' times: which block of a staged network an operator belongs to."""

import math
import re
from collections.abc import Sequence

from nas.runtimes.nodes import NodeTime

_SCOPE = re.compile(r"/(?:(stem)|(head)|stages\.(\d+)/stages\.\d+\.(\d+))(?:/|$)")
"""Module paths as the ONNX exporter writes them into node names."""


def slot_times_ms(nodes: Sequence[NodeTime], depths: Sequence[int]) -> tuple[float, ...]:
    """Milliseconds of each block slot of a staged network whose stages have `depths` blocks.

    Slots are those of `StagedSpace.slots`: stem, then first and repeated block of each stage, head. The repeated
    blocks of a stage are equal, so their mean is given; NaN where a stage has none. An operator that the runtime added
    between two blocks (a change of layout, a conversion) is paid by the block that needs it, the next one.
    """
    head = 1 + 2 * len(depths)
    sums = [0.0] * (head + 1)
    waiting = 0.0
    slot = 0
    for node in nodes:
        found = _SCOPE.search(node.name)
        if found is None:
            waiting += node.ms
            continue
        stem, end, stage, block = found.groups()
        if stem:
            slot = 0
        elif end:
            slot = head
        else:
            slot = 1 + 2 * int(stage) + (int(block) > 0)
        sums[slot] += node.ms + waiting
        waiting = 0.0
    sums[slot] += waiting
    for stage_index, depth in enumerate(depths):
        repeated = 2 + 2 * stage_index
        sums[repeated] = sums[repeated] / (depth - 1) if depth > 1 else math.nan
    return tuple(sums)
