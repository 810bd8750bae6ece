"""Networks taken apart: the pieces are what people call blocks, and joined again they compute the same bits."""

from itertools import pairwise

import numpy as np
import pytest
import timm
import torch
from torch import nn
from torchvision.models import get_model

from nas.errors import UserError
from nas.networks.units import chain, places, units_of
from search_spaces import load_search_space
from search_spaces.modules import folded

IMAGE = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))

NETWORKS = {
    # name: number of units, and some of their names in order
    "torchvision:resnet18": (10, ["conv1 to maxpool", "layer1.0", "layer1.1", "layer4.1", "avgpool to fc"]),
    "torchvision:mobilenet_v2": (20, ["features.1", "features.2", "features.17", "classifier.0 to classifier.1"]),
    "torchvision:mobilenet_v3_small": (15, ["features.1", "features.11"]),
    "torchvision:efficientnet_b0": (19, ["features.1.0", "features.2.0", "features.7.0"]),
    "torchvision:regnet_y_400mf": (18, ["trunk_output.block1.block1-0", "trunk_output.block4.block4-5"]),
    "torchvision:shufflenet_v2_x0_5": (19, ["stage2.0", "stage4.3", "fc"]),
    "torchvision:squeezenet1_0": (10, ["features.3", "classifier.1 to classifier.3"]),
    "torchvision:googlenet": (13, ["inception3a", "inception5b"]),
    "torchvision:densenet121": (9, ["classifier"]),
    "timm:convnext_atto": (17, ["stages.0.blocks.0", "stages.1.downsample.1", "head"]),
    "timm:efficientnet_b0": (19, ["blocks.0.0", "blocks.1.0", "blocks.6.0"]),
    "timm:mobilenetv3_small_050": (14, ["blocks.1.0"]),
    "timm:regnety_002": (15, ["stem", "s1", "head"]),
    "timm:tf_efficientnetv2_b0": (None, []),  # a convolution whose padding depends on its input: taken whole
}


def build(name: str) -> nn.Module:
    library, _, network = name.partition(":")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if library == "timm":
            made: nn.Module = timm.create_model(network, pretrained=False)
            return made
        options = {"aux_logits": False, "init_weights": False} if network == "googlenet" else {}
        built: nn.Module = get_model(network, weights=None, **options)
        return built


@pytest.mark.parametrize("name", NETWORKS)
def test_blocks_are_found_whole_and_compute_the_same_bits(name: str) -> None:
    network = build(name)
    units = units_of(network, IMAGE)
    count, named = NETWORKS[name]
    names = [unit.name for unit in units]
    assert [n for n in names if n in named] == named
    assert count is None or len(units) == count, names
    with torch.no_grad():
        assert torch.equal(chain(units)(IMAGE), network(IMAGE))
    assert units[0].input_shape == IMAGE.shape
    assert units[-1].output_shape == (2, 1000)
    for one, following in pairwise(units):
        assert one.output_shape == following.input_shape
    own = {id(p) for p in network.parameters()}
    shared = [id(p) for unit in units for p in unit.module.parameters()]
    assert sorted(shared) == sorted(own), "each weight is in one unit, and is the network's own"
    assert sum(unit.params for unit in units) == sum(p.numel() for p in network.parameters())
    assert places(units) == [child for child, _ in chain(units).named_children()]


def test_macs_are_those_of_the_space() -> None:
    space = load_search_space("mixed").restrict("resolution", [32])
    arch = space.architecture(space.sample(1, np.random.default_rng(0))[0])
    network = folded(space.build(arch, (10,)).eval())
    units = units_of(network, torch.randn(2, 3, 32, 32))
    assert sum(unit.macs for unit in units) == space.costs(space.choices([arch]), (10,))["macs"][0]
    assert len(units) > 4


class TwoInputs(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


class TwoOutputs(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x, x + 1


class Undecided(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


class Around(nn.Module):
    """What cannot be traced lies in a module of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.undecided, self.after = nn.Conv2d(3, 4, 3), Undecided(), nn.Conv2d(4, 2, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        after: torch.Tensor = self.after(self.undecided(self.before(x)))
        return after


def test_what_cannot_be_traced_is_taken_whole() -> None:
    units = units_of(Around(), IMAGE)
    assert [unit.name for unit in units] == ["before to undecided", "after"]


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (TwoInputs(), "takes 2 inputs"),
        (TwoOutputs(), "gives a tuple instead of one tensor"),
        (Undecided(), "cannot be traced"),
    ],
)
def test_what_is_no_chain_is_refused(network: nn.Module, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        units_of(network, IMAGE)
    assert caught.value.hint


class Peculiar(nn.Module):
    """Changes what it is given, computes what nobody uses, and takes arguments that nobody has to give."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.unused = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3), nn.Conv2d(3, 2, 1)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None, scale: float = 2.0) -> torch.Tensor:
        x = x.sub_(0.5) * scale
        found = self.b(self.a(x).relu_())
        self.unused(x)
        return found if mask is None else found * mask


def test_peculiar_networks_are_taken_apart_too() -> None:
    given = IMAGE.clone()
    units = units_of(Peculiar(), given)
    assert torch.equal(given, IMAGE), "what it was given is as it was"
    assert [unit.name for unit in units] == ["a", "b"]
    assert units[0].macs == 62 * 62 * 4 * 3 * 9
