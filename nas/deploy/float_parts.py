"""Parts of a network that int8 may leave in floating point, smallest first."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nas.runtimes.base import FloatPart
from nas.runtimes.onnx_file import output_nodes
from nas.tasks.task import PartlyFloat

FLOAT_PARTS: Mapping[str, int] = {"last layer": 1, "last 3 layers": 3}
"""Name that people give a part -> number of layers with weights it has on each way to the output."""


def usual_part(task: Any) -> str:
    """The name of the part that int8 leaves in floating point from the start in networks of a task; empty: none."""
    return task.int8_float_part if isinstance(task, PartlyFloat) else ""


def float_part(name: str, onnx: Path) -> FloatPart:
    """The part of `FLOAT_PARTS` called `name`, in the network at `onnx`."""
    return FloatPart(name.replace(" ", "-"), tuple(map(re.escape, output_nodes(onnx, FLOAT_PARTS[name]))))


def larger_parts(than: str) -> tuple[str, ...]:
    """The names of the parts that are larger than the one called `than`, smallest first; empty: all of them."""
    names = tuple(FLOAT_PARTS)
    return names[names.index(than) + 1 :] if than else names
