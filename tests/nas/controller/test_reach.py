"""Limits that nothing can keep are refused before a machine is profiled."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nas.controller.config import SearchConfig
from nas.controller.planning.budget import Budget
from nas.controller.prediction import calls, target_model
from nas.controller.prediction.calls import prepare_target
from nas.controller.prediction.reach import require_within_reach, smallest
from nas.deployment import Deployment
from nas.errors import InfeasibleError
from nas.limits import Limits
from nas.measure.measurement import Measurement, MeasureRequest
from nas.measure.site import Site, this_host
from nas.progress import SilentProgress
from nas.targets.profile import calls_profile
from search_spaces import load_search_space
from tests.nas.controller.test_target_model import measured, own_profile

DENSE = load_search_space("dense")
FP32 = Deployment("onnxruntime", "fp32", 1)


class TimedAnyway(Exception):
    """Calls with pauses are timed."""


def timed_anyway(*_: Any, **__: Any) -> None:
    raise TimedAnyway


def machine(p50_ms: float) -> tuple[Site, list[int]]:
    """One on which every file takes `p50_ms` (NaN: it fails), and how many files each call of it measured."""
    asked: list[int] = []

    def measure(requests: Sequence[MeasureRequest], **_: Any) -> list[Measurement]:
        asked.append(len(requests))
        assert all(request.path.exists() for request in requests)
        return [measured(request.deployment, p50_ms) for request in requests]

    return replace(this_host(), measure=measure), asked


@pytest.mark.parametrize("limits", [{"latency_ms": 0.01}, {"throughput": 1e5}])
def test_a_limit_far_below_the_smallest_network_is_refused(limits: dict[str, float]) -> None:
    site, asked = machine(0.234)
    with pytest.raises(InfeasibleError, match=r"the smallest one takes 0.23 ms \(onnxruntime-fp32, continuous calls\)"):
        require_within_reach(Limits.of(**limits), DENSE, [FP32], site, 0)
    assert asked == [1]


@pytest.mark.parametrize(
    ("limits", "p50_ms"),
    [({"latency_ms": 0.2}, 0.234), ({"max_params": 1.0}, 5.0), ({"latency_ms": 0.01}, float("nan"))],
)
def test_what_might_be_kept_or_is_not_known_is_left_to_the_profile(limits: dict[str, float], p50_ms: float) -> None:
    require_within_reach(Limits.of(**limits), DENSE, [FP32], machine(p50_ms)[0], 0)


def test_the_smallest_is_smaller_than_any_of_many() -> None:
    best, many = smallest(DENSE, 0), DENSE.sample(2000, np.random.default_rng(1))
    assert DENSE.costs(DENSE.choices([best]), (10,))["macs"][0] <= DENSE.costs(many, (10,))["macs"].min()


def test_nothing_is_profiled_for_a_limit_out_of_reach(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("nas.targets.registry.BUNDLED", {})
    monkeypatch.setattr(target_model, "this_host", lambda: machine(0.3)[0])
    config = SearchConfig(limits=Limits.of(latency_ms=0.01), space="dense", precisions=("fp32",))
    with pytest.raises(InfeasibleError, match="the smallest one takes"):
        prepare_target(config, Budget(600), SilentProgress())
    assert not list(tmp_path.rglob("*.json"))


def test_no_pauses_are_timed_for_a_limit_out_of_reach(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    own_profile(tmp_path, monkeypatch)
    site, asked = machine(0.3)
    monkeypatch.setattr(target_model, "this_host", lambda: site)
    config = SearchConfig(
        limits=Limits.of(latency_ms=0.01), runtimes=("onnxruntime",), precisions=("fp32",), calls="20/s"
    )
    with pytest.raises(InfeasibleError, match=r"the smallest one takes 0\.3 ms .* continuous calls") as error:
        prepare_target(config, Budget(600), SilentProgress())
    assert "--latency-ms 0.3 or more (pauses between calls add to it)" in str(error.value.hint)
    assert asked[-1] == 1
    assert not calls_profile("local").exists()
    monkeypatch.setattr(calls, "with_calls", timed_anyway)
    near = replace(config, limits=Limits.of(latency_ms=10.0))
    with pytest.raises(TimedAnyway):
        prepare_target(near, Budget(600), SilentProgress())
