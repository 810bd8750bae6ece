"""Two machines on one search train different finalists."""

from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

import nas.controller.finalists as finalists
from nas.controller.finalists import FinalRound
from nas.controller.prediction.scoring import CandidateScorer
from nas.controller.runs.run_folder import network_name
from nas.controller.runs.storage import StudyStorage, open_storage
from nas.controller.values import Evaluated
from nas.limits import Limits
from nas.progress import SilentProgress
from nas.targets.latency import LatencyModel
from nas.tasks import TASKS
from search_spaces import load_search_space
from tests.nas.executors.tasks import tiny_data
from tests.nas.fake_device import FP32, fake_profile


def machine(name: str, folder: Path) -> StudyStorage:
    """The storage of a server, for which a file stands, as one machine sees it."""
    storage = optuna.storages.RDBStorage(f"sqlite:///{folder}/server.db")
    return StudyStorage(storage=storage, where="the server", prefix="photos/", owner=name, shared=True)


def test_the_first_that_asks_has_a_finalist_for_good(tmp_path: Path) -> None:
    one, two = machine("one", tmp_path), machine("two", tmp_path)
    assert one.claim("a")
    assert not two.claim("a")
    assert two.claim("b")
    assert not one.claim("b")
    assert machine("one", tmp_path).claim("a"), "it goes on after a kill"
    assert open_storage(tmp_path / "alone").claim("a"), "nobody else works in a run's own file"


@pytest.mark.parametrize(("others", "trained"), [((), [3, 2]), ((3,), [2, 1]), ((3, 2, 1, 0), [0]), ((0,), [3, 2])])
def test_finalists_of_other_machines_are_passed_over(
    others: tuple[int, ...], trained: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Candidates 0 to 3, the last one the most promising; the last that is left is trained whoever has it."""
    space, limits, data = (
        load_search_space("mobile").restrict("resolution", [32]),
        Limits.of(latency_ms=1e3),
        tiny_data(),
    )
    rows = space.sample(4, np.random.default_rng(0))
    candidates = [Evaluated(space.architecture(r), i, 0.1 * i, 1.0) for i, r in enumerate(rows)]
    found: list[int] = []

    class Kept:
        within_limit = True

    def finalist(self: FinalRound, candidate: Evaluated, bar: Any) -> Kept:
        found.append(candidate.trial)
        return Kept()

    monkeypatch.setattr(FinalRound, "finalist", finalist)
    monkeypatch.setattr(finalists, "most_promising", lambda given, *_: sorted(given, key=lambda e: -e.value))
    theirs = {network_name(candidates[i].arch.key) for i in others}
    final = FinalRound(
        space=space, data=data, scorer=CandidateScorer(space, LatencyModel(fake_profile(), [FP32]), limits, (3,)),
        deployments=(FP32,), recipe=TASKS["classification"].recipe(), size=2, objective="accuracy", limits=limits,
        max_drop=0.01, site=None, folder=tmp_path, claim=lambda name: name not in theirs,
    )  # fmt: skip
    assert len(list(final.run(candidates, SilentProgress().stage("").__enter__()))) == len(trained)
    assert found == trained
