"""Calls with pauses: how well their latency is predicted, and what choosing a runtime by a tight loop costs.

`python -m experiments.call_patterns --networks 20 --calls 20/s --out docs/call-patterns.md` predicts random networks
that no profile knows in every deployment of this host, measures them in that pattern and without pauses in the same
fresh sessions, and compares. A profile that does not know the pattern is completed first, as by a search. Figures mean
something on a machine that has nothing else to do.
"""

import json
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np

from nas.calls import CAMERA_MS, calls_text
from nas.cli.types import Calls
from nas.files.writing import write_json
from nas.limits import Limits
from nas.measure.host import fingerprint, usable_threads
from nas.measure.measurement import Measurement

SESSIONS = 3
CLOSE, VERY_CLOSE = 0.10, 0.05
SEED = 4711
"""Of the networks: none that a search or a profile draws."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One network in one deployment, ms."""

    network: str
    deployment: str
    predicted_ms: float
    """With pauses, before anything of it was measured."""
    spaced_ms: tuple[float, ...]
    """With pauses, each fresh session; empty where the rate could not be kept."""
    continuous_ms: float

    @property
    def measured_ms(self) -> float:
        return median(self.spaced_ms) if self.spaced_ms else float("inf")


def figures(timed: Sequence[Timed]) -> dict[str, Any]:
    """The bars' figures; a pure function of what was measured."""
    known = [t for t in timed if t.spaced_ms]
    errors = [abs(t.predicted_ms / t.measured_ms - 1) for t in known]
    spreads = [abs(ms / t.measured_ms - 1) for t in known for ms in t.spaced_ms]
    again = [error for t in known for error in retest_errors(t.spaced_ms)]
    by_network: dict[str, list[Timed]] = {}
    for t in timed:
        by_network.setdefault(t.network, []).append(t)
    rows = [row for row in by_network.values() if any(t.spaced_ms for t in row)]
    predicted = [_regret(row, lambda t: t.predicted_ms) for row in rows]
    in_loop = [_regret(row, lambda t: t.continuous_ms) for row in rows]
    measured = [_regret(row, lambda t: t.spaced_ms[0] if t.spaced_ms else float("inf")) for row in rows]
    return {
        "networks": len(rows),
        "figures": len(known),
        "slower_than_continuous": _quartiles([t.measured_ms / t.continuous_ms for t in known]),
        "within_10pct": float(np.mean([e <= CLOSE for e in errors])),
        "mean_error": float(np.mean(errors)),
        "noise_floor": float(np.mean(spreads)),
        "retest_within_10pct": float(np.mean([e <= CLOSE for e in again])),
        "retest_error": float(np.mean(again)),
        "chosen_by_prediction": _choice(predicted),
        "chosen_in_a_loop": _choice(in_loop),
        "chosen_by_one_session": _choice(measured),
    }


def retest_errors(sessions_ms: Sequence[float]) -> list[float]:
    """Relative error of each session as a prediction of the median of the others.

    That is what somebody knows who measures a network once before. A median that the session is part of, as in the
    noise floor, makes every third of them right.
    """
    return [
        abs(ms / median([*sessions_ms[:i], *sessions_ms[i + 1 :]]) - 1)
        for i, ms in enumerate(sessions_ms)
        if len(sessions_ms) > 1
    ]


def _regret(row: Sequence[Timed], by: Any) -> float:
    """Latency of the deployment with the lowest `by`, over that of the best one, minus 1."""
    return min(row, key=by).measured_ms / min(t.measured_ms for t in row) - 1


def _choice(regrets: Sequence[float]) -> dict[str, float]:
    return {
        "within_5pct": sum(r <= VERY_CLOSE for r in regrets),
        "mean_loss": float(np.mean(regrets)),
        "largest_loss": float(max(regrets)),
    }


def _quartiles(values: Sequence[float]) -> list[float]:
    return [float(v) for v in np.quantile(values, [0, 0.25, 0.5, 0.75, 1])]


