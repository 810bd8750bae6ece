"""Times of every option in its place, from a few measured networks; and of any network made of them.

A block alone is not as fast as in a network: what is kept in caches, fused, or converted between two blocks differs.
So whole networks are measured, in each of which all units have the same option, and the runtime's own profiler tells
the times of their units. The sum of the units' times is then mapped to the time of a call, by all networks measured.
"""

import copy
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import nn

from nas.baseline.library import Library
from nas.baseline.scores import refitted
from nas.baseline.selection import fastest_of, total
from nas.deploy.onnx import export_onnx
from nas.deployment import Deployment, Placement, common_batch
from nas.errors import UserError
from nas.measure.block_times import slot_times_ms
from nas.measure.measurement import Measurement, MeasureRequest
from nas.measure.protocol import measure
from nas.networks.derived import OWN_FORM, Form
from nas.networks.options import DROP, KEEP, all_with
from nas.networks.units import places
from nas.runtimes import load_runtime
from search_spaces import TensorSpec
from search_spaces.modules import set_norm_statistics

References = Mapping[Placement, float]
"""Milliseconds of the reference network on each placement, which runs it with its own number of threads."""
SECONDS, PROFILED_S = 0.15, 0.3
"""Seconds of timing each network's calls, and its operators one by one."""
CALIBRATION_INPUTS = 16
WORTH = 0.9
"""An option has to take at most this share of the unit's own time, or it is not worth teaching."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A network of options that was measured in one deployment."""

    options: tuple[str, ...]
    p50_ms: float


