"""What a training step keeps in memory, and batches that go through the network in parts."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from nas import machine
from nas.data.images import image_input
from nas.training import setup as setting_up
from nas.training.recipe import Recipe
from nas.training.setup import FEWEST_AT_ONCE, Setup, choose_setup, in_passes, kept_bytes
from tests.nas.training.conftest import small_network

CPU = torch.device("cpu")
PLAIN = Setup(precision="fp32", channels_last=False, batch_size=256)


def test_what_the_backward_pass_needs_is_counted() -> None:
    """Of a convolution its input, of a ReLU its output; no weights, and nothing twice."""
    network = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 4, 1))
    kept = 4 * 32 * 32 * (3 + 16)
    assert kept_bytes(network, image_input(32), PLAIN, CPU) == pytest.approx(kept, rel=0.01)
    large = kept_bytes(network, image_input(64), PLAIN, CPU)
    assert large == pytest.approx(4 * kept, rel=0.01)


def test_counting_changes_nothing() -> None:
    network, state = small_network(), torch.get_rng_state()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    kept_bytes(network, image_input(32), replace(PLAIN, precision="bf16", channels_last=True), CPU)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())


@pytest.mark.parametrize(
    ("batch", "allowed", "passes"),
    [(256, 256.0, 1), (256, 255.0, 2), (256, 64.0, 4), (256, 1.0, 32), (9, 1.0, 1), (16, 8.0, 2)],
)
def test_passes_are_as_few_as_fit(batch: int, allowed: float, passes: int) -> None:
    found = in_passes(replace(PLAIN, batch_size=batch), 1.0, allowed)
    assert found.passes == passes
    assert found.batch_size == batch
    assert batch // found.passes >= min(batch, FEWEST_AT_ONCE)


def test_the_memory_that_is_allowed_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = Recipe.model_validate({"epochs": 1, "precision": "fp32", "channels_last": True, "batch_size": 64})
    arguments = (recipe, small_network(), image_input(32), 1000, CPU)
    assert choose_setup(*arguments).passes == 1
    monkeypatch.setattr(setting_up, "memory_for_training", lambda device: 2**20)
    assert choose_setup(*arguments).passes > 1


class Watched(nn.Module):
    """Notes how many examples it is given at once, its copies too."""

    def __init__(self, seen: list[int]) -> None:
        super().__init__()
        self.seen, self.layers = seen, small_network()

    def __deepcopy__(self, memo: dict[int, object]) -> "Watched":
        return Watched(self.seen)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.seen.append(len(images))
        answers: torch.Tensor = self.layers(images)
        return answers


@pytest.mark.parametrize("batch_size", [64, "auto"])
def test_timing_takes_no_more_memory_than_the_training(batch_size: object, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    automatic = {"precision": "auto", "channels_last": "auto"}
    recipe = Recipe.model_validate({"epochs": 1, "batch_size": batch_size, **automatic})
    arguments = (recipe, Watched(seen), image_input(32), 1000, CPU)
    choose_setup(*arguments)
    assert max(seen) >= 32, "where there is memory whole batches are timed"
    seen.clear()
    monkeypatch.setattr(setting_up, "memory_for_training", lambda device: 1.0)
    assert choose_setup(*arguments).passes > 1
    assert max(seen) < 2 * FEWEST_AT_ONCE


def test_trainings_side_by_side_share_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "memory_bytes", lambda: 8 * 2**30)
    monkeypatch.delenv(machine.TRAINING_MEMORY, raising=False)
    assert setting_up.memory_for_training(CPU) == 3.25 * 2**30
    monkeypatch.setenv(machine.TRAINING_MEMORY, str(4 * 2**30))
    assert setting_up.memory_for_training(CPU) == 1.25 * 2**30
    monkeypatch.setenv(machine.TRAINING_MEMORY, str(2**20))
    assert setting_up.memory_for_training(CPU) > 0
