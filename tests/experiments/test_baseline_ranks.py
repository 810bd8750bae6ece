"""What is told of networks whose accuracy before and after their training is known."""

from dataclasses import replace

import pytest

from experiments.baseline_ranks import Row, summary, taking_part, way_of
from nas.baseline.shortlist import Proposal
from nas.networks.derived import Form

PROPOSAL = Proposal(
    options=("keep",), origin="exact", deployment="onnxruntime-int8", score=1.0, predicted_ms=1.0, loss=1.0,
    accuracy=0.5,
)  # fmt: skip
ROW = Row(form=Form(), options=("keep",), way="exact", score=1.0, loss=1.0, early_accuracy=0.5, ms=1.0, accuracy=0.5)


def proposal(number: int, **changes: object) -> Proposal:
    return replace(PROPOSAL, options=(str(number),), loss=float(number), **changes)  # type: ignore[arg-type]


def test_every_way_of_every_form_takes_part_and_then_the_whole_range() -> None:
    exact = [proposal(n) for n in range(10)]
    others = [proposal(20, origin="greedy"), proposal(21, origin="drop from the end"), proposal(22, form=Form(0.5))]
    chosen = taking_part([*reversed(exact), *others], 1.0, 7)
    assert chosen[:4] == [exact[0], *others]
    assert chosen[4:] == [exact[1], exact[5], exact[9]], "from the nearest to the farthest"
    assert len(taking_part([*exact, *others], 1.0, 100)) == 13


def test_networks_far_over_the_limit_and_repeated_ones_do_not_take_part() -> None:
    slow, measured, again = proposal(1, predicted_ms=1.2), proposal(2, measured_ms=1.2), proposal(3, deployment="other")
    near = proposal(4, predicted_ms=1.2, measured_ms=1.05)
    assert taking_part([slow, measured, proposal(3), again, near], 1.0, 10) == [proposal(3), near]
    assert taking_part([], 1.0, 10) == []


@pytest.mark.parametrize(
    ("origin", "way"),
    [("exact", "exact"), ("greedy", "greedy"), ("fastest", "fastest"), ("drop from the end", "uniform")],
)
def test_rules_are_uniform(origin: str, way: str) -> None:
    assert way_of(origin) == way


def test_an_order_that_is_known_has_tau_one_and_each_way_delivers_its_nearest_within_the_limit() -> None:
    rows = [
        replace(ROW, loss=0.1, accuracy=0.9, way="exact", ms=1.3),
        replace(ROW, loss=0.2, accuracy=0.8, way="exact"),
        replace(ROW, loss=0.3, accuracy=0.7, way="exact"),
        replace(ROW, loss=0.4, accuracy=0.6, way="greedy", ms=None),
    ]
    found = summary(rows, 1.0)
    assert found["networks"] == 4
    assert found["within_limit"] == 2
    assert found["tau"]["loss"] == {"all": pytest.approx(1.0), "within_forms": pytest.approx(1.0)}
    assert found["tau"]["score"] == {"all": None, "within_forms": None}, "all alike: it tells nothing"
    assert found["ways"]["exact"]["accuracy"] == 0.8
    assert found["ways"]["greedy"] is None
    assert found["ways"]["uniform"] is None


def test_forms_can_be_ordered_within_and_not_across() -> None:
    rows = [replace(ROW, form=Form(w), loss=loss, accuracy=a) for w, loss, a in [
        (1.0, 0.1, 0.6), (1.0, 0.2, 0.5), (0.5, 0.3, 0.9), (0.5, 0.4, 0.8),
    ]]  # fmt: skip
    tau = summary(rows, 1.0)["tau"]["loss"]
    assert tau["within_forms"] == pytest.approx(1.0)
    assert tau["all"] < 0
    assert summary(rows[:1], 1.0)["tau"]["loss"] == {"all": None, "within_forms": None}
