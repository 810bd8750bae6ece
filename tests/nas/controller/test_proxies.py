"""Zero-cost scores as far as their time goes, by a clock that tests turn."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from nas.controller.proxies import within
from search_spaces import Architecture, load_search_space

SPACE = load_search_space("mobile")
ARCHS = [SPACE.architecture(row) for row in SPACE.sample(4, np.random.default_rng(0))]


@pytest.mark.parametrize(("seconds", "scored"), [(0.0, 1), (1.5, 1), (4.0, 2), (4.1, 3), (math.inf, 4)])
def test_scores_end_with_their_time_and_what_is_known_stays(seconds: float, scored: int) -> None:
    now, asked = [0.0], []

    def scores(arch: Architecture) -> NDArray[np.float64]:
        now[0] += 2.0
        asked.append(arch.key)
        return np.array([1.0, 2.0, 3.0])

    limited = within(scores, seconds, clock=lambda: now[0])
    found = [limited(arch) for arch in ARCHS]
    assert asked == [arch.key for arch in ARCHS[:scored]]
    assert [bool(np.isnan(row).all()) for row in found] == [False] * scored + [True] * (4 - scored)
    assert [len(row) for row in found] == [3] * 4
    assert limited(ARCHS[0]).tolist() == [1.0, 2.0, 3.0]
    assert len(asked) == scored, "it was known"
