"""Small detectors, data and bundles for tests: real networks in real runtimes on coloured rectangles."""

from pathlib import Path

import torch

from nas.bundles.bundle import Claims, complete_bundle, deliver_files
from nas.data.images import Preprocess, image_input
from nas.data_options import DataSource
from nas.deploy.deploy import deploy, deployed_accuracy
from nas.deployment import Deployment
from nas.networks.description import NetworkDescription
from nas.tasks.detection.baselines import BASELINES
from nas.tasks.detection.data import DetectionData
from search_spaces import load_search_space
from search_spaces.modules import set_norm_statistics
from tests.nas.tasks.detection.rectangles import rectangles

RESOLUTION = 128
ORT = Deployment("onnxruntime", "fp32", 1)


def rectangle_data(train: int = 24, val: int = 8) -> DetectionData:
    return DetectionData(
        name="rectangles", classes=("red", "blue"), train=rectangles(train, 0), val=rectangles(val, 1),
        test=rectangles(4, 2), native_resolution=64, preprocess=Preprocess((0.45, 0.4, 0.45), (0.25, 0.2, 0.25)),
    )  # fmt: skip


def smallest() -> NetworkDescription:
    """The first options of all decisions of the space."""
    space = load_search_space("detect")
    return NetworkDescription.of_architecture(space, space.architecture([0] * len(space.decisions)), (2,))


def descriptions() -> dict[str, NetworkDescription]:
    """One network of each head kind."""
    zoo = [NetworkDescription.of_baseline(name, (2,), image_input(RESOLUTION)) for name in BASELINES]
    return {network.signature.output.kind: network for network in (smallest(), *zoo)}


def untrained(description: NetworkDescription) -> torch.nn.Module:
    """With activations of normal size."""
    torch.manual_seed(0)
    network = description.build()
    set_norm_statistics(network, torch.randn(8, 3, RESOLUTION, RESOLUTION))
    return network.eval()


def write_detector(
    folder: Path, description: NetworkDescription, deployment: Deployment = ORT, data: DetectionData | None = None
) -> Path:
    """A bundle whose latency was predicted, not measured."""
    data = data or rectangle_data()
    deployed = deploy(
        untrained(description), description, data, [deployment],
        folder=folder.with_name(folder.name + "-work"), max_drop=1.0, upper_bound=lambda d: 1.0,
    )  # fmt: skip
    claims = Claims(
        command="nas export", source="model.network.json", target="elsewhere",
        data=DataSource(source="rectangles", seed=0), max_drop=1.0, limits={"latency_ms": 5.0, "percentile": 50},
        limits_text="at most 5 ms", within_limit=True, margin_pct=80.0, torch_accuracy=None,
        test_accuracy=deployed_accuracy(deployed.tried[0], data, "test", description),
        predicted_ms=1.0,
    )  # fmt: skip
    complete_bundle(folder, deliver_files(deployed, folder), data, claims)
    return folder
