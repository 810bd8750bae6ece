"""Searches on a table: one run of one sampler, its record on disk, and the figures by which samplers are compared."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import optuna
from numpy.typing import ArrayLike, NDArray
from optuna.samplers import BaseSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial

from experiments.local_search import LocalSearchSampler
from experiments.tabular.features import TableEncoding
from experiments.tabular.latency import TableLatencyPredictor
from experiments.tabular.layouts import GENERIC, LAYOUTS, table_encoding
from experiments.tabular.table_space import TableSpace
from nas.samplers import LATENCY_CONSTRAINT, SAMPLERS, LearntLatency, SamplerTask
from nas.samplers.acquisition import hypervolume, pareto_front
from predictors.base import Prediction
from search_spaces import Choices
from search_spaces.errors import UserError

Vector = NDArray[np.float64]
Mode = Literal["limit", "front"]
MODES: tuple[Mode, ...] = ("limit", "front")
"""Accuracy under the latency limit, or the front of accuracy and log latency."""

TABLE_SAMPLERS: Mapping[str, Callable[[SamplerTask], BaseSampler]] = {
    **SAMPLERS,
    "local": lambda task: LocalSearchSampler(task.space, task.seed),
}
_RECENT = 20


@dataclass(frozen=True)
class TableTask:
    """A complete table: accuracy in points and latency in ms for every network, and the limit."""

    name: str
    space: TableSpace
    accuracy: Vector
    latency_ms: Vector
    limit_ms: float

    def __post_init__(self) -> None:
        for title, column in (("accuracy", self.accuracy), ("latency", self.latency_ms)):
            if column.shape != self.space.rows.shape:
                raise UserError(
                    f"the {title} column has shape {column.shape}, the table {len(self.space.rows)} rows",
                    "rows are aligned by number: name the choices of the same table",
                )
            if not np.isfinite(column).all():
                raise UserError(f"the {title} column has entries that are not finite", "a search may ask for any row")
        if (self.latency_ms <= 0).any():
            raise UserError(f"a latency of {self.latency_ms.min():g} ms is not positive")

    @cached_property
    def encoding(self) -> TableEncoding:
        """Of every network's choices; no latency enters."""
        every = np.indices([len(d.options) for d in self.space.decisions]).reshape(len(self.space.decisions), -1).T
        return table_encoding(every, self.space.name if self.space.name in LAYOUTS else GENERIC)

    @cached_property
    def best_accuracy(self) -> float:
        """Of the networks that keep the limit."""
        return float(self.accuracy[self.latency_ms <= self.limit_ms].max())

    @property
    def figures(self) -> list[float]:
        """What tells this table from others of its name."""
        return [self.limit_ms, self.best_accuracy, float(self.accuracy.sum()), float(self.latency_ms.sum())]

    @cached_property
    def points(self) -> Vector:
        """(rows, 2): accuracy and minus log latency, both higher is better."""
        return np.column_stack([self.accuracy, -np.log(self.latency_ms)])

    @cached_property
    def corner(self) -> tuple[float, float]:
        """From where hypervolume is counted: the upper quartile of accuracy and the largest latency of the table."""
        return float(np.quantile(self.accuracy, 0.75)), float(self.points[:, 1].min())

    def regret(self, rows: NDArray[np.int64]) -> float:
        """Points between the best network within the limit and the best such among `rows`.

        Without any the accuracy counts as the worst of the table.
        """
        kept = self.accuracy[rows][self.latency_ms[rows] <= self.limit_ms]
        return self.best_accuracy - float(kept.max() if len(kept) else self.accuracy.min())

    def relative_hypervolume(self, rows: NDArray[np.int64]) -> float:
        """Of `rows`, as a part of the whole table's."""
        return hypervolume(self.points[rows], self.corner) / self._whole

    @cached_property
    def _whole(self) -> float:
        return hypervolume(pareto_front(self.points), self.corner)


class _OnOptions:
    """The latency predictor for tables on option numbers; the table's encoding is made once for all fits."""

    def __init__(self, encoding: TableEncoding) -> None:
        self._inner = TableLatencyPredictor(encoding)

    def fit(self, choices: NDArray[Any], latency_ms: ArrayLike) -> Self:
        self._inner.fit(choices, latency_ms)
        return self

    def predict(self, choices: Choices) -> Prediction:
        return self._inner.predict(choices)


