"""Limits, objectives, budget, interrupts and records: values and pure functions, no search."""

import json
import math
import subprocess
import sys
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nas.controller.config import Objective, SearchConfig
from nas.controller.objective import Ending, finalist_pool, next_finalist, winners
from nas.controller.planning.budget import BookedStage, Budget
from nas.controller.planning.plan import OPEN_END_S, estimate, open_end_plan, planned_s, room_for_baseline
from nas.controller.prediction.probes import fitted_files
from nas.controller.undelivered import is_worth_it, not_worth_it
from nas.controller.values import Evaluated
from nas.data import ImageSplit
from nas.deployment import Deployment
from nas.errors import UserError
from nas.executors.executor import hangs_after_s
from nas.limits import KINDS, LatencyLimit, Limits, Observation
from nas.measure.job import SessionTiming
from nas.measure.measurement import Measurement, MeasureRequest, summarise
from nas.tasks import TASKS
from nas.tasks.floor import Floor
from search_spaces import Architecture

ALL = Limits.of(
    latency_ms=5.0, percentile=90, throughput=250.0, max_params=1e6, max_size_mb=4.0, max_memory_mb=50.0,
    min_accuracy=0.9,
)  # fmt: skip
GOOD: dict[str, Any] = {
    "latencies_ms": (4.0, 4.5), "medians_ms": (3.5, 3.9), "params": 10**6, "size_bytes": 4_000_000,
    "memory_bytes": 50_000_000, "accuracy": 0.9,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("latency_ms", {"latencies_ms": (4.0, 5.1)}, "takes, by its slowest session, up to 5.10 ms (p90)"),
        ("throughput", {"medians_ms": (3.5, 4.1)}, "its slowest session ran 244 images/s"),
        ("max_params", {"params": 10**6 + 1}, "parameters"),
        ("max_size_mb", {"size_bytes": 4_100_000}, "its files have 4.1 MB"),
        ("max_memory_mb", {"memory_bytes": 51_000_000}, "it took 51 MB of memory"),
        ("min_accuracy", {"accuracy": 0.899}, "accuracy 89.9% is below 90.0%"),
    ],
)
def test_each_limit_is_checked(name: str, change: dict[str, Any], reason: str) -> None:
    assert ALL.violations(Observation(**GOOD)) == []
    found = ALL.violations(Observation(**(GOOD | change)))
    assert [b.name for b in found] == [name]
    assert reason in found[0].reason


def test_slow_calls_keep_a_limit_miss_it_or_do_not_tell() -> None:
    """Of slow calls a session knows what they take at least and at most, not what they take."""
    limit = LatencyLimit(5.0, percentile=90)

    def seen(least_ms: float | None, *most_ms: float) -> Observation:
        return Observation(latencies_ms=most_ms, least_ms=least_ms)

    assert limit.violation(seen(3.0, 4.0, 5.0)) is None
    assert not limit.undecided(seen(3.0, 4.0, 5.0))
    for least_ms, undecided in ((5.1, False), (5.0, True), (3.0, True), (None, False)):
        found = limit.violation(seen(least_ms, 4.0, 6.0))
        assert found is not None, "what is not proven is not kept"
        assert limit.undecided(seen(least_ms, 4.0, 6.0)) == undecided
        assert ("these calls do not tell if it keeps the limit" in found.reason) == undecided
    assert seen(3.0, 4.0).slowed(2.0).least_ms == 6.0
    assert not LatencyLimit(5.0).undecided(seen(3.0, 4.0, 6.0)), "a median is what was measured"
    assert not limit.undecided(replace(seen(3.0, 6.0), predicted=True))


def test_limits_speak_of_themselves() -> None:
    assert tuple(ALL.given) == tuple(kind.name for kind in KINDS)
    assert tuple(limit.name for limit in ALL.predicted) == (
        "latency_ms",
        "throughput",
        "max_params",
        "max_size_mb",
        "max_memory_mb",
    )
    assert ALL.label == "p90-5ms-250ips-1M-params-4MB-50MB-memory-90pct"
    assert ALL.call_limit_ms(1) == 4.0
    assert Limits.of(latency_ms=10).text == "at most 10 ms"
    assert SearchConfig(limits=Limits.of(latency_ms=10)).run_dir.name == "classification-local-10ms"
    assert SearchConfig(objective="pareto").run_dir.name == "classification-local-pareto"


