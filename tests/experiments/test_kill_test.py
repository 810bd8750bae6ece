"""Searches that are killed lose nothing: the experiment itself, with a few kills."""

from pathlib import Path

import numpy as np
import pytest

from experiments.kill_test import Search, damage, disturbed, undisturbed


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_killed_search_loses_nothing_and_finds_the_same(tmp_path: Path) -> None:
    plain, killed = (Search(tmp_path / name, trials=4, seed=1) for name in ("plain", "killed"))
    undisturbed(plain)
    kills = disturbed(killed, 3, np.random.default_rng(0))
    assert kills >= 2, "a search that ends before it is killed shows nothing"
    assert damage(kills, plain, killed).none, damage(kills, plain, killed)
    assert len(plain.told()) == 4
