"""One training, run by `torchrun` for `test_processes`: each process saves the weights it ends with."""

import sys
from pathlib import Path

import torch
from torch import nn

from nas.data.images import ImageTraits, Preprocess
from nas.files.tensors import save_tensors
from nas.tasks import TASKS
from nas.tasks.examples import Examples
from nas.training.folder import train_in
from nas.training.loop import Training
from nas.training.recipe_files import load_recipe
from nas.training.setup import Setup
from nas.training.world import joined_world
from tests.nas.training.conftest import blobs

SETTINGS = (
    "epochs=3", "accumulate_steps=2", "augmentation.crop=none", "augmentation.flip=no", "ema_decay=null",
    "optimizer.lr_batch_size=null",
)  # fmt: skip


def network() -> nn.Module:
    """Without batch norm, whose statistics are those of each process's own images."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))


def train(folder: Path) -> None:
    """Writes `weights.RANK.safetensors` into `folder`."""
    split = blobs(12, 0)
    examples = Examples(
        train=split, val=split, preprocess=Preprocess.fit(split.images), size=(3,), traits=ImageTraits()
    )
    recipe = load_recipe("base", SETTINGS)
    setup = Setup(precision="fp32", channels_last=False, batch_size=12)
    with joined_world() as world:
        student = network()
        objective = TASKS["classification"].objective(student, examples, recipe, device=world.device)
        training = Training(student, objective, recipe, setup=setup, world=world)
        train_in(folder, training)
        save_tensors(folder / f"weights.{world.rank}.safetensors", training.network.state_dict(), {"size": world.size})


if __name__ == "__main__":
    train(Path(sys.argv[1]))
