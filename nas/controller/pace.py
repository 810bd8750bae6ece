"""How fast this host trains: measured and kept in the user's cache, so that repeated searches decide the same.

Where the clock ends a search nothing repeats exactly, and a shared host has slow and quick hours: there it is measured
again after an hour.

A pace that was measured while the host was busy would make every later search too careful. So a search compares it with
what its trainings took, and forgets one that is wrong; its own plan stays, and the next search measures again.
"""

import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from nas.controller.plan import nominal_image_s
from nas.files.writing import write_json
from nas.measure.host import fingerprint, usable_threads
from nas.measure.reference import cache_folder
from nas.training.config import Precision
from search_spaces import Architecture, SearchSpace
from search_spaces.signature import Size, TensorSpec

if TYPE_CHECKING:
    from torch import nn

SLOWEST = 64.0
QUANTILES = (0.1, 0.2, 0.3, 0.4)
"""Networks to time, by their nominal training time within the space: the cheaper ones, which short budgets train."""
ENOUGH_S = 4.0
"""No further network is timed after so many seconds."""
FRESH_S = 3600.0
"""Age up to which a recorded pace is believed where the clock ends the search."""
FEWEST = 3
"""Trainings without which a recorded pace is not doubted."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The precision that this host trains in, and how its training times compare with nominal ones."""

    precision: Precision
    factor: float
    """Measured by nominal seconds of a training step, in half octaves: what a search plans with must not follow noise,
    and the rules for short trainings need no more."""
    measured_at: float = field(default=0.0, compare=False)
    """Seconds since 1970; 0: not known."""


def host_pace(
    space: SearchSpace, size: Size, batch: int, folder: Path | None = None, *, fresh_s: float = math.inf
) -> Pace:
    """The pace on networks of `space` in batches of `batch` images; `folder` is the user's cache.

    Measured where no search on this host left it there in the last `fresh_s` seconds. A file that cannot be read is
    written anew.
    """
    path, key = _path(folder), _key(space, batch)
    known = _known(path)
    if key not in known or time.time() - known[key].measured_at > fresh_s:
        known[key] = _measured(space, size, batch)
        write_json(path, {name: asdict(entry) for name, entry in known.items()})
    return known[key]


def forget_wrong_pace(
    space: SearchSpace, batch: int, pace: Pace, ratios: Sequence[float], folder: Path | None = None
) -> float | None:
    """Forget the recorded pace where trainings took more than one step of its scale longer or shorter than it says.

    Args:
        space: the searched one.
        batch: images in a batch, as in `host_pace`.
        pace: what the trainings were planned with; another one in the cache is newer, and stays.
        ratios: of each finished training its seconds by those expected at that pace.
        folder: the user's cache.

    Returns the median ratio where the pace was wrong and is no longer recorded, else None.
    """
    if len(ratios) < FEWEST:
        return None
    ratio, path = median(ratios), _path(folder)
    if abs(_steps(ratio)) <= 1:
        return None
    known = _known(path)
    if known.pop(_key(space, batch), None) != pace:
        return None
    write_json(path, {name: asdict(entry) for name, entry in known.items()})
    return ratio


def _measured(space: SearchSpace, size: Size, batch: int) -> Pace:
    from nas.training.precision import faster, step_seconds, step_times

    anchor = _anchor(space)

    def nominal_s(arch: Architecture) -> float:
        costs = space.costs(space.choices([arch]), size)
        return batch * float(nominal_image_s(costs, usable_threads())[0])

    def network(arch: Architecture) -> "nn.Module":
        return space.build(arch, size)

    times = step_times(network(anchor), _input(space, anchor), batch)
    precision = faster(times)
    ratios, start = [times[precision] / nominal_s(anchor)], time.monotonic()
    for arch in _typical(space, size):
        if time.monotonic() - start < ENOUGH_S:
            ratios.append(step_seconds(network(arch), _input(space, arch), batch, precision) / nominal_s(arch))
    return Pace(precision, rounded_pace(median(ratios)), time.time())


def _typical(space: SearchSpace, size: Size) -> list[Architecture]:
    sampled = space.sample(256, np.random.default_rng(0))
    order = np.argsort(nominal_image_s(space.costs(sampled, size), 1))
    return [space.architecture(sampled[order[int(q * len(order))]]) for q in QUANTILES]


def rounded_pace(ratio: float) -> float:
    """The nearest power of the square root of two, by ratio, between 1/64 and 64."""
    return float(2.0 ** (_steps(ratio) / 2))


def _steps(ratio: float) -> int:
    """A ratio in steps of the scale: half octaves."""
    return round(2 * math.log2(min(SLOWEST, max(1 / SLOWEST, ratio))))


def _anchor(space: SearchSpace) -> Architecture:
    largest = [design[0] for design in space.designs] or [space.architecture([a[-1] for a in space.allowed])]
    return max(largest, key=lambda arch: math.prod(_input(space, arch).shape))


def _input(space: SearchSpace, arch: Architecture) -> TensorSpec:
    return space.signature(arch, space.usual_size).input


def _path(folder: Path | None) -> Path:
    return (folder or cache_folder()) / "training-pace.json"


def _key(space: SearchSpace, batch: int) -> str:
    shape = "x".join(map(str, _input(space, _anchor(space)).batched(batch)))
    return f"{_host()}; {space.name} on {shape}"


def _host() -> str:
    host = fingerprint()
    torch = dict(host.packages).get("torch", "?")
    return f"{host.cpu_model}, {usable_threads()} threads, {host.gpu or 'no GPU'}, torch {torch}"


def _known(path: Path) -> dict[str, Pace]:
    try:
        document: dict[str, Any] = json.loads(path.read_text())
        found = {
            name: Pace(entry["precision"], float(entry["factor"]), float(entry.get("measured_at", 0.0)))
            for name, entry in document.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    return {n: p for n, p in found.items() if p.precision in ("fp32", "bf16") and 1 / SLOWEST <= p.factor <= SLOWEST}
