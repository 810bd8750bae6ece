"""Speed of the device that trains: measured on a few networks and kept, so that repeated searches decide the same.

A training step is described by three figures: what it costs whatever the network (launching it, above all on a GPU),
what the network's own work costs for each image, and what the optimiser's step costs whatever the batch. Small networks
on a GPU are bound by the first, large ones by the second, and small batches by the third.

Where the clock ends a search nothing repeats exactly, and a shared host has slow and quick hours: there it is measured
again after an hour. A throughput that was measured while the device was busy would make every later search too careful.
So one that was measured while other processes took the cores is used by its own search alone, and said; and a search
compares it with what its trainings took, and forgets one that is wrong; its own plan stays, and the next search
measures again.
"""

import hashlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nas.controller.planning.plan import nominal_image_s, nominal_update_s
from nas.deployment import CPU
from nas.files.writing import write_json
from nas.measure.host import fingerprint, usable_threads
from nas.measure.others import is_crowded, others_cores, processor_times
from nas.measure.reference import cache_folder
from nas.tasks import TaskData
from nas.training.precision import Precision
from nas.training.recipe import Recipe
from search_spaces import Architecture, SearchSpace
from search_spaces.signature import Size, TensorSpec

QUANTILES = (0.1, 0.2, 0.3, 0.4, 0.9)
"""Networks to time, by their nominal training time within the space: the cheaper ones, which short budgets train, and
at last a large one, which tells work from launches where all the others are launch-bound."""
ENOUGH_S = 4.0
"""No further network is timed after so many seconds."""
NOTICEABLE = 0.1
"""Fraction of the fastest timed step: an overhead below that is taken for noise, and the whole step for the network's
work."""
UPDATES_S, LEAST_UPDATES = 2.0, 2
"""No further network's step of the optimiser is timed after so many seconds, beyond the fewest."""
STEPS = 2
"""Timed steps of each network, after one to warm up."""
CPU_BATCH = 32
"""Images of a timed step on a CPU, where an image costs the same in larger batches and a large one takes seconds."""
FRESH_S = 3600.0
"""Age up to which a recorded throughput is believed where the clock ends the search."""
FEWEST = 3
"""Trainings without which a recorded throughput is not doubted."""


@dataclass(frozen=True, slots=True)
class TrainingThroughput:
    """The precision that a device trains in, and how long its training steps take.

    The times are measured, and rounded to half octaves: what a search plans with must not follow noise, and the rules
    for short trainings need no more.
    """

    device: str
    """`cpu` with all its usable cores, or `cuda:N`."""
    precision: Precision
    work_s: float
    """Seconds for one nominal second of a network's work (`nas.controller.planning.plan.nominal_image_s`)."""
    step_s: float = 0.0
    """Seconds of each step whatever the network."""
    update_s: float = 0.0
    """Seconds for one nominal second of an optimiser's step (`nas.controller.planning.plan.nominal_update_s`)."""
    teacher_s: float = 0.0
    """Seconds in which a teacher answers for an image; 0: there is none."""
    measured_at: float = field(default=0.0, compare=False)
    """Seconds since 1970; 0: not known."""
    others: float = field(default=0.0, compare=False)
    """Cores that other processes kept busy while it was measured, where they left too few; 0: they did not."""

    def __post_init__(self) -> None:
        known = all(math.isfinite(s) and s >= 0 for s in (self.work_s, self.step_s, self.update_s, self.teacher_s))
        if not (known and self.work_s + self.step_s > 0 and self.precision in ("fp32", "bf16")):
            raise ValueError(
                f"{self.work_s} s of work and {self.step_s} s a step in {self.precision!r} are no throughput"
            )

    def image_s(self, costs: Mapping[str, NDArray[np.float64]], batch: int) -> NDArray[np.float64]:
        """Seconds of a training step per image, (n,), from `SearchSpace.costs` of n networks, in batches of `batch`."""
        whatever_the_batch = self.step_s + self.update_s * nominal_update_s(costs)
        own_s: NDArray[np.float64] = self.work_s * nominal_image_s(costs) + whatever_the_batch / batch
        return own_s + self.teacher_s

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "TrainingThroughput":
        """Inverse of `to_json`. Raises ValueError, KeyError or TypeError for what is none."""
        times = {name: float(document[name]) for name in ("work_s", "step_s", "update_s", "teacher_s", "measured_at")}
        others = float(document.get("others", 0.0))  # older documents do not say
        return cls(device=str(document["device"]), precision=document["precision"], others=others, **times)


