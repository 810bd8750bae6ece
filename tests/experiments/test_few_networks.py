"""What few networks tell: the figures are a pure function of a profile."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.few_networks import ASKED, KNOWN, Error, Errors, by_cube_root, errors, page, part_of, planned
from nas.targets.fitting import costs_of
from nas.targets.preparing import OUTPUT_SIZE
from nas.targets.profile import DeploymentTable, DeviceProfile, NetworkTiming
from tests.nas.fake_device import FP32, fake_profile, true_latency_ms

INTERVAL_MS = 50.0
PLAN = planned(0)


def measured(per_root: float) -> DeviceProfile:
    """On the fake device, where a pause adds so many ms per cube root of a ms."""
    costs = costs_of(PLAN.all, OUTPUT_SIZE)
    loop_ms = true_latency_ms(costs, 1.0)
    tables = [
        DeploymentTable(deployment, tuple(NetworkTiming(float(ms), 1.0, 1.0, memory_bytes=1e6) for ms in latencies))
        for deployment, latencies in (
            (FP32, loop_ms),
            (FP32.called(INTERVAL_MS), loop_ms + per_root * np.cbrt(loop_ms)),
        )
    ]
    made = fake_profile("few", networks=1, host=False)
    return replace(made, networks=PLAN.all, tables=(tables[0],), spaced=(tables[1],))


def test_small_networks_are_asked_for_and_not_known() -> None:
    known = {arch.key for arch in (*PLAN.random, *PLAN.quick)}
    assert len(PLAN.random) == len(PLAN.quick) == KNOWN
    assert len(PLAN.asked) == 4 * len(ASKED)
    assert not known & {arch.key for arch in PLAN.asked}
    macs = [np.median(costs_of(archs, OUTPUT_SIZE)["macs"]) for archs in (PLAN.asked, PLAN.random)]
    assert macs[0] < macs[1] / 2
    assert planned(0) == PLAN


def test_a_pause_that_grows_as_assumed_is_predicted() -> None:
    profile = measured(per_root=0.7)
    asked, few = part_of(profile, PLAN.asked), part_of(profile, PLAN.quick[:4])
    paused = FP32.called(INTERVAL_MS)
    table = asked.table(paused)
    assert table is not None
    assert by_cube_root(few, asked, paused) == pytest.approx(table.column("latency_ms"), rel=1e-6)
    found = errors(profile, PLAN, INTERVAL_MS)
    assert len(found) == 16
    assert all(list(row) == [FP32.name] for row in found.values())
    assert found["4 random: at 20/s, given the loop"][FP32.name] == Error(
        mean=pytest.approx(0, abs=1e-6), within_10pct=1
    )
    assert found["4 random: the same by constant and shares"][FP32.name].mean > 0.01


def test_the_page_has_a_row_for_each_way() -> None:
    found: Errors = {"4 random: in a loop": {"onnxruntime-fp32": Error(mean=0.123, within_10pct=0.5)}}
    text = page(found, 16, "--seed 1", "a machine")
    assert "| 4 random: in a loop | 12% (50%) |" in text
    assert "python -m experiments.few_networks --seed 1" in text
