"""One arm of a search: propose, train briefly, tell Optuna; for the search itself and for its random baseline."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import optuna
from optuna.trial import FrozenTrial, Trial, TrialState

from nas.controller.budget import Budget
from nas.controller.sampler import PROXIES_ATTR, ProxyScores, SpaceSampler, architecture_of
from nas.controller.scoring import LatencyScorer
from nas.data import ImageData
from nas.errors import UserError
from nas.evaluation.short_training import ShortTraining, trained
from nas.export.checkpoint import NetworkDescription
from nas.progress import Stage
from search_spaces import Architecture, StagedSpace

MAX_FAILURES_IN_A_ROW = 10


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A candidate that was trained briefly."""

    arch: Architecture
    trial: int
    accuracy: float
    """Fraction of the validation split after the short training."""
    seconds: float
    seconds_per_image: float
    """Of training, validation included."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A candidate that could not be trained."""

    arch: Architecture
    trial: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """What both arms share: the study's storage, the data, the recipe, the limits."""

    space: StagedSpace
    data: ImageData
    scorer: LatencyScorer
    short: Callable[[Architecture], ShortTraining]
    """The short training that a candidate gets."""
    proxies: ProxyScores | None
    storage: Path

    def study(self, name: str, sampler: SpaceSampler) -> optuna.Study:
        """The study `name` in the run's SQLite file; one that exists is continued."""
        return optuna.create_study(
            storage=f"sqlite:///{self.storage}",
            study_name=name,
            sampler=sampler,
            direction="maximize",
            load_if_exists=True,
        )

    def run(
        self, study: optuna.Study, budget: Budget, until_s: float, bar: Stage, *, at_most: int | None = None
    ) -> list[Evaluated]:
        """Evaluate proposals until `budget.elapsed_s` reaches `until_s`, or `at_most` trials are done.

        A trial is begun only if a usual one would end in time. Raises `UserError` where ten candidates in a
        row fail.
        """
        durations: list[float] = []
        failures = 0
        bar.advance(len(finished(study)))
        while at_most is None or len(finished(study)) < at_most:
            began = budget.elapsed_s
            usual = float(np.median(durations)) if durations else 0.0
            if began + usual > until_s and self.evaluated(study):
                break
            trial = study.ask()
            arch = self.space.suggest(trial)
            reason = self._evaluate(study, trial, arch)
            failures = failures + 1 if reason else 0
            if failures == MAX_FAILURES_IN_A_ROW:
                raise UserError(
                    f"{failures} candidates in a row failed, the last one with: {reason}",
                    "see the trials of study.db; a smaller batch size or resolution often helps",
                )
            durations.append(budget.elapsed_s - began)
            done = self.evaluated(study)
            best = max((e.accuracy for e in done), default=0.0)
            bar.advance(1, note=f"best {best:.1%}")
        return self.evaluated(study)

    def evaluated(self, study: optuna.Study) -> list[Evaluated]:
        """All finished evaluations, in order of their trials; after a restart the earlier ones too."""
        found = []
        for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
            arch = architecture_of(trial, self.space)
            if arch is not None:
                attributes = trial.user_attrs
                found.append(
                    Evaluated(
                        arch,
                        trial.number,
                        trial.values[0],
                        attributes["seconds"],
                        attributes["seconds"] / attributes["images"],
                    )
                )
        return found

    def failed(self, study: optuna.Study) -> list[Failed]:
        """Candidates that failed, with the reason recorded."""
        trials = study.get_trials(deepcopy=False, states=(TrialState.FAIL,))
        found = [(architecture_of(trial, self.space), trial) for trial in trials]
        return [Failed(arch, t.number, t.user_attrs.get("reason", "interrupted")) for arch, t in found if arch]

    def _evaluate(self, study: optuna.Study, trial: Trial, arch: Architecture) -> str | None:
        """Train one candidate and tell the study; returns the reason where it failed."""
        latency = self.scorer.describe(arch)
        trial.set_user_attr("key", arch.key)
        trial.set_user_attr("deployment", latency.deployment.name)
        trial.set_user_attr("predicted_latency_ms", latency.mean_ms)
        trial.set_user_attr("predicted_std_ms", latency.std_ms)
        trial.set_constraint("latency_ms", latency.mean_ms - self.scorer.limit_ms)
        if self.proxies is not None:
            trial.set_user_attr(PROXIES_ATTR, [None if math.isnan(v) else float(v) for v in self.proxies(arch)])
        short = self.short(arch)
        images = short.train_images or len(self.data.train)
        trial.set_user_attr("images", images * short.config.epochs)
        description = NetworkDescription(arch, self.data.num_classes, self.space.resolution(arch))
        try:
            _, result = trained(description, self.data, short)
        except (RuntimeError, MemoryError) as error:  # out of memory, or an operator that torch refuses
            return self._fail(study, trial, f"{type(error).__name__}: {error}")
        if result.stopped == "diverged":
            return self._fail(study, trial, "training diverged")
        trial.set_user_attr("seconds", result.seconds)
        trial.set_user_attr("curve", [log.val_accuracy for log in result.curve])
        study.tell(trial, result.accuracy)
        return None

    @staticmethod
    def _fail(study: optuna.Study, trial: Trial, reason: str) -> str:
        trial.set_user_attr("reason", reason)
        study.tell(trial, state=TrialState.FAIL)
        return reason


def finished(study: optuna.Study) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.FAIL))


def best_first(evaluated: Sequence[Evaluated], key: Callable[[Evaluated], float]) -> list[Evaluated]:
    """Highest `key` first; equal ones in order of their trials."""
    order = np.lexsort(([e.trial for e in evaluated], [-key(e) for e in evaluated]))
    return [evaluated[i] for i in order]
