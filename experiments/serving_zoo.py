"""Bundles of well-known networks with random weights, in their fastest deployments: for rates, not for answers."""

from pathlib import Path

import torch

from nas.bundles.bundle import Claims, complete_bundle, deliver_files
from nas.data import ImageData
from nas.data.images import image_input
from nas.data_options import DataSource
from nas.deploy.deploy import deploy
from nas.errors import UserError
from nas.networks.description import NetworkDescription
from nas.networks.find import RECEIPT
from nas.runtimes import deployments_here
from search_spaces.modules import set_norm_statistics

NETWORKS = ("resnet10_w50", "resnet18", "resnet50", "mobilenet_v3_large", "efficientnet_b0")
SESSIONS = 1
"""Fresh ones in which each deployment is timed, to find the fastest."""


def untrained_bundle(name: str, data: ImageData, source: str, resolution: int, threads: int, folder: Path) -> Path:
    """A bundle of the network `name`, made once and then found again.

    Args:
        name: of the zoo, see `nas.tasks.classification.baselines`.
        data: images for calibration and for the bundle's sample, and the classes.
        source: how `data` was named.
        resolution: height and width of the input.
        threads: of the deployment.
        folder: where bundles are kept.

    Raises:
        UserError: no runtime here can run it.
    """
    place = folder / f"{name}-{resolution}-{threads}"
    if (place / RECEIPT).is_file():
        return place
    description = NetworkDescription.of_baseline(name, data.output_size, image_input(resolution))
    torch.manual_seed(0)
    network = description.build()
    set_norm_statistics(network, description.signature.input.draw_torch(8))
    work = folder / "work" / place.name
    offered = deployments_here(threads)
    deployed = deploy(
        network.eval(), description, data, offered, folder=work, max_drop=1.0, sessions=SESSIONS, trained=False
    )
    if deployed.chosen is None:
        raise UserError(f"{name} runs in none of {', '.join(d.name for d in offered)}")
    claims = Claims(
        command="experiments.serving_zoo", source=name, target="local", data=DataSource(source=source, seed=0),
        max_drop=1.0, limits={}, limits_text="", within_limit=True, margin_pct=None, torch_accuracy=None,
        test_accuracy=None,
    )  # fmt: skip
    complete_bundle(place, deliver_files(deployed, place), data, claims)
    return place
