"""The surrogate sampler as anyone's Optuna sampler: constraints, second objectives, processes, seeds."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import optuna
import pytest

from experiments.proposal_check import nearest, pending_proposals
from experiments.tabular.nb201 import Nb201Space
from experiments.tabular.views import NB201_VIEWS
from nas.errors import UserError
from nas.samplers import INTERRUPTED_ATTR, SurrogateSampler, SurrogateSettings, architecture_of
from nas.samplers.base import knowledge
from nas.samplers.goal import Goal
from predictors.accuracy import AccuracyPredictor
from search_spaces import Architecture, SearchSpace, load_search_space

ROOT = Path(__file__).parents[3]
RNG = np.random.default_rng(0)
QUICK = SurrogateSettings(population=128, generations=3, fast=True)


@pytest.fixture(scope="module")
def space() -> SearchSpace:
    return cells()


def cells() -> SearchSpace:
    return Nb201Space()


def params_and_accuracy(space: SearchSpace, trial: optuna.Trial) -> tuple[float, float]:
    """Of the cell that a trial proposes: weights, a 1x1 convolution being one, and an accuracy that grows with them."""
    return of_cell(space, space.suggest(trial))


def of_cell(space: SearchSpace, arch: Architecture) -> tuple[float, float]:
    ops = space.choices([arch])[0]
    weights = np.array([0.0, 0.0, 1.0, 9.0, 0.0])[ops]
    return float(weights.sum()), float(np.log1p(weights @ np.array([1, 2, 1, 3, 2, 1.0])))


def study_of(space: SearchSpace, seed: int, storage: str | None = None) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(
        direction="maximize",
        sampler=SurrogateSampler(space, settings=QUICK, seed=seed, features=NB201_VIEWS),
        storage=storage,
        study_name="s",
        load_if_exists=True,
    )


def go_on(study: optuna.Study, space: SearchSpace, trials: int) -> list[str]:
    """Accuracy within at most twelve weights, a constraint that only an evaluation shows; keys of all proposals."""

    def objective(trial: optuna.Trial) -> float:
        weights, accuracy = params_and_accuracy(space, trial)
        trial.set_constraint("weights", weights - 12)
        return accuracy

    study.optimize(objective, n_trials=trials)
    return [arch.key for t in study.trials if (arch := architecture_of(t, space)) is not None]


def test_another_process_proposes_what_the_first_would_have(space: SearchSpace, tmp_path: Path) -> None:
    undisturbed = go_on(study_of(space, 5), space, 15)
    file = f"sqlite:///{tmp_path}/study.db"
    assert go_on(study_of(space, 5, file), space, 12) == undisturbed[:12]
    script = (
        "import json; from tests.nas.samplers.test_surrogate import cells, go_on, study_of; "
        f"print(json.dumps(go_on(study_of(cells(), 5, {file!r}), cells(), 3)))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True)
    assert json.loads(done.stdout) == undisturbed


def test_the_seed_decides(space: SearchSpace) -> None:
    first, again, other = (go_on(study_of(space, seed), space, 12) for seed in (1, 1, 2))
    assert first == again
    assert not set(first[:10]) & set(other[:10]), "ten in 15,625 are hardly drawn twice"


def test_a_constraint_is_learnt_from_the_trials_that_broke_it(space: SearchSpace) -> None:
    """Accuracy grows with weights, so who does not know of the constraint proposes what breaks it almost always. Three
    seeds: one proposal depends on the last digits of a processor's arithmetic, and with it all that follow."""
    kept_after_start = 0
    for seed in range(3):
        study = study_of(space, seed)
        go_on(study, space, 26)
        kept = [t.constraints["weights"] <= 0 for t in study.trials]
        kept_after_start += sum(kept[10:])
        at_first = max(t.values[0] for t, k in zip(study.trials[:10], kept, strict=False) if k)
        assert study.best_value > at_first, "and still it finds better ones within it"
    assert kept_after_start >= 24, "half of the 48 proposals"

    blind = study_of(space, 0)
    blind.optimize(lambda trial: params_and_accuracy(space, trial)[1], n_trials=26)
    proposed = [arch for t in blind.trials[10:] if (arch := architecture_of(t, space)) is not None]
    weights = [of_cell(space, arch)[0] for arch in proposed]
    assert len(weights) == 16
    assert sum(w <= 12 for w in weights) <= 2


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_a_second_objective_needs_no_predictor_of_its_own(direction: str, space: SearchSpace) -> None:
    """Milliseconds, or images per second."""
    study = optuna.create_study(
        directions=["maximize", direction], sampler=SurrogateSampler(space, settings=QUICK, seed=2)
    )

    def objective(trial: optuna.Trial) -> tuple[float, float]:
        weights, accuracy = params_and_accuracy(space, trial)
        ms = 1.0 + weights
        return accuracy, ms if direction == "minimize" else 1000 / ms

    study.optimize(objective, n_trials=24)
    fresh = {t.number for t in study.best_trials if t.number >= 10}
    assert len(fresh) >= 3, "the front grows after the start"


