"""A search on a real cluster of two machines (as Ray sees it), one of which is the target."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import nas.controller.runs.records as records
from nas.controller.config import SearchConfig
from nas.controller.search import run_search
from nas.executors.ray_cluster import connected, nodes_of
from nas.executors.ray_devices import RayDevice
from nas.limits import Limits
from nas.measure.host import HostFingerprint, fingerprint
from nas.tasks.classification.task import Classification
from tests.nas.fake_device import fake_profile, save_fake_profile

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster


@pytest.fixture
def cluster() -> "Iterator[Cluster]":
    """A head, where the search runs, which trains; and a machine that is the device `toy` and never trains."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}, shutdown_at_exit=True
    )
    cluster.add_node(num_cpus=0, resources={"device:toy": 1})
    cluster.wait_for_nodes()
    yield cluster
    cluster.shutdown()  # type: ignore[no-untyped-call]


def trained_here(*_: object, **__: object) -> None:
    raise AssertionError("full trainings are the cluster's")


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.xdist_group("ray")
def test_a_search_measures_on_the_device_of_the_cluster(
    cluster: "Cluster", users_cache: Path, colours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    shutil.copytree(users_cache / "nas" / "training-throughput", cache / "nas" / "training-throughput")
    monkeypatch.setattr(Classification, "floors", lambda task, data, seed: ())  # few epochs are worth less
    monkeypatch.setitem(RayDevice.measure.__kwdefaults__, "repeat_s", 0.0)  # any latency will do, as in `impatient`
    monkeypatch.setattr(records, "trained", trained_here)
    save_fake_profile(cache, fake_profile("toy", networks=12))
    config = SearchConfig(
        target="toy", limits=Limits.of(latency_ms=200.0, max_params=3e5), budget_s=10.0, max_trials=1, space="mixed",
        data=str(colours), precisions=("fp32",), runtimes=("onnxruntime",),
        baselines=False, ray=cluster.address, out=tmp_path / "run",
    )  # fmt: skip
    document = run_search(config).document
    with connected(cluster.address) as ray:
        (device,) = (node for node in nodes_of(ray) if node.devices == ("toy",))
    best = document["best"][0]
    assert best["measured"]
    assert best["measured_latency_ms"]["p50"] > 0
    assert best["within_limit"]
    assert device.id in best["machine"]
    assert document["measured_on"]["name"] == "device 'toy' of the Ray cluster"
    assert document["measured_on"]["fingerprint"]["cpu_model"] == fingerprint().cpu_model
    receipt = json.loads((tmp_path / "run" / best["receipt"]).read_text())
    assert HostFingerprint.from_json(receipt["fingerprint"]) == fingerprint()
    assert receipt["accuracy"]["on_device"] == receipt["accuracy"]["deployed"], "the device is this processor"
    recorded = json.loads(next((tmp_path / "run").glob("finalists/*/deployed.json")).read_text())
    assert HostFingerprint.from_json(recorded["measured_on"]) == fingerprint()
    assert all(device.id in t["measurement"]["machine"] for t in recorded["tried"])
