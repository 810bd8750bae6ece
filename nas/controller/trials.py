"""Trials of a study as the search uses them: proposed, told, and found again after a kill.

A process that is killed leaves at most a few trials in the state RUNNING behind. They are continued under their own
number, so that a search that was killed proposes what it would have proposed undisturbed: a proposal depends on the
seed, the trials that ended before it and (in some samplers) its number, and all three are as they were. What is in the
storage then is one of:

- no parameters, or some of them: the proposal was cut short. It is made again; samplers rebuild their state from the
  storage, so it comes out the same. Where it does not (several evaluations at once: more has ended in the meantime)
  the parameters already stored belong to no network, and the trial fails as interrupted; nothing had been trained.
- all parameters: it is evaluated again, or its outcome is found in the journal (`nas.executors.journal`).

Failing such trials and enqueuing them again would do for the result, but shifts every later trial number.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import optuna
from optuna.trial import FrozenTrial, Trial, TrialState

from nas.controller.runs.storage import StudyStorage
from nas.evaluation.estimate import Estimate, normal_interval
from nas.evaluation.short_training import ShortTraining
from nas.executors import Failure, Outcome
from nas.samplers.base import INTERRUPTED_ATTR, distributions
from nas.tasks import TaskData
from search_spaces import Architecture, SearchSpace

OWNER_ATTR = "owner"
REASON_ATTR = "reason"
ESTIMATOR_ATTR = "estimator"
SHORT = "short"
"""The estimator that trains a candidate briefly."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A running trial with its network."""

    trial: Trial
    arch: Architecture


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """Value of a candidate, the estimator that gave it, and its price: the record of a trial."""

    estimator: str
    """A name of `nas.evaluation.estimators.ESTIMATORS`, which has the unit of the value."""
    value: float
    """Higher is better."""
    interval: tuple[float, float] | None = None
    """Holds the value with a probability of 90 %, as far as the estimator knows; None where it knows nothing of it."""
    seconds: float
    curve: tuple[float, ...] = ()
    """Validation accuracy after each epoch, where there were any."""
    image_s: float | None = None
    """Seconds of training per image, without validation; None where it was not trained, or that is not known."""
    stopped_early: bool = False
    """True if its curve was found hopeless before all epochs were done."""


def result_of_training(outcome: Outcome, short: ShortTraining, data: TaskData) -> TrialResult:
    """A short training's accuracy on the validation images: its interval speaks of their number alone."""
    std = short.standard_error(outcome.accuracy, data)
    return TrialResult(
        estimator=SHORT,
        value=outcome.accuracy,
        interval=None if std is None else normal_interval(outcome.accuracy, std),
        seconds=outcome.seconds,
        curve=outcome.curve,
        image_s=outcome.image_s,
        stopped_early=outcome.stopped_early,
    )


def result_of_estimate(name: str, estimate: Estimate) -> TrialResult | Failure:
    """Result of a trial that the estimator `name` evaluated without a training."""
    if estimate.value is None:
        return Failure(estimate.failure or "there is no estimate")
    return TrialResult(estimator=name, value=estimate.value, interval=estimate.interval, seconds=estimate.seconds)


def propose(study: optuna.Study, space: SearchSpace, storage: StudyStorage) -> Proposal:
    """A new trial. Nothing is lost if the process is killed in here, at any point."""
    trial = study.ask()
    if storage.shared:
        trial.set_user_attr(OWNER_ATTR, storage.owner)
    return Proposal(trial, space.suggest(trial))


def left_behind(study: optuna.Study, space: SearchSpace, storage: StudyStorage) -> list[Proposal]:
    """Trials that an earlier process of this run did not finish, in order of their numbers."""
    running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    found = []
    for frozen in sorted(running, key=lambda t: t.number):
        # A server's trial without an owner was killed within milliseconds of its birth: nobody knows whose it was.
        if storage.shared and frozen.user_attrs.get(OWNER_ATTR) != storage.owner:
            continue
        trial = Trial(study, frozen._trial_id)
        if _cut_short(frozen, space) and not _agrees(frozen.params, trial):
            trial.set_user_attr(INTERRUPTED_ATTR, True)
            study.tell(trial, state=TrialState.FAIL)
            continue
        found.append(Proposal(trial, space.suggest(trial)))
    return found


def tell(study: optuna.Study, proposal: Proposal, result: TrialResult | Failure) -> None:
    """Record how an evaluation ended; the trial's state is written last, and with it all else counts."""
    trial = proposal.trial
    if isinstance(result, Failure):
        trial.set_user_attr(REASON_ATTR, result.reason)
        study.tell(trial, state=TrialState.FAIL)
        return
    trial.set_user_attr(ESTIMATOR_ATTR, result.estimator)
    trial.set_user_attr("interval", None if result.interval is None else list(result.interval))
    trial.set_user_attr("seconds", result.seconds)
    trial.set_user_attr("curve", list(result.curve))
    trial.set_user_attr("image_s", result.image_s)
    if result.stopped_early:
        trial.report(result.value, len(result.curve))
        study.tell(trial, state=TrialState.PRUNED)
    else:
        study.tell(trial, result.value)


def leave_out(study: optuna.Study, proposal: Proposal, reason: str) -> None:
    """Record that a proposal is not evaluated."""
    proposal.trial.set_user_attr(REASON_ATTR, reason)
    study.tell(proposal.trial, state=TrialState.PRUNED)


def left_out_last(study: optuna.Study, reason: str) -> int:
    """Number of the last finished trials that were left out one after the other for this reason."""
    ended = finished(study)
    return next((i for i, t in enumerate(reversed(ended)) if t.user_attrs.get(REASON_ATTR) != reason), len(ended))


def result_of(trial: FrozenTrial) -> TrialResult:
    """The result that `tell` recorded in a complete trial."""
    attributes = trial.user_attrs
    interval = attributes.get("interval")
    return TrialResult(
        estimator=attributes[ESTIMATOR_ATTR],
        value=trial.values[0],
        interval=None if interval is None else (interval[0], interval[1]),
        seconds=attributes["seconds"],
        curve=tuple(attributes["curve"]),
        image_s=attributes.get("image_s"),
    )


def finished(study: optuna.Study) -> list[FrozenTrial]:
    """Trials that ended, well or not, but for those that were interrupted before their network was known."""
    ended = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.FAIL, TrialState.PRUNED))
    return [t for t in ended if not t.user_attrs.get(INTERRUPTED_ATTR)]


def known_result(study: optuna.Study, arch: Architecture) -> TrialResult | None:
    """Result of the first completed trial with this network; None where there is none."""
    for t in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
        if t.user_attrs.get("key") == arch.key:
            return result_of(t)
    return None


def trained_briefly(study: optuna.Study) -> list[FrozenTrial]:
    """Complete trials whose networks were trained: what a predictor can learn from."""
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return [t for t in complete if t.user_attrs[ESTIMATOR_ATTR] == SHORT]


def _cut_short(trial: FrozenTrial, space: SearchSpace) -> bool:
    return any(name not in trial.params for name in distributions(space))


def _agrees(params: Mapping[str, object], trial: Trial) -> bool:
    """True if proposing again gives the parameters that are stored already."""
    if not params:
        return True
    again = trial.relative_params
    return all(again.get(name) == value for name, value in params.items())
