"""A derivation for a fixed price: epochs are as asked, whatever the budget would decide."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from experiments.baseline_check import fixed
from nas.baseline import run
from nas.baseline.proposing import TEACHING_BATCH
from nas.baseline.steps import Steps


def test_epochs_are_fixed_and_all_else_is_planned(tmp_path: Path) -> None:
    room = SimpleNamespace(objective=SimpleNamespace(train_examples=10 * TEACHING_BATCH))
    steps = cast(Any, SimpleNamespace(folder=SimpleNamespace(plan=tmp_path / "plan.json"), origin={}, room=room))
    before = Steps.planned, run.CONSIDERED
    with fixed(library_epochs=3, tried_epochs=2, final_epochs=7):
        assert Steps.planned(steps, "library", lambda: 1) == 30, "steps of three epochs"
        assert Steps.planned(steps, "tried", lambda: 1) == 2
        assert Steps.planned(steps, "final-1", lambda: 1) == 7, "of a second attempt too"
        assert Steps.planned(steps, "assembled", lambda: 12) == 12
        assert run.CONSIDERED == 1
    assert (Steps.planned, run.CONSIDERED) == before