@pytest.mark.parametrize(
    ("limits", "change", "margin_pct"),
    [
        ({"latency_ms": 10.0, "percentile": 99, "throughput": 200.0}, {}, 20.0),
        ({"latency_ms": 8.0, "percentile": 99, "throughput": 200.0}, {}, 0.0),
        ({"latency_ms": 10.0, "percentile": 99, "throughput": 500.0}, {}, -100.0),
        ({"latency_ms": 10.0, "percentile": 99, "throughput": 500.0}, {"batch": 4}, 20.0),
        ({"latency_ms": 10.0, "percentile": 99}, {"latencies_ms": (9.0,), "medians_ms": (9.0,)}, 10.0),
        ({"throughput": 200.0}, {"latencies_ms": (math.inf,), "medians_ms": (math.inf,)}, -math.inf),
        ({"latency_ms": 10.0}, {"latencies_ms": (), "medians_ms": ()}, None),
        ({"max_size_mb": 1.0, "min_accuracy": 0.9}, {}, None),
    ],
)
def test_a_margin_compares_each_limit_with_what_it_limits(
    limits: dict[str, Any], change: dict[str, Any], margin_pct: float | None
) -> None:
    """The 99th percentile with the latency, the median with the throughput; the nearest limit counts."""
    seen = Observation(**({"latencies_ms": (7.0, 8.0), "medians_ms": (4.0, 3.5)} | change))
    assert Limits.of(**limits).margin_pct(seen) == (None if margin_pct is None else pytest.approx(margin_pct))


@pytest.mark.parametrize("wrong", [{"percentile": 95}, {"max_params": 0}, {"min_accuracy": 1.5}, {"throughput": -1.0}])
def test_limits_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        Limits.of(**wrong)


def candidate(number: int, accuracy: float) -> Evaluated:
    return Evaluated(Architecture("s", (number,)), number, accuracy, 1.0, 0.001)


LATENCIES = {0: 1.0, 1: 2.0, 2: 4.0, 3: 8.0, 4: 16.0, 5: 16.0}


def latency_ms(e: Evaluated) -> float:
    return LATENCIES[e.trial]


CANDIDATES = [candidate(i, a) for i, a in enumerate([0.5, 0.6, 0.7, 0.65, 0.8, 0.75])]


def order_of(objective: Objective, kept: set[int], missed: frozenset[int] = frozenset()) -> list[int]:
    """Trials in the order of their trainings, where those `kept` keep every limit, those `missed` are accurate and miss
    another one, and all others are not accurate enough."""
    pool = finalist_pool(objective, sorted(CANDIDATES, key=lambda e: -e.value), latency_ms)
    done: dict[str, Ending] = {}
    order = []
    while (chosen := next_finalist(objective, pool, done, latency_ms)) is not None:
        order.append(chosen.trial)
        accurate: Ending = "missed" if chosen.trial in missed else "inaccurate"
        done[chosen.arch.key] = "kept" if chosen.trial in kept else accurate
    return order


def test_finalists_follow_the_objective() -> None:
    assert order_of("accuracy", set()) == [4, 5, 2, 3, 1, 0]
    assert order_of("pareto", set()) == [4, 0, 2, 1], "the front alone: both ends, then between"
    assert order_of("latency", {4, 2}) == [4, 1, 2], "halving: 4 keeps the accuracy, 1 does not, 2 does"
    assert order_of("latency", set()) == [4], "what the most accurate one misses, faster ones miss too"


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_a_finalist_that_is_too_slow_does_not_rule_out_faster_ones(objective: Objective) -> None:
    assert order_of(objective, {1}, frozenset({4})) == [4, 1, 0], "4 takes too long, 1 does not, 0 is less accurate"
    assert order_of(objective, set(), frozenset({4, 1})) == [4, 1, 2], "0 is not accurate enough after 2"
    assert order_of(objective, set(), frozenset({4, 2, 1, 0})) == [4, 1, 2, 0], "each rules out itself alone"