def training_device() -> str:
    """The device that trainings here run on: the current GPU where there is one, else the CPU."""
    from nas.training.precision import resolve_device

    where = resolve_device("auto")
    if where.type == CPU:
        return CPU
    import torch

    return f"{where.type}:{torch.cuda.current_device() if where.index is None else where.index}"


def host_throughput(
    space: SearchSpace, size: Size, recipe: Recipe, folder: Path | None = None, *, fresh_s: float = math.inf
) -> TrainingThroughput:
    """The throughput on networks of `space` with the batches and the optimiser of `recipe`; `folder` is the user's
    cache.

    Measured where no search on this host left it there in the last `fresh_s` seconds. A file that cannot be read is
    written anew; what was measured on a busy machine is not written.
    """
    device = training_device()
    path, key = _place(folder, space, recipe, device)
    known = _known(path, key)
    if known is None or time.time() - known.measured_at > fresh_s:
        before = processor_times()
        known = _measured(space, size, recipe, device)
        others = others_cores(before, processor_times())
        if is_crowded(others, usable_threads()):
            return replace(known, others=round(others, 1))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"key": key, **known.to_json()})
    return known


def with_teacher(throughput: TrainingThroughput, name: str, data: TaskData, input: TensorSpec) -> TrainingThroughput:
    """The throughput of trainings with the teacher of that name, whose answers for inputs like `input` are timed.

    Raises:
        UserError: it cannot be loaded, or cannot teach on these data.
    """
    from nas.networks.teachers import load_teacher
    from nas.training.precision import autocast, resolve_device
    from nas.training.setup import fastest_call

    device = resolve_device(throughput.device)
    teacher, inputs = load_teacher(name, data, input, device), input.draw_torch(CPU_BATCH).to(device)

    def answer() -> None:
        with autocast(device, throughput.precision):
            teacher(inputs, features=False)

    return replace(throughput, teacher_s=rounded(fastest_call(answer, device, STEPS) / CPU_BATCH))


def forget_wrong_throughput(
    space: SearchSpace,
    recipe: Recipe,
    throughput: TrainingThroughput,
    ratios: Sequence[float],
    folder: Path | None = None,
) -> float | None:
    """Forget the recorded throughput where trainings took more than one step of its scale longer or shorter than it
    says.

    Args:
        space: the searched one.
        recipe: as in `host_throughput`.
        throughput: what the trainings were planned with; another one in the cache is newer, and stays.
        ratios: of each finished training its seconds by those expected at that throughput.
        folder: the user's cache.

    Returns the median ratio where the throughput was wrong and is no longer recorded, else None.
    """
    if len(ratios) < FEWEST:
        return None
    ratio = median(ratios)
    if abs(_steps(ratio)) <= 1:
        return None
    path, key = _place(folder, space, recipe, throughput.device)
    if _known(path, key) != replace(throughput, teacher_s=0.0):
        return None
    path.unlink(missing_ok=True)
    return ratio


def fitted_steps(step_s: Sequence[float], nominal_s: Sequence[float]) -> tuple[float, float]:
    """(overhead in seconds, seconds for one nominal second) of training steps, neither negative.

    The line through the measured steps with the least relative error. An overhead that is not `NOTICEABLE` is left out,
    and the other figure is then the median ratio.

    Args:
        step_s: measured seconds (> 0) of one step of each network.
        nominal_s: nominal seconds (> 0) of the same steps.
    """
    from scipy.optimize import nnls

    measured, nominal = np.asarray(step_s, dtype=np.float64), np.asarray(nominal_s, dtype=np.float64)
    (overhead, work), _ = nnls(np.column_stack([1 / measured, nominal / measured]), np.ones(len(measured)))
    if len(measured) < 2 or overhead < NOTICEABLE * measured.min():
        return 0.0, float(np.median(measured / nominal))
    return float(overhead), float(work)


def rounded(seconds: float) -> float:
    """The nearest power of the square root of two, by ratio; 0 stays 0."""
    return float(2.0 ** (_steps(seconds) / 2)) if seconds > 0 else 0.0