@dataclass(frozen=True)
class UnitTimes:
    """Times of all options in one deployment."""

    deployment: Deployment
    unit_ms: tuple[Mapping[str, float], ...]
    """For each unit the milliseconds of each option; inf where it was not measured."""
    timed: tuple[Timed, ...]
    """The networks in which units were timed: they say how sums map to calls."""
    mixed: tuple[Timed, ...] = ()
    """Networks of different options, measured later: they say how far off that is for such."""
    form: Form = OWN_FORM
    """That all of them have."""

    @property
    def line(self) -> tuple[float, float]:
        """Offset in ms and factor from the sum of the units' times to that of a call, by least relative squares."""
        known = [(total(self.unit_ms, t.options), t.p50_ms) for t in self.timed]
        points = np.array([(sum_ms, call_ms) for sum_ms, call_ms in known if math.isfinite(sum_ms + call_ms)])
        if not len(points):
            return 0.0, 1.0
        sums, calls = points.T
        if len(np.unique(sums)) > 1:
            design = np.stack([1 / calls, sums / calls], axis=1)
            offset, factor = np.linalg.lstsq(design, np.ones(len(calls)), rcond=None)[0]
            if offset >= 0 < factor:
                return float(offset), float(factor)
        shares = sums / calls
        return 0.0, float(shares.sum() / (shares**2).sum()) if shares.any() else 1.0

    @cached_property
    def call_ms(self) -> tuple[Mapping[str, float], ...]:
        """For each unit what each option adds to a call: by the line, corrected by networks of different options."""
        offset, factor = self.line
        shared = offset / len(self.unit_ms)
        on_line = [{name: shared + factor * ms for name, ms in named.items()} for named in self.unit_ms]
        return tuple(refitted(on_line, [(t.options, t.p50_ms) for t in self.mixed]))

    def predicted_ms(self, options: Sequence[str]) -> float:
        """Milliseconds of a call."""
        return total(self.call_ms, options)

    @property
    def fastest(self) -> tuple[str, ...]:
        """The fastest option of each unit."""
        return fastest_of(self.unit_ms, self.call_ms)

    def completed(self, whole: "UnitTimes") -> "UnitTimes":
        """With options that were not measured in this form: they take as much less than in the form of `whole` as the
        unit itself does."""
        unit_ms = [
            {
                name: own[name] if math.isfinite(own[name]) else ms * own[KEEP] / before[KEEP] if before[KEEP] else 0.0
                for name, ms in before.items()
            }
            for own, before in zip(self.unit_ms, whole.unit_ms, strict=True)
        ]
        return replace(self, unit_ms=tuple(unit_ms))

    def with_mixed(self, more: Iterable[Timed]) -> "UnitTimes":
        """What was learnt from further networks; a network measured again counts with its last time."""
        known = {t.options: t for t in (*self.mixed, *more)}
        return replace(self, mixed=tuple(known.values()))

    @property
    def errors(self) -> tuple[float, ...]:
        """Relative errors of the predictions for networks of different options, each predicted without its own
        measurement."""
        found = []
        for left_out in self.mixed:
            others = replace(self, mixed=tuple(t for t in self.mixed if t is not left_out))
            found.append(abs(others.predicted_ms(left_out.options) / left_out.p50_ms - 1))
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        """A document for `from_json`."""
        return {
            "deployment": asdict(self.deployment),
            "form": self.form.to_json(),
            "unit_ms": [
                {name: ms if math.isfinite(ms) else None for name, ms in named.items()} for named in self.unit_ms
            ],
            **{
                name: [{"options": list(t.options), "p50_ms": t.p50_ms} for t in known]
                for name, known in (("timed", self.timed), ("mixed", self.mixed))
            },
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "UnitTimes":
        """Inverse of `to_json`."""
        timed, mixed = (
            tuple(Timed(tuple(t["options"]), t["p50_ms"]) for t in document[name]) for name in ("timed", "mixed")
        )
        unit_ms = tuple(
            {name: math.inf if ms is None else ms for name, ms in named.items()} for named in document["unit_ms"]
        )
        return cls(Deployment(**document["deployment"]), unit_ms, timed, mixed, Form.from_json(document["form"]))


def mean_error(tables: Iterable[UnitTimes]) -> float:
    """Mean of the `errors` of all tables; NaN with fewer than two of them."""
    errors = [error for table in tables for error in table.errors]
    return float(np.mean(errors)) if len(errors) > 1 else math.nan


def measure_options(
    library: Library,
    input: TensorSpec,
    deployments: Sequence[Deployment],
    folder: Path,
    prepare: Callable[[Path], object] = lambda folder: None,
    on_network: Callable[[str], None] = lambda name: None,
    references: References = MappingProxyType({}),
    form: Form | None = None,
    only: Collection[str] | None = None,
) -> list[UnitTimes]:
    """Times of all options of `library` in each deployment whose runtime times operators.

    Args:
        library: taught or not: times do not depend on weights.
        input: of the network.
        deployments: of one batch.
        folder: for files.
        prepare: adds to the folder of a network what else is needed to time it.
        on_network: gets the name of each option whose network was made.
        references: usual times of the reference network, by which others are scaled where the machine is faster or
            slower just now.
        form: of the networks that are measured, whose `input` it is; None: the library's own.
        only: options to measure; None: all.

    Raises:
        UserError: no runtime of the deployments times operators, or nothing could be measured.
    """
    names = dict.fromkeys(n for offered in library.offered for n in offered if only is None or n in only)
    requests: list[tuple[str, tuple[str, ...], MeasureRequest]] = []
    for name in names:
        options = all_with(name, [dict.fromkeys(offered) for offered in library.offered])
        place = folder / name
        network = _timeable(library.network(options), input)
        requests += [(name, options, r) for r in _prepared(network, input, deployments, place)]
        prepare(place)
        on_network(name)
    # Operators are timed in calls without a pause, of the network alone.
    both = dict.fromkeys(d for _, _, r in requests for d in (r, _continuous(r)))
    found = measure(list(both), sessions=1, seconds_per_model=SECONDS, node_seconds=PROFILED_S)
    by_request = {m.request: m for m in found}
    tables = []
    for deployment in deployments:
        measured = {
            name: (options, by_request[request], by_request[_continuous(request)])
            for name, options, request in requests
            if request.deployment == deployment
        }
        table = _table(library, deployment, measured, references, form or Form(library.width))
        tables += [] if table is None else [table]
    if not tables:
        told = ", ".join(d.name for d in deployments)
        raise UserError(f"the times of units could not be measured in {told}", "allow ONNX Runtime or OpenVINO")
    return tables


def time_networks(
    networks: Sequence[tuple[tuple[str, ...], nn.Module]],
    input: TensorSpec,
    deployments: Sequence[Deployment],
    folder: Path,
    prepare: Callable[[Path], object] = lambda folder: None,
    sessions: int = 1,
    references: References = MappingProxyType({}),
) -> dict[Deployment, list[Timed]]:
    """Measured times of whole networks in each of the deployments, scaled as in `measure_options`.

    Those that failed are left out.
    """
    requests: list[tuple[tuple[str, ...], MeasureRequest]] = []
    for number, (options, network) in enumerate(networks):
        place = folder / str(number)
        requests += [(options, r) for r in _prepared(network, input, deployments, place)]
        prepare(place)
    found = {m.request: m for m in measure([r for _, r in requests], sessions=sessions, seconds_per_model=2 * SECONDS)}
    times: dict[Deployment, list[Timed]] = {d: [] for d in deployments}
    for options, request in requests:
        if found[request].failed is None:
            times[request.deployment].append(Timed(options, _usual_ms(found[request], references)))
    return times


def _continuous(request: MeasureRequest) -> MeasureRequest:
    return replace(request, deployment=request.deployment.continuous)


def _usual_ms(measured: Measurement, references: References) -> float:
    """What a network would take, in its slowest session, where the reference network takes what it usually does."""
    scale = references.get(measured.request.deployment.placement, math.nan) / measured.reference_p50_ms
    return measured.worst_session_p50_ms * (scale if math.isfinite(scale) else 1.0)


def most_different(tables: Iterable[UnitTimes]) -> str:
    """The option whose networks are fastest where all units have it that can: beside `KEEP` it tells how sums of units'
    times map to calls."""
    (table, *_) = tables
    sums = {name: total(table.unit_ms, all_with(name, table.unit_ms)) for named in table.unit_ms for name in named}
    return min(sums, key=lambda name: (name == KEEP, sums[name]))


def worthwhile(tables: Sequence[UnitTimes]) -> tuple[tuple[str, ...], ...]:
    """For each unit the options that are clearly faster than it in one of the deployments; without `KEEP`."""
    units = len(tables[0].unit_ms)
    return tuple(
        tuple(
            name
            for name in tables[0].unit_ms[i]
            if name != KEEP and any(t.unit_ms[i][name] <= WORTH * t.unit_ms[i][KEEP] for t in tables)
        )
        for i in range(units)
    )


def _table(
    library: Library,
    deployment: Deployment,
    measured: Mapping[str, tuple[tuple[str, ...], Measurement, Measurement]],
    references: References,
    form: Form,
) -> UnitTimes | None:
    named = places(library.units)
    unit_ms: list[dict[str, float]] = [dict.fromkeys(offered, math.inf) for offered in library.offered]
    timed = []
    for name, (options, found, inside) in measured.items():
        if found.failed is not None or inside.failed is not None:
            continue
        timed.append(Timed(options, _usual_ms(found, references)))
        nodes = inside.sessions[0].nodes
        seen = {scope for node in nodes for scope in node.name.split("/")}
        if not seen & set(named):
            continue
        times_ms = slot_times_ms(nodes, [[place] for place in named])
        for i, option in enumerate(options):
            if option == name:
                unit_ms[i][name] = 0.0 if name == DROP else times_ms[i]
    if any(not math.isfinite(times[KEEP]) for times in unit_ms):
        return None
    return UnitTimes(deployment, tuple(unit_ms), tuple(timed), form=form)


def _timeable(network: nn.Module, input: TensorSpec) -> nn.Module:
    """A copy in which activations have unit scale: weights that begin at zero would be optimised away."""
    made = copy.deepcopy(network)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        for module in made.modules():
            if isinstance(module, nn.BatchNorm2d) and module.affine:
                nn.init.ones_(module.weight)
        set_norm_statistics(made, input.draw_torch(CALIBRATION_INPUTS))
    return made.eval()


def _prepared(
    network: nn.Module, input: TensorSpec, deployments: Sequence[Deployment], folder: Path
) -> list[MeasureRequest]:
    folder.mkdir(parents=True, exist_ok=True)
    model = export_onnx(network, input, folder / "model.onnx", common_batch(deployments))
    calibration = input.draw(np.random.default_rng(0), CALIBRATION_INPUTS)
    requests = []
    for d in deployments:
        with suppress(UserError, RuntimeError, ValueError):  # quantisers refuse some graphs
            file = load_runtime(d.runtime).prepare(model, d.precision, folder, calibration)
            requests.append(MeasureRequest(file, d))
    return requests