def test_objectives_that_are_none_of_ours_are_refused(space: SearchSpace) -> None:
    sampler = SurrogateSampler(space, settings=QUICK)
    study = optuna.create_study(directions=["maximize"] * 3, sampler=sampler)
    with pytest.raises(UserError, match="3 objectives"):
        study.optimize(lambda trial: (*params_and_accuracy(space, trial), 1.0), n_trials=11)
    negative = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
    with pytest.raises(UserError, match="-1 as its second objective"):
        negative.optimize(lambda trial: (params_and_accuracy(space, trial)[1], -1.0), n_trials=11)


def test_pending_proposals_are_no_neighbours_of_each_other() -> None:
    """32 at once in a space of 34 decisions; who only leaves out what is pending proposes copies of one network."""
    found = pending_proposals(load_search_space("mixed"), finished=40, pending=32)
    assert nearest(found).min() >= 5


def test_what_is_pending_decides_nothing_once_it_has_ended(space: SearchSpace) -> None:
    """One by one, proposals do not depend on others that were under way before: a sampler that saw them and one that
    never did agree."""

    def told() -> optuna.Study:
        study = study_of(space, 4)
        go_on(study, space, 14)
        return study

    busy, quiet = told(), told()
    first, second = (busy.ask() for _ in range(2))
    cells = [space.suggest(t) for t in (first, second)]
    assert cells[0].key != cells[1].key
    for trial in (first, second):
        trial.set_user_attr(INTERRUPTED_ATTR, True)
        busy.tell(trial, state=optuna.trial.TrialState.FAIL)
    assert space.suggest(busy.ask()).key == space.suggest(quiet.ask()).key == cells[0].key


def test_where_all_is_near_what_is_pending_proposals_are_still_new(space: SearchSpace) -> None:
    two = space.restricted({d.name: d.options[:2] for d in space.decisions[:3]})
    for decision in space.decisions[3:]:
        two = two.restrict(decision.name, decision.options[:1])
    study = study_of(two, 1)
    keys = [two.suggest(study.ask()).key for _ in range(len({a.tobytes() for a in two.sample(512, RNG)}))]
    assert len(set(keys)) == len(keys), "each network of the space once"


def test_trials_count_in_the_order_in_which_they_ended(space: SearchSpace) -> None:
    """So that one that ends late does not put all predictors to be fitted again."""
    study = study_of(space, 0)
    trials = [study.ask() for _ in range(3)]
    for trial in trials:
        space.suggest(trial)
    for at in (1, 2, 0):
        study.tell(trials[at], 0.1 * at)
    assert [t.number for t in knowledge(study, space, 99).complete] == [1, 2, 0]


def test_a_goal_believes_in_what_is_pending(space: SearchSpace) -> None:
    """A candidate that is being evaluated promises little, and others keep their order by mean."""
    rng = np.random.default_rng(5)
    rows = space.sample(40, rng)
    accuracy = np.array([of_cell(space, space.architecture(row))[1] for row in rows])
    goal = Goal(AccuracyPredictor(features=NB201_VIEWS, fast=True).fit(rows, accuracy), float(np.median(accuracy)))
    pending = rows[:1]
    believing = goal.believing(pending)
    assert believing(pending)[0] < goal(pending)[0]
    before, after = goal.accuracy.predict(rows), believing.accuracy.predict(rows)
    np.testing.assert_allclose(after.mean, before.mean, atol=1e-3)
    assert (after.std <= before.std + 1e-6).all()
    assert after.std[0] < before.std[0]