def _measured(space: SearchSpace, size: Size, recipe: Recipe, device: str) -> TrainingThroughput:
    from nas.training.precision import resolve_device
    from nas.training.setup import ENOUGH_S as STEP_ENOUGH_S
    from nas.training.setup import Setup, fastest, step_seconds, update_seconds

    anchor, where = _anchor(space), resolve_device(device)
    batch = recipe.fixed_batch_size if device != CPU else min(recipe.fixed_batch_size, CPU_BATCH)

    def costs(arch: Architecture) -> dict[str, NDArray[np.float64]]:
        return space.costs(space.choices([arch]), size)

    def step_s(arch: Architecture, setup: Setup) -> float:
        return step_seconds(
            space.build(arch, size), _input(space, arch), setup, where, steps=STEPS, enough_s=STEP_ENOUGH_S
        )

    precisions: tuple[Precision, ...] = ("fp32", "bf16")
    setups = [Setup(precision=precision, channels_last=True, batch_size=batch) for precision in precisions]
    times = {setup: step_s(anchor, setup) for setup in setups}
    best = fastest(times)
    seconds, timed, start = [times[best]], [anchor], time.monotonic()
    for arch in _typical(space, size):
        if time.monotonic() - start < ENOUGH_S:
            seconds.append(step_s(arch, best))
            timed.append(arch)
    overhead, work = fitted_steps(seconds, [batch * float(nominal_image_s(costs(arch))[0]) for arch in timed])
    # From the smallest on: orthogonal steps of a large network take seconds each, and say no more.
    updates: dict[float, float] = {}
    start = time.monotonic()
    for nominal_s, at in sorted((float(nominal_update_s(costs(arch))[0]), at) for at, arch in enumerate(timed)):
        if len(updates) < LEAST_UPDATES or time.monotonic() - start < UPDATES_S:
            updates[nominal_s] = update_seconds(
                space.build(timed[at], size),
                recipe.optimizer,
                where,
                precision=best.precision,
                steps=STEPS,
                enough_s=STEP_ENOUGH_S,
            )
    launch, update = fitted_steps(list(updates.values()), list(updates))
    return TrainingThroughput(
        device, best.precision, rounded(work), rounded(overhead + launch), rounded(update), measured_at=time.time()
    )


def _typical(space: SearchSpace, size: Size) -> list[Architecture]:
    sampled = space.sample(256, np.random.default_rng(0))
    order = np.argsort(nominal_image_s(space.costs(sampled, size)))
    return [space.architecture(sampled[order[int(q * len(order))]]) for q in QUANTILES]


def _steps(ratio: float) -> int:
    """A ratio (> 0) in steps of the scale: half octaves."""
    return round(2 * math.log2(ratio))


def _anchor(space: SearchSpace) -> Architecture:
    """A well-known design with the largest input; in a space without such, a random network."""
    known = [design[0] for design in space.designs]
    known = known or [space.architecture(space.sample(1, np.random.default_rng(0))[0])]
    return max(known, key=lambda arch: math.prod(_input(space, arch).shape))


def largest_input(space: SearchSpace) -> TensorSpec:
    """Input of a well-known design of the space with the largest one."""
    return _input(space, _anchor(space))


def _input(space: SearchSpace, arch: Architecture) -> TensorSpec:
    return space.signature(arch, space.usual_size).input


def _place(folder: Path | None, space: SearchSpace, recipe: Recipe, device: str) -> tuple[Path, str]:
    """The file of one host, device, space, batch and optimiser, and what it is of, in words. A file each: two searches
    that begin at once do not take each other's figures away."""
    shape = "x".join(map(str, _input(space, _anchor(space)).batched(recipe.fixed_batch_size)))
    key = f"{_host(device)}; {space.name} on {shape} with {recipe.optimizer.name}"
    name = hashlib.sha256(key.encode()).hexdigest()[:16]
    return (folder or cache_folder()) / "training-throughput" / f"{name}.json", key


def _host(device: str) -> str:
    host = fingerprint()
    torch = dict(host.packages).get("torch", "?")
    return f"{host.cpu_model}, {usable_threads()} threads, {host.gpu or 'no GPU'}, torch {torch}, on {device}"


def _known(path: Path, key: str) -> TrainingThroughput | None:
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
        return TrainingThroughput.from_json(document) if document["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
