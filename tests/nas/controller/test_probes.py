"""What a few networks tell of the files, the memory and the slow calls of all others."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nas.controller import inputs
from nas.controller.config import SearchConfig
from nas.controller.inputs import load_inputs
from nas.controller.planning.budget import Budget
from nas.controller.prediction import target_model
from nas.controller.prediction.calls import prepare_target
from nas.controller.prediction.probes import DeploymentFiles, FileModel, probe
from nas.controller.prediction.scoring import CandidateForecast
from nas.controller.prediction.target_record import write_target
from nas.deploy.tried import files_bytes
from nas.deployment import Deployment
from nas.limits import MB, Limits
from nas.measure.measurement import Measurement, MeasureRequest
from nas.measure.site import this_host
from nas.progress import SilentProgress
from nas.targets.preparing import OUTPUT_SIZE, deploy_untrained
from search_spaces import Architecture, StagedSpace, load_search_space
from tests.nas.fake_device import FP32, fake_profile, save_fake_profile

DEPLOYMENTS = [Deployment("onnxruntime", "fp32", 1), Deployment("onnxruntime", "int8", 1)]


@pytest.fixture(scope="module")
def space() -> StagedSpace:
    return load_search_space("mobile").restrict("resolution", [32])


def networks(space: StagedSpace, count: int, seed: int = 0) -> list[Architecture]:
    return [space.architecture(row) for row in space.sample(count, np.random.default_rng(seed))]


def test_files_are_only_made_not_measured(space: StagedSpace, tmp_path: Path) -> None:
    def never(requests: Sequence[MeasureRequest], **options: Any) -> list[Measurement]:
        raise AssertionError("the size of files needs no measurement")

    site = replace(this_host(), measure=never)
    model = probe(space, networks(space, 3), DEPLOYMENTS, Limits.of(latency_ms=5.0, max_size_mb=3.0), 0, site)
    (other,) = networks(space, 1, seed=1)
    costs = space.costs(space.choices([other]), OUTPUT_SIZE)
    for request in deploy_untrained(other, DEPLOYMENTS, tmp_path, 0):
        size_mb = files_bytes(request.path) / MB
        assert model.size_mb(request.deployment, costs)[0] == pytest.approx(size_mb, rel=0.1)
        assert model.of(request.deployment).memory is None
        assert model.tail(request.deployment) == 1.0


@pytest.mark.parametrize(
    ("limits", "seconds"), [(Limits.of(max_memory_mb=50.0), 0.05), (Limits.of(latency_ms=5.0, percentile=99), 0.3)]
)
def test_a_probe_is_measured_once_and_not_again(space: StagedSpace, limits: Limits, seconds: float) -> None:
    asked: list[dict[str, Any]] = []
    here = this_host()

    def spy(requests: Sequence[MeasureRequest], **options: Any) -> list[Measurement]:
        asked.append(options)
        return here.measure(requests, **options)

    model = probe(space, networks(space, 3), DEPLOYMENTS[:1], limits, 0, replace(here, measure=spy))
    assert asked == [{"sessions": 1, "seconds_per_model": seconds, "repeat_s": 0.0}]
    found = model.of(DEPLOYMENTS[0])
    assert found.memory is not None
    assert found.tail >= 1.0
    assert found.percentile == limits.percentile


CALLS = Limits.of(latency_ms=200.0)
SLOW_CALLS = Limits.of(latency_ms=200.0, percentile=99)
MEMORY = Limits.of(max_memory_mb=50.0)
FILES = DeploymentFiles(bytes_per_param=4.0)
MEASURED = DeploymentFiles(bytes_per_param=4.0, memory=(30.0, 0.0, 0.0), tail=1.5, percentile=99)


@pytest.mark.parametrize(
    ("known", "limits", "tail"),
    [
        (MEASURED, CALLS, 1.0),
        (MEASURED, MEMORY, 1.0),
        (MEASURED, SLOW_CALLS, 1.5),
        (replace(MEASURED, percentile=90), SLOW_CALLS, None),
        (replace(MEASURED, percentile=50, tail=1.0), SLOW_CALLS, None),
        (replace(MEASURED, percentile=None), SLOW_CALLS, None),
        (replace(MEASURED, percentile=None), MEMORY, 1.0),
        (FILES, CALLS, 1.0),
        (FILES, Limits.of(max_size_mb=50.0), 1.0),
        (FILES, SLOW_CALLS, None),
        (FILES, MEMORY, None),
    ],
)
def test_a_model_tells_of_limits_that_it_was_made_for(
    known: DeploymentFiles, limits: Limits, tail: float | None
) -> None:
    """`tail` None: networks have to be probed again."""
    found = FileModel({FP32: known}).fitting(limits)
    assert [files.tail for files in found.known.values()] == ([] if tail is None else [tail])
    if tail is not None:
        assert replace(found.of(FP32), tail=known.tail, percentile=known.percentile) == known


@pytest.mark.parametrize(
    ("recorded", "limits", "again", "tail"),
    [
        (MEASURED, CALLS, False, 1.0),
        (MEASURED, SLOW_CALLS, False, 1.5),
        (replace(MEASURED, percentile=None), SLOW_CALLS, True, 3.0),
        (FILES, MEMORY, True, 3.0),
    ],
)
def test_networks_are_probed_again_for_limits_that_a_record_does_not_tell_of(
    recorded: DeploymentFiles, limits: Limits, again: bool, tail: float,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """`percentile` None: as a version wrote it that did not record it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(target_model, "speed_corrections", lambda *_: {})
    save_fake_profile(tmp_path, fake_profile("fake", spaces=("mixed",), threads=1))
    config = SearchConfig(
        target="fake", limits=limits, space="mixed", data="digits", threads=1,
        runtimes=("onnxruntime",), precisions=("fp32",),
    )  # fmt: skip
    target, path = prepare_target(config, Budget(60), SilentProgress()), tmp_path / "target.json"
    (deployment,) = target.model.deployments
    write_target(path, target, FileModel({deployment: recorded}))
    if recorded.percentile is None:
        document = json.loads(path.read_text())
        del document["deployments"][0]["files"]["percentile"]
        path.write_text(json.dumps(document))
    asked: list[Limits] = []

    def probed(*arguments: Any) -> FileModel:
        asked.append(arguments[3])
        return FileModel({deployment: replace(MEASURED, tail=3.0)})

    monkeypatch.setattr(inputs, "probe", probed)
    monkeypatch.setattr(inputs, "latency_ranges", lambda *_: ())
    monkeypatch.setattr(inputs, "require_feasible", lambda *_: None)
    found = load_inputs(config, Budget(60), SilentProgress(), path).scorer.files
    assert asked == [limits] * again
    assert found.tail(deployment) == tail


def test_slow_calls_count_only_where_they_are_limited() -> None:
    """Whatever is known of them."""
    costs = {"params": np.array([1e5])}
    forecast = CandidateForecast(
        deployment=FP32, upper_ms=np.array([4.0]), costs=costs, files=FileModel({FP32: MEASURED})
    )
    assert CALLS["latency_ms"].ratio(replace(forecast, limits_tail=False)).tolist() == [0.02]
    assert SLOW_CALLS["latency_ms"].ratio(replace(forecast, limits_tail=True)).tolist() == [0.03]
