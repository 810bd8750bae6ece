"""How busy a search keeps the workers of a cluster, with trainings that only wait.

`python -m experiments.cluster_check` measures what a proposal costs the driver and simulates clusters event by event;
`--real` also runs a search's loop (proposals by `surrogate` in a study on disk, evaluations as Ray tasks in supervised
processes) on a Ray cluster of this machine whose cores are made up.
"""

import heapq
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np
import optuna

from experiments.proposal_check import CLASSES, SPACE, accuracies
from nas.evaluation.short_training import ShortTraining
from nas.executors.base import Evaluation, Outcome
from nas.networks.description import NetworkDescription
from nas.samplers import SurrogateSampler
from nas.samplers.base import distributions
from nas.tasks import TASKS, TaskData
from nas.training.result import EpochCallback
from search_spaces import SearchSpace, load_search_space

KNOWN_TRIALS = (20, 100, 300, 1000)
"""Finished trials after which a proposal is timed; in between its cost is interpolated."""
PROPOSALS = 12
CLUSTERS = ((1, 60.0), (10, 60.0), (100, 60.0), (1000, 60.0), (1000, 600.0))
"""Workers and seconds of a training."""
ROUNDS = 10
"""Trainings of each worker."""
SPREAD = 0.2
"""Standard deviation of the log of a training's time."""
REAL_WORKERS, REAL_TRAINING_S, REAL_ROUNDS = 16, 10.0, 8


@dataclass(frozen=True, slots=True)
class Busy:
    """Part of their time that workers trained: from the first proposal on, and from when each had its first."""

    from_start: float
    in_steady_state: float


def busy(trainings: Sequence[tuple[float, float]], workers: int, start_s: float) -> Busy:
    """Of (begin, end) of all trainings, in seconds, until the last one began: what comes after is the end of a search.

    `start_s`: when the first proposal was asked for.
    """
    begins = sorted(begin for begin, _ in trainings)
    last = begins[-1]

    def share(since: float) -> float:
        trained = sum(max(0.0, min(end, last) - max(begin, since)) for begin, end in trainings)
        return trained / (workers * max(last - since, 1e-9))

    return Busy(share(start_s), share(begins[workers - 1]))


def simulate(workers: int, training_s: float, trainings: int, cost_s: Callable[[int], float], *, seed: int = 0) -> Busy:
    """A driver that proposes one network after the other, each for `cost_s` of the number of finished trials, and
    workers that train each for about `training_s`."""
    rng = np.random.default_rng(seed)
    took_s = training_s * np.exp(SPREAD * rng.normal(size=trainings))
    now, finished = 0.0, 0
    under_way: list[float] = []
    spans = []
    for seconds in took_s.tolist():
        if len(under_way) == workers:
            now = max(now, heapq.heappop(under_way))
            finished += 1
        now += cost_s(finished)
        heapq.heappush(under_way, now + seconds)
        spans.append((now, now + seconds))
    return busy(spans, workers, 0.0)


def study_on_disk(space: SearchSpace, folder: Path, finished: int) -> optuna.Study:
    """A study as a search keeps it, with so many finished trials of random networks."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        direction="maximize", sampler=SurrogateSampler(space, seed=0), storage=f"sqlite:///{folder}/study.db"
    )
    rng = np.random.default_rng(0)
    choices = space.sample(finished, rng)
    values = accuracies(space, choices, rng) if finished else np.zeros(0)
    study.add_trials(
        [
            optuna.trial.create_trial(
                params=space.parameters(space.architecture(row)),
                distributions=dict(distributions(space)),
                value=float(value),
            )
            for row, value in zip(choices, values, strict=True)
        ]
    )
    return study


def proposal_s(space: SearchSpace, finished: int, proposals: int) -> float:
    """Mean seconds of a proposal and of recording its result, after `finished` trials, others being under way."""
    with TemporaryDirectory(prefix="nas-cluster-") as folder:
        study = study_on_disk(space, Path(folder), finished)
        under_way = []
        start = time.perf_counter()
        for at in range(proposals):
            trial = study.ask()
            space.suggest(trial)
            under_way.append(trial)
            if at >= proposals // 2:
                study.tell(under_way.pop(0), 0.5 + 0.01 * at)
        return (time.perf_counter() - start) / proposals


def wait_as_told(task: Evaluation, data: TaskData, callback: EpochCallback | None) -> Outcome:
    """Stands for a training: waits for its recipe's time limit; the curve holds begin and end."""
    began = time.time()
    time.sleep(task.short.recipe.time_limit_s or 0.0)
    return Outcome(accuracy=(task.trial * 37 % 100) / 100, curve=(began, time.time()), seconds=time.time() - began)


