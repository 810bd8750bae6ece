"""Networks of a baseline's units that take smaller images."""

from pathlib import Path

import pytest
import torch
from torch import nn

from nas.baseline.library import Library
from nas.baseline.smaller import SmallerImages, behind_smaller_images, on_its_own, require_same_units
from nas.baseline.students import assemble, classroom
from nas.baseline.teacher import evaluated_teacher
from nas.data.images import image_input
from nas.errors import UserError
from nas.networks.derive import units_for
from nas.networks.derived import Form
from nas.networks.description import NETWORK, NetworkDescription, load_network, read_description, save_network
from nas.networks.options import KEEP
from nas.networks.reference import load_reference
from nas.networks.units import run_counted
from nas.tasks.classification.data.registry import load_dataset
from nas.training.objective import random_inputs
from tests.nas.baseline.conftest import SIDE

FORM = Form(1.0, 12)


def test_the_chain_is_the_same_with_and_without_it() -> None:
    chain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    whole = behind_smaller_images(chain, 8)
    assert behind_smaller_images(chain, None) is chain
    assert whole.state_dict().keys() == chain.state_dict().keys()
    images = torch.randn(2, 3, 16, 16)
    small = SmallerImages(8)(images)
    assert small.shape == (2, 3, 8, 8)
    assert torch.equal(whole(images), chain(small))
    assert torch.equal(on_its_own(whole)(small), chain(small))
    assert on_its_own(chain) is chain


def test_an_image_of_one_colour_stays_so() -> None:
    assert torch.allclose(SmallerImages(7)(torch.full((1, 3, 16, 16), 0.3)), torch.full((1, 3, 7, 7), 0.3))


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_large", "efficientnet_b0", "regnet_y_400mf"])
def test_convolutional_networks_have_the_same_units_for_smaller_images(name: str) -> None:
    network = NetworkDescription.of_baseline(name, (10,), image_input(64)).build().eval()
    units = units_for(network, image_input(64))
    for side in (56, 48):
        require_same_units(network, units, image_input(side))


def test_a_network_for_one_size_alone_takes_no_smaller_images() -> None:
    network = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 8 * 8, 4)).eval()
    units = units_for(network, image_input(16))
    with pytest.raises(UserError, match="images of 12 px"):
        require_same_units(network, units, image_input(12))


def test_costs_are_those_of_the_smaller_images() -> None:
    description = NetworkDescription.of_baseline("resnet10_w50", (10,), image_input(32))
    network = description.build().eval()
    units = units_for(network, description.signature.input)
    library = Library(units, [["conv3"] if i == 1 else [] for i in range(len(units))])
    macs, params = library.costs(24)
    whole_macs, whole_params = library.costs()
    assert params == whole_params
    assert sum(named[KEEP] for named in macs) == run_counted(network, torch.zeros(1, 3, 24, 24))[1]
    assert macs[1]["conv3"] / whole_macs[1]["conv3"] == pytest.approx((24 / 32) ** 2)


@pytest.mark.slow
def test_a_network_with_smaller_images_is_rebuilt_from_its_files(teacher: Path, tmp_path: Path) -> None:
    """What was assembled behind smaller images, saved without that, gives the same for images made as small."""
    data = load_dataset("digits")
    judged = evaluated_teacher(load_reference(str(teacher), data, image_input(SIDE)), data)
    room = classroom(judged, seed=0)
    units = units_for(judged.reference.network, image_input(SIDE))
    library = Library(units, [[] for _ in units])
    options = (KEEP,) * len(units)
    network = assemble(room, library, options, FORM.resolution)
    description = judged.description.derived(options, FORM)
    assert description.signature.input == image_input(12)
    save_network(on_its_own(network), description, tmp_path / NETWORK)
    assert read_description(tmp_path / NETWORK) == description
    again = load_network(tmp_path / NETWORK)
    (images, *_) = random_inputs(room.objective, 8)
    with torch.no_grad():
        assert torch.allclose(again(SmallerImages(12)(images)), network(images), atol=1e-4)
