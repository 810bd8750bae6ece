"""From operators' times to blocks' times: which block of a network an operator belongs to."""

import math
from collections.abc import Sequence

from nas.runtimes.nodes import NodeTime


def slot_times_ms(nodes: Sequence[NodeTime], places: Sequence[Sequence[str]]) -> tuple[float, ...]:
    """Milliseconds of each block slot of a network, whose modules are named in `places` (`SearchSpace.slot_places`).

    The blocks of a slot are equal, so their mean is given; NaN where a network has none. Operators carry the paths of
    their modules as the ONNX exporter writes them, such as `/stages.0/stages.0.1/body/body.0/conv/Conv`. One that the
    runtime added between two blocks (a change of layout, a conversion) is paid by the block that needs it, the next
    one.
    """
    slot_of = {name: slot for slot, names in enumerate(places) for name in names}
    sums = [0.0] * len(places)
    waiting = 0.0
    slot = 0
    for node in nodes:
        scopes = node.name.split("/")[1:]
        found = next((slot_of[scope] for scope in scopes if scope in slot_of), None)
        if found is None:
            waiting += node.ms
            continue
        slot = found
        sums[slot] += node.ms + waiting
        waiting = 0.0
    sums[slot] += waiting
    return tuple(ms / len(names) if names else math.nan for ms, names in zip(sums, places, strict=True))