def run_for_real(workers: int, training_s: float, trainings: int) -> Busy:
    """Trainings that only wait, as Ray tasks, proposed as in a search."""
    from ray.cluster_utils import Cluster

    from experiments.cluster_check import wait_as_told as told  # not of `__main__`, which other processes do not have
    from nas.executors.ray_tasks import RayExecutor

    space, data = load_search_space(SPACE), TASKS["classification"].load("digits", seed=0)
    recipe = TASKS["classification"].recipe().changed(time_limit_s=training_s)
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": workers, "include_dashboard": False}, shutdown_at_exit=True
    )
    spans: list[tuple[float, float]] = []
    with (
        TemporaryDirectory(prefix="nas-cluster-") as folder,
        RayExecutor(data, Path(folder), address=cluster.address, workers=workers, evaluate=told) as executor,
    ):
        study = study_on_disk(space, Path(folder), 0)
        asked: dict[int, optuna.Trial] = {}
        start = time.time()
        while len(spans) < trainings:
            while len(asked) < workers and len(spans) + len(asked) < trainings:
                trial = study.ask()
                arch = space.suggest(trial)
                asked[trial.number] = trial
                described = NetworkDescription.of_architecture(space, arch, CLASSES)
                executor.submit(
                    Evaluation(
                        study="s",
                        trial=trial.number,
                        description=described,
                        data=data.name,
                        short=ShortTraining(recipe),
                    )
                )
            for done in executor.wait():
                assert isinstance(done.result, Outcome), done.result
                spans.append((done.result.curve[0], done.result.curve[1]))
                study.tell(asked.pop(done.task.trial), done.result.accuracy)
    cluster.shutdown()  # type: ignore[no-untyped-call]
    return busy(spans, workers, start)


@click.command()
@click.option("--real", is_flag=True, help="Also run a Ray cluster on this machine (several minutes).")
def main(real: bool) -> None:
    """Print the share of their time that workers train."""
    space = load_search_space(SPACE)
    costs = [proposal_s(space, trials, PROPOSALS) for trials in KNOWN_TRIALS]
    click.echo("| finished trials | seconds of a proposal |\n|---|---|")
    for trials, cost in zip(KNOWN_TRIALS, costs, strict=True):
        click.echo(f"| {trials} | {cost:.2f} |")
    click.echo("\n| workers | training, s | busy from the start | busy in steady state |\n|---|---|---|---|")
    for workers, training_s in CLUSTERS:
        found = simulate(workers, training_s, ROUNDS * workers, lambda n: float(np.interp(n, KNOWN_TRIALS, costs)))
        click.echo(f"| {workers} | {training_s:g} | {found.from_start:.1%} | {found.in_steady_state:.1%} |")
    if real:
        found = run_for_real(REAL_WORKERS, REAL_TRAINING_S, REAL_ROUNDS * REAL_WORKERS)
        told = f"{found.from_start:.1%} | {found.in_steady_state:.1%}"
        click.echo(f"| {REAL_WORKERS}, real Ray processes | {REAL_TRAINING_S:g} | {told} |")


if __name__ == "__main__":
    main()
