"""The choice among a server's settings, apart from their measurement."""

from dataclasses import replace
from pathlib import Path

import pytest

from nas.errors import LimitMissedError
from nas.loadtest import tuning
from nas.loadtest.outcome import Trial
from nas.loadtest.tuning import Measured, choose, disagree, finalists, grid, together
from nas.progress import SilentProgress
from nas.serving.settings import ServingSettings
from tests.nas.small_bundles import write_bundle

USUAL = ServingSettings()


def test_the_grid_uses_all_cores_in_every_way() -> None:
    found = [(s.replicas, s.threads, s.batch) for s in grid(USUAL, cores=6)]
    assert found == [(r, t, b) for r, t in ((6, 1), (3, 2), (2, 3), (1, 6)) for b in (1, 4, 8)]
    assert {s.cores for s in grid(USUAL, cores=6)} == {6}


def measured(batch: int, closed_per_s: float, at_slo_per_s: float | None = None) -> Measured:
    return Measured(settings=replace(USUAL, batch=batch), closed_per_s=closed_per_s, at_slo_per_s=at_slo_per_s)


def test_the_fastest_go_on_and_the_highest_rate_at_the_limit_wins() -> None:
    entries = [measured(1, 100.0), measured(2, 300.0), measured(3, 300.0), measured(4, 200.0)]
    assert [entry.settings.batch for entry in finalists(entries)] == [2, 3, 4]
    best = choose([measured(8, 300.0, 90.0), measured(4, 200.0, 120.0), measured(1, 100.0, 120.0)])
    assert best is not None
    assert best.settings.batch == 1
    assert choose([measured(1, 100.0), measured(2, 50.0)]) is None
    level = [measured(8, 300.0, 120.0), measured(4, 200.0, 117.0), measured(1, 100.0, 109.0)]
    best = choose(level)
    assert best is not None
    assert best.settings.batch == 4, "the smaller batch where servers differ by as much; a tenth less is less"


def test_rates_of_several_servers_are_one_figure() -> None:
    assert together([100.0, 120.0]) == 110.0
    assert together([100.0, None, 120.0]) == 110.0
    assert together([100.0, None]) is together([100.0, None, None]) is together([None]) is None
    assert together([]) is None
    assert disagree([100.0, None])
    assert not disagree([100.0, 50.0])
    assert not disagree([None, None])


@pytest.mark.parametrize(("third", "batch", "rate"), [(190.0, 4, 195.0), (None, 1, 50.0)], ids=["disturbed", "true"])
def test_one_server_that_keeps_no_rate_does_not_remove_its_settings(
    third: float | None, batch: int, rate: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: dict[int, list[float | None]] = {1: [50.0, 50.0], 4: [None, 200.0, third], 8: [None, None]}

    def at_slo(bundle: Path, entry: Measured, slo_ms: float, trials: list[Trial]) -> Measured:
        return replace(entry, at_slo_per_s=said[entry.settings.batch].pop(0))

    monkeypatch.setattr(tuning, "usable_cores", lambda: (0,))
    monkeypatch.setattr(tuning, "closed_rate", lambda bundle, settings: 100.0)
    monkeypatch.setattr(tuning, "at_slo", at_slo)
    found = tuning.tuned(write_bundle(tmp_path / "bundle"), 20.0, SilentProgress())
    assert (found.best.settings.batch, found.best.at_slo_per_s) == (batch, rate)
    assert said == {1: [], 4: [], 8: []}, "each was asked twice, and a third time where the two disagreed"


@pytest.mark.slow
def test_the_choice_is_made_by_measuring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = write_bundle(tmp_path / "bundle")
    monkeypatch.setattr(tuning, "usable_cores", lambda: (0,))
    for name, value in {"SECONDS": 0.3, "FINALISTS": 1, "TRIALS": 1, "SERVERS": 1, "BATCHES": (1,)}.items():
        monkeypatch.setattr(tuning, name, value)
    with pytest.raises(LimitMissedError, match=r"99 % within 0.01 ms: the nearest took [\d.]+ ms"):
        tuning.tune(bundle, 0.01, SilentProgress())

    asked: list[int] = []

    def at_slo(bundle: Path, entry: Measured, slo_ms: float, trials: list[Trial]) -> Measured:
        asked.append(entry.settings.batch)
        return replace(entry, at_slo_per_s=50.0 * entry.settings.batch)

    monkeypatch.setattr(tuning, "BATCHES", (1, 4, 8))
    monkeypatch.setattr(tuning, "FINALISTS", 2)
    monkeypatch.setattr(tuning, "SERVERS", 2)
    monkeypatch.setattr(tuning, "closed_rate", lambda bundle, settings: 100.0 - settings.batch)
    monkeypatch.setattr(tuning, "at_slo", at_slo)
    found = tuning.tuned(bundle, 20.0, SilentProgress())
    assert (found.best.settings.batch, found.best.settings.deadline_ms) == (4, 20.0)
    assert (len(found.grid), len(found.finalists)) == (3, 2)
    assert asked == [1, 4, 1, 4], "in turns"