def page(timed: Sequence[Timed], calls: str, arguments: str, host: str) -> str:
    """The figures as Markdown. `host` is the machine in words."""
    found = figures(timed)
    low, quarter, middle, three, high = found["slower_than_continuous"]
    choices = (
        ("as predicted at " + calls, "chosen_by_prediction"),
        (f"by one session at {calls}", "chosen_by_one_session"),
        ("by calls in a tight loop", "chosen_in_a_loop"),
    )
    return "\n".join(
        [
            f"# Calls at {calls}",
            "",
            f"{found['networks']} random networks on one machine ({host}), in every runtime and precision, {SESSIONS} "
            "fresh sessions each; none of them was known to the profile.",
            "",
            "```sh",
            f"python -m experiments.call_patterns {arguments}",
            "```",
            "",
            "| figure | value |",
            "|---|---|",
            f"| latency at {calls} over that in a tight loop: lowest, quartiles, highest | {low:.2f}, {quarter:.2f}, "
            f"{middle:.2f}, {three:.2f}, {high:.2f} |",
            f"| predicted within 10 % | {found['within_10pct']:.0%} of {found['figures']} |",
            f"| mean error of the prediction | {found['mean_error']:.1%} |",
            f"| noise floor: mean deviation of a session from the median of {SESSIONS} | {found['noise_floor']:.1%} |",
            "| a session in place of the prediction, against the median of the others: within 10 %, mean error | "
            f"{found['retest_within_10pct']:.0%}, {found['retest_error']:.1%} |",
            "",
            f"| runtime and precision chosen | within 5 % of the fastest at {calls} | mean loss | largest loss |",
            "|---|---|---|---|",
            *(
                f"| {name} | {found[key]['within_5pct']} of {found['networks']} | {found[key]['mean_loss']:.1%} | "
                f"{found[key]['largest_loss']:.0%} |"
                for name, key in choices
            ),
            "",
            f"| network | deployment | predicted ms | measured ms at {calls} | in a loop |",
            "|---|---|---|---|---|",
            *(
                f"| {t.network} | {t.deployment} | {t.predicted_ms:.3g} | "
                f"{' '.join(f'{ms:.3g}' for ms in t.spaced_ms) or 'too slow'} | {t.continuous_ms:.3g} |"
                for t in timed
            ),
            "",
        ]
    )


# -- doing it --------------------------------------------------------------------------------------


def measured_here(networks: int, space: str, calls: str, known: Collection[str]) -> Iterator[list[Timed]]:
    """Predict and measure that many random networks of a space on this host, a few at a time, without those `known`."""
    from nas.controller.config import SearchConfig
    from nas.controller.planning.budget import Budget
    from nas.controller.prediction.calls import prepare_target
    from nas.progress import progress_for
    from nas.targets.preparing import OUTPUT_SIZE, networks_to_measure, preparer
    from nas.targets.profiling import BATCH_OF_NETWORKS, measure_networks

    config = SearchConfig(limits=Limits.of(latency_ms=1e6), space=space, calls=calls)
    searched = config.search_space
    model = prepare_target(config, Budget(600.0), progress_for(quiet=False)).model
    archs = networks_to_measure([searched], networks, SEED)
    predicted = model.predict(searched, searched.choices(archs), OUTPUT_SIZE)
    asked = [*model.deployments, *(d.continuous for d in model.deployments)]
    left = [number for number in range(networks) if str(number) not in known]
    with preparer() as workers:
        for start in range(0, len(left), BATCH_OF_NETWORKS):
            batch = left[start : start + BATCH_OF_NETWORKS]
            rows = measure_networks(
                [archs[n] for n in batch], asked, sessions=SESSIONS, seed=SEED + batch[0], workers=workers
            )
            yield [
                Timed(
                    network=str(number),
                    deployment=deployment.name,
                    predicted_ms=float(predicted[deployment].mean[number]),
                    spaced_ms=sessions_ms(spaced),
                    continuous_ms=continuous.p50_ms,
                )
                for number, row in zip(batch, rows, strict=True)
                for deployment, spaced, continuous in zip(
                    model.deployments, row, row[len(model.deployments) :], strict=False
                )
                if continuous.failed is None
            ]


def sessions_ms(measured: Measurement) -> tuple[float, ...]:
    return () if measured.failed is not None else tuple(session.p50_ms for session in measured.sessions)


def read(document: Sequence[Mapping[str, Any]]) -> list[Timed]:
    """Inverse of `asdict`."""
    return [Timed(**{**entry, "spaced_ms": tuple(entry["spaced_ms"])}) for entry in document]


@click.command()
@click.option("--networks", default=20, show_default=True)
@click.option("--space", default="mixed", show_default=True)
@click.option("--calls", type=Calls(), default=calls_text(CAMERA_MS), show_default=True, help="Pattern of calls.")
@click.option("--work", type=click.Path(path_type=Path), default="runs/call-patterns.json", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="Write a page with the figures here.")
def main(networks: int, space: str, calls: str, work: Path, out: Path | None) -> None:
    """Predict and measure calls with pauses; what WORK holds is not measured again."""
    work.parent.mkdir(parents=True, exist_ok=True)
    timed = read(json.loads(work.read_text())) if work.exists() else []
    if len({t.network for t in timed}) < networks:
        for few in measured_here(networks, space, calls, {t.network for t in timed}):
            timed += few
            write_json(work, [asdict(t) for t in timed])
    if out is not None:
        host = f"{fingerprint().cpu_model}, {usable_threads()} threads"
        out.write_text(page(timed, calls, " ".join(sys.argv[1:]), host), encoding="utf-8")
    click.echo(json.dumps(figures(timed), indent=2))


if __name__ == "__main__":
    main()
