"""How many candidates a second the latency predictor judges on one core, from their integer decisions to milliseconds.

    python -m experiments.latency_speed --target xeon-spr

Each deployment of a bundled profile is timed by itself in each space. What is done once for a space (listing its blocks
and predicting each) is shown beside it. Processor time counts, with one thread: on a machine where others compute it is
what can be compared.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median

import click
import numpy as np
from threadpoolctl import threadpool_limits

from nas.deployment import Deployment
from nas.measure.host import fingerprint
from nas.targets.latency import LatencyModel
from nas.targets.preparing import ALL_SPACES
from nas.targets.profile import DeviceProfile
from nas.targets.registry import BUNDLED, bundled_path
from search_spaces import StagedSpace, load_search_space
from search_spaces.signature import Size

BAR = 100_000
"""Candidates per second and core that were asked for."""


@dataclass(frozen=True, slots=True)
class Speed:
    """One deployment in one space."""

    deployment: str
    threads: int
    space: str
    per_s: float
    """Candidates per second of processor time, median of the rounds."""
    once_s: float
    """Seconds of processor time for what all candidates of the space share."""


def measured_speeds(
    profile: DeviceProfile, spaces: Sequence[str], candidates: int, rounds: int, seed: int = 0
) -> list[Speed]:
    """Time each deployment of the profile in each of `spaces` on as many random candidates, `rounds` times each."""
    found = []
    for table in profile.tables:
        model = LatencyModel(profile, [table.deployment])
        found += [_speed(model, table.deployment, load_search_space(s), candidates, rounds, seed) for s in spaces]
    return found


def _speed(
    model: LatencyModel, deployment: Deployment, space: StagedSpace, candidates: int, rounds: int, seed: int
) -> Speed:
    choices = space.sample(candidates, np.random.default_rng(seed))
    size = model.profile.output_size
    with threadpool_limits(1):
        once_s = _cpu_s(model, space, choices[:1], size)
        seconds = [_cpu_s(model, space, choices, size) for _ in range(rounds)]
    return Speed(deployment.name, deployment.threads, space.name, candidates / median(seconds), once_s)


def _cpu_s(model: LatencyModel, space: StagedSpace, choices: np.ndarray, size: Size) -> float:
    start = time.process_time()
    model.predict(space, choices, size)
    return time.process_time() - start


def speed_section(target: str, speeds: Sequence[Speed], candidates: int) -> str:
    """The figures as a section of the page about latency prediction, in Markdown."""
    spaces = list(dict.fromkeys(s.space for s in speeds))
    by_deployment: dict[tuple[str, int], dict[str, Speed]] = {}
    for speed in speeds:
        by_deployment.setdefault((speed.deployment, speed.threads), {})[speed.space] = speed
    rows = [
        f"| {name}, {threads} threads | {' | '.join(f'{known[space].per_s:,.0f}' for space in spaces)} |"
        for (name, threads), known in by_deployment.items()
    ]
    per_s = [s.per_s for s in speeds]
    lines = [
        "## How fast it predicts",
        "",
        f"```sh\npython -m experiments.latency_speed --target {target}\n```",
        "",
        f"Candidates per second of processor time on one core of an {fingerprint().cpu_model}, from arrays of "
        f"{candidates:,} x decisions to mean and standard deviation, the encoding included: {min(per_s):,.0f} to "
        f"{max(per_s):,.0f} ({BAR:,} were asked for). Once for each space, {min(s.once_s for s in speeds):.1f} to "
        f"{max(s.once_s for s in speeds):.1f} s more list its blocks and predict each of them.",
        "",
        f"| deployment | {' | '.join(spaces)} |",
        f"|---|{'---|' * len(spaces)}",
        *rows,
    ]
    return "\n".join(lines)


@click.command()
@click.option("--target", type=click.Choice(sorted(BUNDLED)), default="xeon-spr", show_default=True)
@click.option("--space", "spaces", multiple=True, default=ALL_SPACES, show_default=True)
@click.option("--candidates", type=click.IntRange(min=1), default=100_000, show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True, help="The median counts.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a section in Markdown.")
def cli(target: str, spaces: tuple[str, ...], candidates: int, rounds: int, as_json: bool) -> None:
    """Print how many candidates a second the predictors of a bundled profile judge on one core."""
    speeds = measured_speeds(DeviceProfile.load(bundled_path(target)), spaces, candidates, rounds)
    if as_json:
        click.echo(json.dumps({"target": target, "candidates": candidates, "speeds": [asdict(s) for s in speeds]}))
    else:
        click.echo(speed_section(target, speeds, candidates))


if __name__ == "__main__":
    cli()
