"""What a few networks tell of the files, the memory and the slow calls of all others."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nas.controller.prediction.probes import probe
from nas.deploy.tried import files_bytes
from nas.deployment import Deployment
from nas.limits import MB, Limits
from nas.measure.measurement import Measurement, MeasureRequest
from nas.measure.site import this_host
from nas.targets.preparing import OUTPUT_SIZE, deploy_untrained
from search_spaces import Architecture, StagedSpace, load_search_space

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
