"""A small bundle for tests: a real network in a real runtime on real images, timed by nobody."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from nas.bundles.bundle import Claims, complete_bundle, deliver_files
from nas.data import ImageData
from nas.data_options import DataSource
from nas.deploy.deploy import deploy, deployed_accuracy
from nas.deployment import Deployment
from nas.measure.job import SessionTiming
from nas.measure.measurement import Measurement, MeasureRequest, summarise
from nas.networks.description import NetworkDescription, save_network
from nas.tasks.classification.data.registry import load_dataset
from search_spaces import load_search_space
from search_spaces.modules import set_norm_statistics

FP32 = Deployment("onnxruntime", "fp32", 1)
P50_MS = {"fp32": 2.0, "bf16": 1.5, "int8": 1.0}
"""What `instant` says."""


def digits(val: int = 40) -> ImageData:
    """With a part of the images."""
    whole = load_dataset("digits")
    return replace(
        whole, train=whole.train.some(200), val=whole.val.some(val) if val else whole.val.take([]),
        test=whole.test.some(20)
    )  # fmt: skip


def small_network() -> tuple[torch.nn.Module, NetworkDescription]:
    """Untrained, of the smallest architecture, with activations of normal size."""
    space = load_search_space("mobile").restrict("resolution", [32])
    description = NetworkDescription.of_architecture(space, space.architecture([0] * len(space.decisions)), (10,))
    torch.manual_seed(0)
    network = description.build()
    set_norm_statistics(network, torch.randn(32, 3, 32, 32))
    return network.eval(), description


def save_pair(folder: Path) -> Path:
    network, description = small_network()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.network.json"
    save_network(network, description, path)
    return path


def write_bundle(folder: Path, deployment: Deployment = FP32, data: ImageData | None = None) -> Path:
    """A bundle whose latency was predicted, not measured."""
    network, description = small_network()
    data = data or digits()
    deployed = deploy(
        network, description, data, [deployment],
        folder=folder.with_name(folder.name + "-work"), max_drop=1.0, upper_bound=lambda d: 1.0,
    )  # fmt: skip
    claims = Claims(
        command="nas export", source="model.network.json", target="elsewhere",
        data=DataSource(source="digits", seed=0), max_drop=1.0, limits={"latency_ms": 5.0, "percentile": 50},
        limits_text="at most 5 ms", within_limit=True, margin_pct=80.0, torch_accuracy=None,
        test_accuracy=deployed_accuracy(deployed.tried[0], data, "test", description),
        predicted_ms=1.0,
    )  # fmt: skip
    complete_bundle(folder, deliver_files(deployed, folder), data, claims)
    return folder


def timed(request: MeasureRequest, p50_ms: float, disturbance: str | None = None) -> Measurement:
    """As if each of three sessions had taken this long."""
    session = SessionTiming(
        p50_ms=p50_ms, p90_ms=1.1 * p50_ms, p99_ms=1.2 * p50_ms, calls=100, reference_p50_ms=1.0, load_ms=1.0,
        memory_bytes=1_000_000, cpu_share=1.0, disturbance=disturbance, p90_lower_ms=p50_ms, p99_lower_ms=p50_ms,
    )  # fmt: skip
    return summarise(request, [session] * 3, None, 1.0)


def instant(requests: Sequence[MeasureRequest], *, sessions: int = 3, least_calls: int = 0) -> list[Measurement]:
    """Stands in for `nas.measure.protocol.measure`, so that tests know what is fast."""
    return [timed(request, P50_MS[request.deployment.precision]) for request in requests]
