"""A target with a processor and a GPU: one profile, choices per device, and each device's own speed of the day."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nas.controller.prediction.target_model import speed_corrections
from nas.deployment import Deployment
from nas.measure.job import SessionTiming
from nas.measure.measurement import Measurement, MeasureRequest, summarise
from nas.measure.site import this_host
from nas.targets.latency import LatencyModel
from nas.targets.profile import DeploymentTable, DeviceProfile
from nas.targets.registry import usable_deployments
from search_spaces import load_search_space
from tests.nas.fake_device import fake_profile


def of_two_devices() -> tuple[DeviceProfile, Deployment]:
    """The fake profile with a GPU beside the processor, ten times as fast."""
    profile = fake_profile()
    gpu = Deployment("torch", "fp16", 1, device="cuda:0")
    timings = tuple(replace(t, latency_ms=t.latency_ms / 10, reference_ms=2.0) for t in profile.tables[0].timings)
    return replace(profile, tables=(*profile.tables, DeploymentTable(gpu, timings, None, 1.0))), gpu


def test_a_profile_of_two_devices_is_kept_and_chosen_from(tmp_path: Path) -> None:
    profile, gpu = of_two_devices()
    profile.save(tmp_path / "both.json")
    read = DeviceProfile.load(tmp_path / "both.json")
    assert read.table(gpu) is not None
    assert read.devices == ("cpu", "cuda:0")
    known = [t.deployment for t in read.tables]
    assert usable_deployments(read, [], None, None, is_host=False) == known
    assert usable_deployments(read, [], None, None, ["cuda:0"], is_host=False) == [gpu]
    assert usable_deployments(read, [], None, None, ["cpu"], is_host=False) == known[:2]
    assert usable_deployments(read, known[:2], None, None, is_host=True) == known[:2], "the GPU is not here"
    space = load_search_space("mobile")
    best, _ = LatencyModel(read).fastest(space, space.sample(20, np.random.default_rng(0)), (10,))
    assert set(best) == {known.index(gpu)}


def test_each_device_is_scaled_by_its_own_reference() -> None:
    """A GPU that runs at half its clock says nothing about the processor beside it."""
    profile, gpu = of_two_devices()

    def measure_both(requests: Sequence[MeasureRequest], **_: Any) -> list[Measurement]:
        found = []
        for request in requests:
            on_gpu = request.deployment.device != "cpu"
            assert request.path.exists(), "a GPU's reference is timed beside a real network"
            timing = SessionTiming(
                p50_ms=9.0 if on_gpu else 1.0, p90_ms=1.0, p99_ms=1.0, calls=9, reference_p50_ms=4.0 if on_gpu else 7.0,
                load_ms=1.0, memory_bytes=1, cpu_share=1.0, disturbance=None,
            )  # fmt: skip
            found.append(summarise(request, [timing] * 3, None, 1.0))
        return found

    site = replace(this_host(), measure=measure_both)
    corrections = speed_corrections(profile, [t.deployment for t in profile.tables], site)
    assert corrections[gpu].factor == 2.0
    assert [corrections[t.deployment].factor for t in profile.tables[:2]] == [1.0, 1.0]
