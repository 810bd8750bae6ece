"""What a few measured networks tell of the small ones that a limit asks for, in a loop and with pauses between calls.

`python -m experiments.few_networks --calls 20/s --out docs/few-networks.md` times networks of the bundled spaces in
both patterns, some as a search measures them on an unknown machine and some small ones, and predicts the small ones
from few of the others. Figures mean something on a machine that has nothing else to do.
"""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from nas.calls import CAMERA_MS, calls_text, interval_ms_of
from nas.cli.types import Calls
from nas.deployment import Deployment
from nas.measure.host import fingerprint, usable_threads
from nas.targets.fitting import costs_of
from nas.targets.latency import LatencyModel
from nas.targets.preparing import OUTPUT_SIZE, networks_to_measure, usual_spaces
from nas.targets.priors import prior_profiles
from nas.targets.profile import DeploymentTable, DeviceProfile
from predictors.base import Prediction
from predictors.call_pattern import CallPatternModel
from search_spaces import Architecture, space_of

Floats = NDArray[np.float64]

KNOWN = 8
"""Random networks, and as many as a quick profile has, half of which are small; predictions are from some of them."""
ASKED_SEED = 4711
DRAWS = 3000
ASKED = (2, 20, 80, 200)
"""Ranks by the number of operations, among `DRAWS` random networks of each space, of those that are predicted."""
CLOSE = 0.10


@dataclass(frozen=True, slots=True)
class Plan:
    """Networks to be timed, in the order of a profile of them."""

    random: tuple[Architecture, ...]
    quick: tuple[Architecture, ...]
    """As a search takes them on a machine that it knows nothing of."""
    asked: tuple[Architecture, ...]

    @property
    def all(self) -> tuple[Architecture, ...]:
        """Each once."""
        return tuple({arch.key: arch for arch in (*self.random, *self.quick, *self.asked)}.values())


def planned(seed: int) -> Plan:
    """The same networks for the same seed."""
    rng, spaces, asked = np.random.default_rng(ASKED_SEED + seed), usual_spaces(), list[Architecture]()
    for space in spaces:
        drawn = space.sample(DRAWS, rng)
        order = np.argsort(space.costs(drawn, OUTPUT_SIZE)["macs"], kind="stable")
        asked += [space.architecture(drawn[order[rank]]) for rank in ASKED]
    return Plan(
        random=tuple(networks_to_measure(spaces, KNOWN, seed)),
        quick=tuple(networks_to_measure(spaces, KNOWN, seed, small=True)),
        asked=tuple(asked),
    )


def part_of(profile: DeviceProfile, archs: Sequence[Architecture]) -> DeviceProfile:
    """The profile as if only these of its networks had been measured."""
    places = [profile.networks.index(arch) for arch in archs]

    def fewer(table: DeploymentTable) -> DeploymentTable:
        return replace(table, timings=tuple(table.timings[place] for place in places))

    tables, spaced = tuple(map(fewer, profile.tables)), tuple(map(fewer, profile.spaced))
    return replace(profile, networks=tuple(archs), tables=tables, spaced=spaced)


def latency_ms(profile: DeviceProfile, deployment: Deployment) -> Floats:
    """Of the profile's networks, (n,), NaN where it could not be measured."""
    table = profile.table(deployment)
    assert table is not None  # all deployments of these profiles have one
    return table.column("latency_ms")


def predicted_ms(
    known: DeviceProfile, archs: Sequence[Architecture], deployments: Sequence[Deployment]
) -> dict[Deployment, Floats]:
    """As a search predicts them, (n,) in each deployment, that knows no more of this machine than `known`, with other
    devices as prior."""
    spaces = {arch.space: space_of(arch) for arch in archs}
    helpful = [prior_profiles(known, space) for space in spaces.values()]
    prior = [profile for profile in helpful[0] if all(profile.name in {p.name for p in few} for few in helpful)]
    model = LatencyModel(known, deployments, prior=prior)
    found = {deployment: np.empty(len(archs)) for deployment in deployments}
    for name, space in spaces.items():
        places = [place for place, arch in enumerate(archs) if arch.space == name]
        for deployment, told in model.predict(
            space, space.choices([archs[place] for place in places]), OUTPUT_SIZE
        ).items():
            found[deployment][places] = told.mean
    return found


def by_cube_root(known: DeviceProfile, asked: DeviceProfile, spaced: Deployment) -> Floats:
    """Latencies with pauses (n,) of networks whose latency without is known, by `predictors.call_pattern`."""
    model = CallPatternModel().fit(latency_ms(known, spaced.continuous), latency_ms(known, spaced))
    loop_ms = latency_ms(asked, spaced.continuous)
    return model.predict(Prediction(loop_ms, np.zeros(len(loop_ms)))).mean