@dataclass(frozen=True)
class Done:
    call_ms: float
    deployed_accuracy: float
    within_limit: bool = True

    @property
    def images_per_s(self) -> float:
        return 1e3 / self.call_ms


def test_winners_follow_the_objective() -> None:
    slow, middle, fast, beaten = Done(9.0, 0.9), Done(4.0, 0.8), Done(1.0, 0.6), Done(5.0, 0.7)
    missed = Done(0.5, 0.99, within_limit=False)
    finalists: Any = [middle, missed, fast, beaten, slow]
    assert winners("accuracy", finalists, 2) == [slow, middle]
    assert winners("latency", finalists, 1) == [fast]
    assert winners("throughput", finalists, 1) == [fast]
    assert winners("pareto", finalists, 3) == [slow, middle, fast]
    assert winners("pareto", finalists, 2) == [slow, fast]
    assert winners("accuracy", [missed], 1) == []  # type: ignore[list-item]


def test_a_continued_budget_has_spent_what_it_has_spent(tmp_path: Path) -> None:
    now = [100.0]
    budget = Budget(60.0, lambda: now[0], spent={"a": 20.0, "total": 25.0}, price_per_hour=3600.0)
    path = tmp_path / "account.json"

    class Bar:
        def advance(self, amount: float = 1, note: str | None = None) -> None:
            pass

    with budget.stage("a"), budget.stage("b"):
        now[0] += 5.0
        BookedStage(Bar(), budget, path).advance()
    assert json.loads(path.read_text()) == {"a": 25.0, "total": 30.0}
    assert budget.account() == {"a": 25.0, "b": 5.0, "total": 30.0}
    assert budget.cost_usd == 30.0


def test_budgets_meet_in_seconds() -> None:
    assert SearchConfig(limits=Limits.of(latency_ms=1)).seconds == 600.0
    assert SearchConfig(limits=Limits.of(latency_ms=1), max_trials=5).seconds == float("inf")
    assert (
        SearchConfig(limits=Limits.of(latency_ms=1), max_cost_usd=2, price_per_hour=4, budget_s=3000).seconds == 1800.0
    )
    planned = estimate(10.0, 110.0, 5.0, 4, baselines=True)
    assert planned["short_training"] <= 20.0
    assert planned["total"] <= 110.0
    assert estimate(0.0, float("inf"), 5.0, 4, baselines=False)["short_training"] == 20.0


def test_trials_alone_are_planned_for_a_usual_budget() -> None:
    endless = float("inf")
    assert planned_s(60.0) == 60.0
    assert planned_s(endless) == OPEN_END_S
    for baselines in (False, True):
        expected = estimate(3.0, endless, 5.0, 4, baselines=baselines)
        assert all(math.isfinite(s) and s > 0 for s in expected.values())
        assert expected["total"] == pytest.approx(sum(s for stage, s in expected.items() if stage != "total"))
        plan = open_end_plan(
            TASKS["classification"].recipe(), 2.0, 5, 2, shape=TASKS["classification"].shape, baselines=baselines
        )
        assert plan.recipe.time_limit_s is None, "no clock ends a training"
        assert 5 <= plan.recipe.epochs <= 40
        cheap = open_end_plan(
            TASKS["classification"].recipe(), 1e-3, 5, 2, shape=TASKS["classification"].shape, baselines=baselines
        )
        assert cheap.size == 2, "no time is left over where none was given"
    assert room_for_baseline(1e6, endless, {"short_training": 1e5}, 3, 2)
    assert hangs_after_s(60.0) == 60.0 < hangs_after_s(3600.0) == 900.0 == hangs_after_s(endless)
    assert hangs_after_s(14_400.0) == hangs_after_s(36_000.0) == 3600.0 < hangs_after_s(1e6) == 1e5


