"""What a proposal of `surrogate` costs, alone and on a busy machine, and how diverse and good many at once are.

`python -m experiments.proposal_check --data DIR` prints the figures of docs/search.md, each beside its bar. DIR holds
the tables of NAS-Bench-201; without it there are no regrets.
"""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import optuna
from numpy.typing import NDArray

from experiments.search_tables import ACCURACY, CHOICES, DEVICES, OURS
from experiments.tabular.commands.search import load_task
from experiments.tabular.commands.search_runs import run_search
from nas.measure.host import usable_threads
from nas.samplers import SurrogateSampler
from nas.samplers.base import distributions
from search_spaces import Choices, SearchSpace, load_search_space

SPACE = "mixed"
CLASSES = (10,)
FINISHED, PENDING, TIMED = (40, 100), 32, 20
EVALS, BATCH = 100, 16
CORE_S, WALL_RATIO, NEAREST, REGRET = 0.15, 2.5, 5, 0.1
"""Bars: core seconds of a proposal, its wall-clock time on a busy machine by that alone, decisions between a pending
proposal and its nearest, and points of regret more than one by one."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Mean seconds of one proposal."""

    core_s: float
    wall_s: float


def accuracies(space: SearchSpace, choices: Choices, rng: np.random.Generator) -> NDArray[np.float64]:
    """Made-up accuracies (n,) of networks (n, decisions): more work is better, an unusual size worse, and some luck."""
    costs = space.costs(choices, CLASSES)
    work, size = np.log(costs["macs"]), np.log(costs["params"])
    found: NDArray[np.float64] = 0.5 + 0.05 * (work - work.mean()) - 0.02 * (size - size.mean()) ** 2
    return found + 0.02 * rng.normal(size=len(choices))


def study_of(space: SearchSpace, finished: int, seed: int = 0) -> optuna.Study:
    """A study with so many finished trials of random networks."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=SurrogateSampler(space, seed=seed))
    rng = np.random.default_rng(seed)
    choices = space.sample(finished, rng)
    for row, value in zip(choices, accuracies(space, choices, rng), strict=True):
        params = space.parameters(space.architecture(row))
        study.add_trial(
            optuna.trial.create_trial(params=params, distributions=dict(distributions(space)), value=float(value))
        )
    return study


def pending_proposals(space: SearchSpace, finished: int, pending: int, seed: int = 0) -> Choices:
    """(pending, decisions): proposals that are asked for one after the other, none of which is evaluated meanwhile."""
    study = study_of(space, finished, seed)
    return space.choices([space.suggest(study.ask()) for _ in range(pending)])


def nearest(choices: Choices) -> NDArray[np.int64]:
    """(n, decisions) -> (n,): decisions in which each row differs from the one most like it."""
    differ = (choices[:, None] != choices[None]).sum(axis=2)
    np.fill_diagonal(differ, choices.shape[1] + 1)
    return np.asarray(differ.min(axis=1), dtype=np.int64)


def cost_of_a_proposal(space: SearchSpace, finished: int, proposals: int) -> Cost:
    """Of `proposals` that are asked for and told one by one, after `finished` trials."""
    study, rng = study_of(space, finished), np.random.default_rng(1)
    core_s, wall_s = time.process_time(), time.perf_counter()
    for _ in range(proposals):
        trial = study.ask()
        space.suggest(trial)
        study.tell(trial, float(rng.normal()))
    return Cost((time.process_time() - core_s) / proposals, (time.perf_counter() - wall_s) / proposals)


@contextmanager
def busy_cores(count: int) -> Iterator[None]:
    """So many other processes compute without an end while the block lasts."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def regrets(data: Path, seeds: Sequence[int]) -> dict[str, tuple[float, float]]:
    """Median regret on each device's table one by one, and of networks that are proposed `BATCH` at once."""
    found = {}
    for title, latency in DEVICES.items():
        task = load_task(f"{data}/{CHOICES}", f"{data}/{ACCURACY}", f"{data}/{latency}", 0.5)
        one, many = (
            float(np.median([task.regret(np.array(run_search(task, OURS, s, EVALS, "limit", b).rows)) for s in seeds]))
            for b in (1, BATCH)
        )
        found[title] = (one, many)
    return found


def row(what: str, bar: str, found: str, *, met: bool) -> str:
    """A line of the table."""
    return f"| {what} | {bar} | {found} | {'yes' if met else 'no'} |"


@click.command()
@click.option("--data", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Tables for the regrets.")
@click.option("--seeds", default=10, show_default=True, help="Searches of each table, seeds 0, 1, ...")
def main(data: Path | None, seeds: int) -> None:
    """Print each figure with its bar, as a table."""
    space, cores = load_search_space(SPACE), usable_threads()
    click.echo("| figure | bar | found | met |\n|---|---|---|---|")
    for finished in FINISHED:
        least = nearest(pending_proposals(space, finished, PENDING))
        what = f"nearest of {PENDING} pending proposals after {finished} trials, of {len(space.decisions)} decisions"
        click.echo(row(what, f">= {NEAREST}", f"{least.min()} (mean {least.mean():.1f})", met=least.min() >= NEAREST))
    alone = cost_of_a_proposal(space, FINISHED[-1], TIMED)
    with busy_cores(cores):
        beside = cost_of_a_proposal(space, FINISHED[-1], TIMED)
    beside_what = f"beside a process on each of {cores} cores"
    for what, cost in (("alone", alone), (beside_what, beside)):
        title = f"core seconds of a proposal after {FINISHED[-1]} trials, {what}"
        click.echo(row(title, f"<= {CORE_S}", f"{cost.core_s:.3f}", met=cost.core_s <= CORE_S))
    ratio = beside.wall_s / alone.wall_s
    told = f"{ratio:.2f} ({beside.wall_s:.3f} s by {alone.wall_s:.3f} s)"
    click.echo(
        row(f"its wall-clock time {beside_what}, by that alone", f"<= {WALL_RATIO}", told, met=ratio <= WALL_RATIO)
    )
    for title, (one, many) in (regrets(data, range(seeds)) if data else {}).items():
        what = f"{title}: regret after {EVALS} evaluations, {BATCH} at once"
        click.echo(row(what, f"<= {one:.3f} + {REGRET}", f"{many:.3f}", met=many <= one + REGRET))


if __name__ == "__main__":
    main()