def by_constant(known: DeviceProfile, asked: DeviceProfile, spaced: Deployment) -> Floats:
    """The same by a constant, a share of the latency, the number of parameters and that of layers, none negative."""

    def design(profile: DeviceProfile) -> Floats:
        costs, loop_ms = costs_of(profile.networks, OUTPUT_SIZE), latency_ms(profile, spaced.continuous)
        return np.column_stack([np.ones(len(loop_ms)), loop_ms, costs["params"] / 1e6, costs["layers"]])

    loop_ms, paused_ms = latency_ms(known, spaced.continuous), latency_ms(known, spaced)
    weights, _ = nnls(design(known) / paused_ms[:, None], np.maximum(paused_ms - loop_ms, 0) / paused_ms)
    return np.asarray(latency_ms(asked, spaced.continuous) + design(asked) @ weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """How far predictions of one deployment are off, relative to what was measured."""

    mean: float
    within_10pct: float


Errors = dict[str, dict[str, Error]]


def error_of(predicted: Floats, measured: Floats) -> Error:
    errors = np.abs(predicted / measured - 1)
    return Error(mean=float(errors.mean()), within_10pct=float((errors <= CLOSE).mean()))


def errors(profile: DeviceProfile, plan: Plan, interval_ms: float) -> Errors:
    """For each way to predict the asked networks, the error in each deployment by name. Networks that could not be
    measured in every way are left out."""
    continuous = [table.deployment for table in profile.tables]
    paused = [d.called(interval_ms) for d in continuous]
    measured = np.isfinite(np.stack([latency_ms(profile, d) for d in (*continuous, *paused)]))
    keys = {profile.networks[place].key for place in np.flatnonzero(np.all(measured, axis=0))}

    def usable_part(archs: Sequence[Architecture]) -> DeviceProfile:
        return part_of(profile, [arch for arch in archs if arch.key in keys])

    asked = usable_part(plan.asked)
    known = {
        "4 random": plan.random[:4], "4, half small": plan.quick[:4], "8 random": plan.random,
        "8, half small": plan.quick,
    }  # fmt: skip
    calls, found = calls_text(interval_ms), Errors()

    def add(way: str, told: Mapping[Deployment, Floats]) -> None:
        found[way] = {d.name: error_of(predicted, latency_ms(asked, d)) for d, predicted in told.items()}

    for name, archs in known.items():
        few = usable_part(archs)
        told = predicted_ms(few, asked.networks, [*continuous, *paused])
        add(f"{name}: in a loop", {d: told[d] for d in continuous})
        add(f"{name}: at {calls}", {d: told[d] for d in paused})
        add(f"{name}: at {calls}, given the loop", {d: by_cube_root(few, asked, d) for d in paused})
        add(f"{name}: the same by constant and shares", {d: by_constant(few, asked, d) for d in paused})
    return found


def page(found: Errors, asked: int, arguments: str, host: str) -> str:
    """The figures as Markdown. `host` is the machine in words."""
    names = list(next(iter(found.values())))
    return "\n".join(
        [
            "# What a few networks tell of small ones",
            "",
            f"{asked} small networks of the bundled spaces on one machine ({host}), one session, predicted from a few "
            "others that were timed in between: mean error, and the share within 10 %.",
            "",
            "```sh",
            f"python -m experiments.few_networks {arguments}",
            "```",
            "",
            f"| known: predicted | {' | '.join(names)} |",
            f"|---|{'---|' * len(names)}",
            *(
                f"| {way} | {' | '.join(f'{row[n].mean:.0%} ({row[n].within_10pct:.0%})' for n in names)} |"
                for way, row in found.items()
            ),
            "",
        ]
    )


# -- doing it --------------------------------------------------------------------------------------


def measured_here(archs: Sequence[Architecture], interval_ms: float, out: Path) -> DeviceProfile:
    """A profile of this host from these networks, timed in both patterns in all usual deployments; saved to `out`."""
    from nas.runtimes import deployments_here
    from nas.targets.preparing import preparer
    from nas.targets.profiling import BATCH_OF_NETWORKS, NODE_SECONDS, SECONDS_PER_MODEL, extended, measure_networks

    deployments = deployments_here(usable_threads(), None, 1)
    spaced = [d.called(interval_ms) for d in deployments]
    profile = DeviceProfile(
        name="few-networks",
        description="networks in two patterns of calls",
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        fingerprint=fingerprint(),
        networks=(),
        output_size=OUTPUT_SIZE,
        tables=tuple(map(DeploymentTable, deployments)),
        spaced=tuple(map(DeploymentTable, spaced)),
        sessions=1,
    )
    # What is compared is spread over the time: known and asked networks take turns.
    order = np.random.default_rng(0).permutation(len(archs))
    with preparer() as workers:
        for start in range(0, len(archs), BATCH_OF_NETWORKS):
            began, batch = time.monotonic(), [archs[place] for place in order[start : start + BATCH_OF_NETWORKS]]
            rows = measure_networks(
                batch, [*deployments, *spaced], sessions=1, seconds_per_model=SECONDS_PER_MODEL,
                node_seconds=NODE_SECONDS, seed=start, workers=workers,
            )  # fmt: skip
            profile = extended(profile, batch, rows, time.monotonic() - began)
    profile.save(out)
    return profile


@click.command()
@click.option("--seed", default=0, show_default=True, help="Of the networks.")
@click.option("--calls", type=Calls(), default=calls_text(CAMERA_MS), show_default=True, help="Pattern of calls.")
@click.option("--work", type=click.Path(path_type=Path), default="runs/few-networks.json", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="Write a page with the figures here.")
def main(seed: int, calls: str, work: Path, out: Path | None) -> None:
    """Time networks and predict some from few others; a profile in WORK is not measured again."""
    work.parent.mkdir(parents=True, exist_ok=True)
    plan, interval_ms = planned(seed), interval_ms_of(calls)
    profile = DeviceProfile.load(work) if work.exists() else measured_here(plan.all, interval_ms, work)
    found = errors(profile, plan, interval_ms)
    if out is not None:
        host = f"{fingerprint().cpu_model}, {usable_threads()} threads"
        out.write_text(page(found, len(plan.asked), " ".join(sys.argv[1:]), host), encoding="utf-8")
    click.echo(json.dumps(_rounded(found), indent=2))


def _rounded(found: Errors) -> Mapping[str, Mapping[str, Sequence[float]]]:
    return {
        way: {name: [round(e.mean, 3), round(e.within_10pct, 3)] for name, e in row.items()}
        for way, row in found.items()
    }


if __name__ == "__main__":
    main()