@dataclass(frozen=True, slots=True)
class TableRun:
    """What one sampler asked for: rows of the table in order, and the CPU seconds that each proposal took."""

    rows: tuple[int, ...]
    seconds: tuple[float, ...]


def run_search(task: TableTask, sampler: str, seed: int, evals: int, mode: Mode, batch: int = 1) -> TableRun:
    """One study. An evaluation reveals the accuracy and the latency of the proposed network, nothing else does.

    `batch`: networks that are proposed before the first of them is evaluated, as for so many workers.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    directions = [StudyDirection.MAXIMIZE, StudyDirection.MINIMIZE][: MODES.index(mode) + 1]
    study = optuna.create_study(directions=directions, sampler=_sampler(task, sampler, seed, mode))
    rows, seconds = list[int](), list[float]()
    evals = min(evals, task.space.size)
    while len(rows) < evals:
        asked = []
        for _ in range(min(batch, evals - len(rows))):
            started = time.process_time()
            trial = study.ask()
            arch = task.space.suggest(trial)
            seconds.append(time.process_time() - started)
            rows.append(int(task.space.row(task.space.choices([arch]))[0]))
            asked.append((trial, rows[-1]))
        for trial, row in asked:
            accuracy, latency_ms = float(task.accuracy[row]), float(task.latency_ms[row])
            if mode == "limit":
                trial.set_constraint(LATENCY_CONSTRAINT, latency_ms - task.limit_ms)
                study.tell(trial, accuracy)
            else:
                study.tell(trial, [accuracy, float(np.log(latency_ms))])
    return TableRun(tuple(rows), tuple(seconds))


def recorded_run(folder: Path | None, task: TableTask, sampler: str, seed: int, evals: int, mode: Mode) -> TableRun:
    """`run_search`, or its record in `folder` where it is long enough: a longer run begins like a shorter one."""
    if folder is None:
        return run_search(task, sampler, seed, evals, mode)
    file = folder / f"{task.name}-{mode}-{sampler}-{seed}.json"
    if file.exists():
        record = json.loads(file.read_text())
        if record.get("table") == task.figures and len(record["rows"]) >= evals:
            return TableRun(tuple(record["rows"][:evals]), tuple(record["seconds"][:evals]))
    run = run_search(task, sampler, seed, evals, mode)
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(".tmp")
    unfinished.write_text(json.dumps({"table": task.figures, **asdict(run)}))
    unfinished.replace(file)
    return run


@dataclass(frozen=True, slots=True)
class Figures:
    """Medians over seeds after so many evaluations.

    Attributes:
        regret: points of accuracy between the best network within the limit and the best one found.
        hypervolume: of the front found, as a part of the true front's.
        violations: networks over the limit that were evaluated in the search under the limit.
        seconds_per_proposal: CPU seconds of the last twenty proposals, mean; the slower of the two searches.
    """

    regret: float
    hypervolume: float
    violations: float
    seconds_per_proposal: float


def figures(task: TableTask, limit_runs: Sequence[TableRun], front_runs: Sequence[TableRun], evals: int) -> Figures:
    """Of one sampler, after `evals` evaluations."""
    under = [np.array(run.rows[:evals]) for run in limit_runs]
    fronts = [np.array(run.rows[:evals]) for run in front_runs]
    recent = [
        float(np.median([np.mean(run.seconds[:evals][-_RECENT:]) for run in runs])) for runs in (limit_runs, front_runs)
    ]
    return Figures(
        regret=float(np.median([task.regret(rows) for rows in under])),
        hypervolume=float(np.median([task.relative_hypervolume(rows) for rows in fronts])),
        violations=float(np.median([(task.latency_ms[rows] > task.limit_ms).sum() for rows in under])),
        seconds_per_proposal=max(recent),
    )


def _sampler(task: TableTask, name: str, seed: int, mode: Mode) -> BaseSampler:
    limit_ms = task.limit_ms if mode == "limit" else None

    def of_trial(trial: FrozenTrial) -> float:
        return (
            trial.constraints[LATENCY_CONSTRAINT] + task.limit_ms if mode == "limit" else float(np.exp(trial.values[1]))
        )

    latency = LearntLatency(lambda: _OnOptions(task.encoding), of_trial, limit_ms)
    return TABLE_SAMPLERS[name](SamplerTask(space=task.space, seed=seed, latency=latency, features=task.space.views))
