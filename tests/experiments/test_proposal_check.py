"""Figures of proposals: distances, costs and regrets."""

import numpy as np

from experiments.proposal_check import Cost, accuracies, cost_of_a_proposal, nearest, row, study_of
from search_spaces import load_search_space


def test_the_nearest_is_the_one_that_differs_in_fewest_decisions() -> None:
    choices = np.array([[0, 0, 0, 0], [0, 0, 0, 1], [2, 2, 0, 1]])
    assert nearest(choices).tolist() == [1, 1, 2]


def test_a_proposal_is_timed_after_so_many_trials() -> None:
    space = load_search_space("mixed")
    study = study_of(space, 7)
    assert len(study.trials) == 7
    assert {t.state.name for t in study.trials} == {"COMPLETE"}
    values = [t.values[0] for t in study.trials]
    assert len(set(values)) == 7
    cost = cost_of_a_proposal(space, 1, 2)
    assert isinstance(cost, Cost)
    assert cost.core_s > 0 < cost.wall_s


def test_more_work_is_worth_more() -> None:
    space = load_search_space("mixed")
    choices = space.sample(200, np.random.default_rng(3))
    found = accuracies(space, choices, np.random.default_rng(0))
    assert np.corrcoef(found, np.log(space.costs(choices, (10,))["macs"]))[0, 1] > 0.3


def test_a_line_says_whether_the_bar_is_met() -> None:
    assert row("a", "<= 1", "2", met=False) == "| a | <= 1 | 2 | no |"
