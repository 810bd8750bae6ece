"""What every sampler in the table promises."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import optuna
import pytest
from numpy.typing import NDArray
from optuna.trial import TrialState

from nas.samplers import (
    INTERRUPTED_ATTR,
    SAMPLERS,
    LearntLatency,
    SamplerTask,
    architecture_of,
    make_sampler,
)
from nas.samplers.population import neighbours
from predictors.base import Prediction
from search_spaces import Choices, StagedSpace, load_search_space
from search_spaces.errors import UnknownNameError

LIMIT_MACS = 2e8


@pytest.fixture(scope="module")
def space() -> StagedSpace:
    return load_search_space("mobile").restrict("resolution", [64, 96])


def feasible(space: StagedSpace) -> Callable[[Choices], NDArray[np.bool_]]:
    return lambda choices: space.costs(choices, (10,))["macs"] <= LIMIT_MACS


def measured_ms(space: StagedSpace, choices: Choices) -> NDArray[np.float64]:
    return space.costs(choices, (10,))["macs"] / 1e8


class LinearLatency:
    """Milliseconds proportional to the MACs: enough of a predictor for a study."""

    def __init__(self, space: StagedSpace) -> None:
        self.space = space

    def fit(self, choices: Choices, latency_ms: NDArray[np.float64]) -> "LinearLatency":
        self.factor = float(np.mean(latency_ms / self.space.costs(choices, (10,))["macs"]))
        return self

    def predict(self, choices: Choices) -> Prediction:
        mean = self.factor * self.space.costs(choices, (10,))["macs"]
        return Prediction(mean, 0.02 * mean)


def accuracy(space: StagedSpace, choices: Choices) -> float:
    costs = space.costs(choices, (10,))
    return float(0.05 * np.log(costs["params"])[0] + 0.02 * np.log(space.resolutions(choices))[0])


def continue_study(study: optuna.Study, space: StagedSpace, trials: int) -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    for _ in range(trials):
        trial = study.ask()
        choices = space.choices([space.suggest(trial)])
        values = [accuracy(space, choices)]
        if len(study.directions) > 1:
            values.append(float(measured_ms(space, choices)[0]))
        study.tell(trial, values)


def keys(study: optuna.Study, space: StagedSpace) -> list[str]:
    archs = [architecture_of(t, space) for t in study.trials]
    return [a.key for a in archs if a is not None]


@pytest.mark.parametrize("name", SAMPLERS)
def test_proposals_are_new_feasible_and_follow_from_the_storage(name: str, space: StagedSpace, tmp_path: Path) -> None:
    def study(file: str) -> optuna.Study:
        sampler = make_sampler(name, SamplerTask(space=space, feasible=feasible(space), seed=3))
        return optuna.create_study(
            direction="maximize", sampler=sampler, storage=f"sqlite:///{tmp_path}/{file}", study_name="s",
            load_if_exists=True,
        )  # fmt: skip

    whole = study("a.db")
    continue_study(whole, space, 14)
    for trials in (7, 7):
        parts = study("b.db")
        continue_study(parts, space, trials)
    assert keys(whole, space) == keys(parts, space)
    assert len(set(keys(whole, space))) == 14
    archs = [architecture_of(t, space) for t in whole.trials]
    assert feasible(space)(space.choices([a for a in archs if a is not None])).all()


@pytest.mark.parametrize("name", SAMPLERS)
def test_fronts(name: str, space: StagedSpace) -> None:
    latency = LearntLatency(lambda: LinearLatency(space), lambda trial: trial.values[1])
    sampler = make_sampler(name, SamplerTask(space=space, latency=latency))
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
    continue_study(study, space, 14)
    assert len(set(keys(study, space))) == 14
    assert study.best_trials


@pytest.mark.parametrize("name", SAMPLERS)
def test_failed_and_running_networks_are_not_proposed_again(name: str, space: StagedSpace) -> None:
    study = optuna.create_study(direction="maximize", sampler=make_sampler(name, SamplerTask(space=space)))
    continue_study(study, space, 11)
    for state in (TrialState.FAIL, None):
        trial = study.ask()
        space.suggest(trial)
        if state is not None:
            study.tell(trial, state=state)
    continue_study(study, space, 1)
    assert len(set(keys(study, space))) == 14


@pytest.mark.parametrize("name", SAMPLERS)
def test_an_interrupted_trial_is_as_if_it_had_never_been(name: str, space: StagedSpace) -> None:
    task = SamplerTask(space=space)
    study, undisturbed = (optuna.create_study(direction="maximize", sampler=make_sampler(name, task)) for _ in range(2))
    continue_study(study, space, 6)
    trial = study.ask()
    lost = space.suggest(trial)
    trial.set_user_attr(INTERRUPTED_ATTR, True)
    study.tell(trial, state=TrialState.FAIL)
    continue_study(study, space, 1)
    continue_study(undisturbed, space, 7)
    assert keys(study, space)[-1] == lost.key == keys(undisturbed, space)[-1]


def test_a_learnt_limit_is_kept_more_and_more(space: StagedSpace) -> None:
    limit_ms = float(np.quantile(measured_ms(space, space.sample(500, np.random.default_rng(0))), 0.2))
    latency = LearntLatency(
        lambda: LinearLatency(space), lambda trial: trial.constraints["latency_ms"] + limit_ms, limit_ms
    )
    study = optuna.create_study(
        direction="maximize", sampler=make_sampler("surrogate", SamplerTask(space=space, latency=latency, seed=1))
    )
    for _ in range(16):
        trial = study.ask()
        choices = space.choices([space.suggest(trial)])
        trial.set_constraint("latency_ms", float(measured_ms(space, choices)[0]) - limit_ms)
        study.tell(trial, accuracy(space, choices))
    kept = [t.constraints["latency_ms"] <= 0 for t in study.trials]
    assert sum(kept[:10]) <= 5, "the first ten are random"
    assert sum(kept[10:]) >= 5


def test_neighbours_differ_in_one_decision(space: StagedSpace) -> None:
    rows = space.sample(2, np.random.default_rng(0))
    near = neighbours(space, rows)
    assert len(np.unique(near, axis=0)) == len(near) > 50
    assert (near == space.canonical(near)).all()
    assert not {tuple(r) for r in rows} & {tuple(r) for r in near}


def test_unknown_sampler(space: StagedSpace) -> None:
    with pytest.raises(UnknownNameError, match="sampler 'nsga'"):
        make_sampler("nsga", SamplerTask(space=space))
