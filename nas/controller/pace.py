"""How fast this host trains: measured once and kept in the user's cache, so that repeated searches decide the same."""

import json
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nas.controller.plan import nominal_image_s
from nas.export.checkpoint import NetworkDescription
from nas.measure.host import fingerprint, usable_threads
from nas.measure.reference import cache_folder
from nas.training.config import Precision
from search_spaces import StagedSpace

SLOWEST = 64.0


@dataclass(frozen=True, slots=True)
class Pace:
    """The precision that this host trains in, and how its training times compare with nominal ones."""

    precision: Precision
    factor: float
    """Measured by nominal seconds of a training step, a power of two: what a search plans with must not follow noise,
    and the rules for short trainings need no more."""


def host_pace(space: StagedSpace, num_classes: int, batch: int, folder: Path | None = None) -> Pace:
    """The pace on a typical network of `space` in batches of `batch` images; `folder` is the user's cache.

    Measured where no earlier search on this host left it there. A file that cannot be read is written anew.
    """
    from nas.training.precision import faster, step_times

    arch = max(space.anchors, key=space.resolution)
    resolution = space.resolution(arch)
    path = (folder or cache_folder()) / "training-pace.json"
    known, key = _known(path), f"{_host()}; {space.name} at {resolution} px in batches of {batch}"
    if key in known:
        return known[key]
    times = step_times(NetworkDescription(arch, num_classes, resolution).build(), resolution, batch)
    precision = faster(times)
    costs = space.costs(space.choices([arch]), num_classes)
    nominal_s = batch * float(nominal_image_s(costs, usable_threads())[0])
    pace = Pace(precision, rounded_pace(times[precision] / nominal_s))
    staged = path.with_name(f".{path.name}.{os.getpid()}")
    staged.write_text(json.dumps({name: asdict(entry) for name, entry in {**known, key: pace}.items()}, indent=1))
    os.replace(staged, path)
    return pace


def rounded_pace(ratio: float) -> float:
    """The nearest power of two, by ratio, between 1/64 and 64."""
    return float(2.0 ** round(math.log2(min(SLOWEST, max(1 / SLOWEST, ratio)))))


def _host() -> str:
    host = fingerprint()
    torch = dict(host.packages).get("torch", "?")
    return f"{host.cpu_model}, {usable_threads()} threads, {host.gpu or 'no GPU'}, torch {torch}"


def _known(path: Path) -> dict[str, Pace]:
    try:
        document: dict[str, Any] = json.loads(path.read_text())
        return {name: Pace(entry["precision"], float(entry["factor"])) for name, entry in document.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
