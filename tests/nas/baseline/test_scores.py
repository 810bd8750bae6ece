"""Scores that learn from networks: against losses whose make-up is known."""

import itertools

import numpy as np
import pytest

from nas.baseline.scores import refitted
from nas.baseline.selection import total
from nas.networks.options import DROP, KEEP

ALONE = [{KEEP: 0.0, DROP: 1.0, "conv3": 0.3}, {KEEP: 0.0, "conv3": 0.5}, {KEEP: 0.0, DROP: 0.8}]
TRULY = [{KEEP: 0.0, DROP: 0.2, "conv3": 0.15}, {KEEP: 0.0, "conv3": 0.4}, {KEEP: 0.0, DROP: 0.5}]
NETWORKS = [options for options in itertools.product(*ALONE) if set(options) != {KEEP}]


def test_without_networks_losses_are_those_of_single_options() -> None:
    assert refitted(ALONE, []) == ALONE


def test_sums_come_near_what_networks_lose() -> None:
    known = [(options, total(TRULY, options)) for options in NETWORKS]
    found = refitted(ALONE, known)
    errors = [abs(total(found, options) - loss) for options, loss in known]
    before = [abs(total(ALONE, options) - loss) for options, loss in known]
    assert max(errors) < 0.1 < max(before)
    assert all(named[KEEP] == 0 for named in found)


def test_a_factor_common_to_all_is_found_from_few() -> None:
    known = [(options, 0.5 * total(ALONE, options)) for options in NETWORKS[:2]]
    found = refitted(ALONE, known)
    unseen = NETWORKS[-1]
    assert total(found, unseen) == pytest.approx(0.5 * total(ALONE, unseen), rel=0.05)


def test_options_that_lose_nothing_need_no_learning() -> None:
    known = [(options, 0.0) for options in NETWORKS]
    assert all(value >= 0 for named in refitted(ALONE, known) for value in named.values())


def test_nothing_adds_less_than_nothing() -> None:
    rng = np.random.default_rng(0)
    known = [(options, float(rng.random())) for options in NETWORKS]
    assert all(value >= 0 for named in refitted(ALONE, known) for value in named.values())
