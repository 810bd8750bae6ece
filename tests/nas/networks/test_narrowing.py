"""Narrower units: they fit one another, compute what is left of the wide ones, and are rebuilt from a description."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from nas.data.images import image_input
from nas.errors import UserError
from nas.networks.derive import units_for
from nas.networks.derived import Form
from nas.networks.description import NetworkDescription, load_network, save_network
from nas.networks.narrowing import narrowed
from nas.networks.options import DROP, KEEP, MULTIPLE
from nas.networks.units import chain, units_of

NAMES = ("resnet10_w50", "resnet18", "resnet50", "mobilenet_v3_small", "efficientnet_b0")


def described(name: str, side: int = 48) -> NetworkDescription:
    return NetworkDescription.of_baseline(name, (10,), image_input(side))


@pytest.mark.parametrize("name", NAMES)
def test_narrower_units_fit_one_another(name: str) -> None:
    description = described(name)
    units = units_for(description.build(), description.signature.input)
    found = narrowed(units, 0.5)
    inputs = description.signature.input.draw_torch(2)
    with torch.no_grad():
        assert chain(found.units).eval()(inputs).shape == (2, 10)
    assert [unit.name for unit in found.units] == [unit.name for unit in units]
    for before, after in pairwise(found.units):
        assert before.output_shape == after.input_shape
    assert 0.2 < sum(u.macs for u in found.units) / sum(u.macs for u in units) < 0.35
    assert sum(u.params for u in found.units) < 0.4 * sum(u.params for u in units)
    for kept, shape in zip(found.kept, [units[0].input_shape, *(u.output_shape for u in units)], strict=True):
        assert torch.equal(kept, kept.unique()), "ascending, each once"
        assert kept.max() < shape[1]


@settings(max_examples=12, deadline=None)
@given(share=st.floats(0.05, 1.0))
def test_numbers_of_channels_follow_the_share(share: float) -> None:
    network = nn.Sequential(nn.Conv2d(3, 40, 3), nn.BatchNorm2d(40), nn.ReLU(), nn.Conv2d(40, 24, 3), nn.Flatten())
    units = units_of(nn.Sequential(*network, nn.Linear(24 * 16, 5)), torch.zeros(2, 3, 8, 8))
    try:
        found = narrowed(units, share)
    except UserError:
        assert share > 0.85, "rounded to what there is"
        return
    for kept, wide in zip(found.kept[1:-1], (40, 24), strict=True):
        assert len(kept) % MULTIPLE == 0 or len(kept) == wide
        assert abs(len(kept) - share * wide) <= MULTIPLE


def test_what_is_left_is_computed_as_before() -> None:
    """Channels that are nothing are the ones that go, and the others never miss them."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Flatten(),
        nn.Linear(16 * 36, 4),
    )  # fmt: skip
    silent = torch.randperm(16)[:8]
    with torch.no_grad():
        for layer in (network[0], network[2]):
            layer.weight[silent], layer.bias[silent] = 0.0, 0.0
    inputs = torch.randn(2, 3, 6, 6)
    units = units_of(network, inputs)
    found = narrowed(units, 0.5)
    assert set(found.kept[1].tolist()).isdisjoint(silent.tolist())
    with torch.no_grad():
        torch.testing.assert_close(chain(found.units)(inputs), network(inputs))


def test_a_residual_stage_keeps_the_same_channels() -> None:
    description = described("resnet18")
    found = narrowed(units_for(description.build(), description.signature.input), 0.5)
    stem, first, second = found.kept[1:4]
    assert torch.equal(stem, first)
    assert torch.equal(first, second)
    assert len(found.kept[4]) == 2 * len(second)


def test_the_units_that_were_given_are_as_they_were() -> None:
    description = described("resnet10_w50")
    network = description.build()
    before = {k: v.clone() for k, v in network.state_dict().items()}
    narrowed(units_for(network, description.signature.input), 0.5)
    assert all(torch.equal(v, before[k]) for k, v in network.state_dict().items())


def test_a_narrower_network_is_rebuilt_from_its_description(tmp_path: Path) -> None:
    origin = described("resnet10_w50")
    count = len(units_for(origin.build(), origin.signature.input))
    description = origin.derived(["conv3", *[KEEP] * (count - 1)], Form(0.5))
    network = description.build().eval()
    whole = origin.derived(["conv3", *[KEEP] * (count - 1)]).build()
    assert sum(p.numel() for p in network.parameters()) < 0.5 * sum(p.numel() for p in whole.parameters())
    save_network(network, description, tmp_path / "model.network.json")
    document = json.loads((tmp_path / "model.network.json").read_text())
    assert NetworkDescription.from_json(document) == description
    assert description.resized((3,)).build().eval()(description.signature.input.draw_torch(1)).shape == (1, 3)
    inputs = description.signature.input.draw_torch(2)
    with torch.no_grad():
        torch.testing.assert_close(load_network(tmp_path / "model.network.json")(inputs), network(inputs))


def test_dropped_units_leave_channels_that_fit() -> None:
    origin = described("resnet18")
    units = narrowed(units_for(origin.build(), origin.signature.input), 0.75).units
    options = [DROP if u.input_shape == u.output_shape else KEEP for u in units]
    assert DROP in options
    network = origin.derived(options, Form(0.75)).build().eval()
    assert network(origin.signature.input.draw_torch(1)).shape == (1, 10)


class Shuffled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.conv(x), self.conv(x).flip(1)], 1)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (nn.Sequential(nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 3, groups=4)), "a convolution in groups"),
        (nn.Sequential(nn.Conv2d(3, 16, 3), nn.GroupNorm(4, 16), nn.Conv2d(16, 16, 3)), "a GroupNorm has channels"),
        (Shuffled(), "is used more than once"),
        (nn.Sequential(nn.Conv2d(3, 16, 3), nn.Softmax(1), nn.Conv2d(16, 16, 3)), "'softmax' whose channels"),
        (nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)), "no unit has fewer channels"),
    ],
)
def test_what_is_not_understood_is_refused(network: nn.Module, message: str) -> None:
    units = units_of(network, torch.zeros(2, 3, 8, 8))
    with pytest.raises(UserError, match=message):
        narrowed(units, 0.5)


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5, float("nan")])
def test_a_share_that_makes_no_sense(share: float) -> None:
    with pytest.raises(ValueError, match="share"):
        narrowed(units_of(nn.Sequential(nn.Conv2d(3, 16, 3)), torch.zeros(2, 3, 8, 8)), share)
