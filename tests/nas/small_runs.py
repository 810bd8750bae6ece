"""A finished run's folder, as far as a fine-tuning reads it: a small network, blobs of colour as data."""

import hashlib
import json
from pathlib import Path

import numpy as np
import torch

from nas.networks.description import NetworkDescription, save_network
from nas.training.world import World
from search_spaces import load_search_space
from tests.nas.training.conftest import blobs

ALONE = World(0, 1, torch.device("cpu"))


def small_description(classes: int = 3, **choices: int) -> NetworkDescription:
    """The smallest network of `mobile` at its lowest resolution, changed by `choices`."""
    space = load_search_space("mobile")
    arch = space.architecture((0,) * len(space.decisions))
    return NetworkDescription.of_architecture(space, space.replace(arch, **choices) if choices else arch, (classes,))


def write_data(path: Path, *, classes: int = 3, per_class: int = 12) -> Path:
    arrays: dict[str, np.ndarray] = {}
    for seed, split in enumerate(("train", "val", "test")):
        images = blobs(per_class, seed)
        arrays |= {f"x_{split}": images.images, f"y_{split}": images.labels % classes}
    np.savez(path, **arrays)
    return path


def write_run(folder: Path, description: NetworkDescription, data: Path) -> Path:
    """`folder` as a search leaves it: one winner."""
    winner = folder / "winners" / "1"
    winner.mkdir(parents=True)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        save_network(description.build(), description, winner / "model.network.json")
    checksum = hashlib.sha256((winner / "model.safetensors").read_bytes()).hexdigest()
    (winner / "receipt.json").write_text(json.dumps({"sha256": {"model.safetensors": checksum}}))
    (folder / "config.json").write_text(json.dumps({"data": str(data), "seed": 0}))
    return folder