def test_a_search_that_ran_over_its_time_has_no_random_baseline() -> None:
    spent = {"prepare": 10.0, "short_training": 20.0, "final_training": 30.0}
    assert room_for_baseline(60.0, 100.0, spent, 4, 2), "one short and one full training: 20 s"
    assert not room_for_baseline(80.0, 100.0, spent, 4, 2)
    assert room_for_baseline(80.0, 100.0, spent, 4, 4), "four finalists took the 30 s, one takes 7.5 s"
    assert not room_for_baseline(101.0, 100.0, {}, 0, 0)


INTERRUPTED_TWICE = """
import signal
import sys
from nas.controller.planning.budget import Interrupts

number = signal.Signals[sys.argv[1]]
interrupts, before, seen = Interrupts(), signal.getsignal(number), []
with interrupts.handled():
    with interrupts.abandonable():
        signal.raise_signal(number)
        seen.append("went on in the block")
    seen.append(f"asked: {interrupts.asked}")
    try:
        signal.raise_signal(number)
        seen.append("went on after the second")
    except KeyboardInterrupt:
        seen.append("ended by the second")
seen.append(f"as before: {signal.getsignal(number) is before}")
print(*seen, sep="; ")
"""


@pytest.mark.parametrize("signal", ["SIGINT", "SIGTERM"])
def test_one_interrupt_ends_a_block_and_two_end_all(signal: str) -> None:
    """In a process of its own: what other tests load into this one takes over its signals too."""
    line = [sys.executable, "-X", "faulthandler", "-c", INTERRUPTED_TWICE, signal]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "asked: True; ended by the second; as before: True\n"), done.stderr


def test_probes_tell_size_memory_and_tail() -> None:
    params, activations = np.array([1e5, 5e5, 1e6, 3e6]), np.array([1e6, 2e5, 5e5, 8e5])
    memory = 20 + 5 * params / 1e6 + 8 * activations / 1e6

    def measured(memory_mb: float) -> Measurement:
        session = SessionTiming(
            p50_ms=2.0, p90_ms=3.0, p99_ms=4.0, calls=9, reference_p50_ms=1.0, load_ms=1.0,
            memory_bytes=int(1e6 * memory_mb), cpu_share=1.0, disturbance=None,
        )  # fmt: skip
        return summarise(MeasureRequest(Path("m"), INT8), [session], None, 1.0)

    INT8 = Deployment("onnxruntime", "int8", 1)
    sizes = [0.3 + p / 1e6 for p in params]
    costs = {"params": params, "activations": activations}
    found = fitted_files(INT8, costs, sizes, [measured(m) for m in memory], 99)
    assert found.bytes_per_param == pytest.approx(1.0)
    assert found.overhead_mb == pytest.approx(0.3)
    assert found.tail == 2.0
    assert found.memory is not None
    assert found.memory[0] == pytest.approx(20, rel=0.01)
    assert found.memory[1] == pytest.approx(5e-6, rel=0.01)


def test_what_is_no_better_than_a_floor_is_not_worth_delivering() -> None:
    val = ImageSplit(np.zeros((100, 8, 8, 3), np.uint8), np.zeros(100, np.int64))
    data: Any = SimpleNamespace(task="classification", val=val)
    floors = (
        Floor(name="guessing", accuracy=0.1, test=None, margin=2.0, seconds=0.0),
        Floor(name="a linear model", accuracy=0.6, test=None, margin=-1.0, seconds=3.0),
    )
    assert is_worth_it(Done(1.0, 0.58), floors, data)  # type: ignore[arg-type]
    assert not is_worth_it(Done(1.0, 0.5), floors, data)  # type: ignore[arg-type]
    assert not is_worth_it(Done(1.0, 0.12), floors[:1], data)  # type: ignore[arg-type]
    with warnings.catch_warnings(action="error"):  # of a finalist that has no deployment within the limits
        for none in (-1.0, -math.inf, math.nan):
            assert not is_worth_it(Done(1.0, none), floors, data)  # type: ignore[arg-type]
    poor: Any = SimpleNamespace(within_limit=True, deployed_accuracy=0.5, trained=SimpleNamespace(epochs=3))
    error = not_worth_it([poor], floors, data)
    assert error.exit_code == 3
    assert "reached 50.0 % accuracy" in str(error)
    assert "after 3 epochs: a linear model reaches 60.0 % in 3" in str(error)
