"""Options: each fits its place, and networks made of them are rebuilt from their description."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from nas.data.images import image_input
from nas.errors import UserError
from nas.networks.derive import derive, units_for
from nas.networks.derived import Derived, Form, source_key
from nas.networks.description import NetworkDescription, load_network, save_network
from nas.networks.options import DROP, KEEP, MULTIPLE, OPTIONS, Place, all_with, options_of, place_of
from nas.networks.units import Unit
from search_spaces import load_search_space

NAMES = ("resnet10_w50", "resnet18", "mobilenet_v3_small", "regnet_y_400mf")


def described(name: str, side: int = 48) -> NetworkDescription:
    return NetworkDescription.of_baseline(name, (10,), image_input(side))


@pytest.fixture(scope="module", params=NAMES)
def units(request: pytest.FixtureRequest) -> list[Unit]:
    description = described(request.param)
    return units_for(description.build(), description.signature.input)


def test_every_option_gives_what_its_unit_gives(units: list[Unit]) -> None:
    offered = [options_of(unit) for unit in units]
    assert {name for names in offered for name in names} == OPTIONS.keys()
    for unit, options in zip(units, offered, strict=True):
        place = place_of(unit)
        assert KEEP not in options
        assert (DROP in options) == (place.input_shape == place.output_shape)
        for option in options.values():
            given = torch.randn(unit.input_shape)
            output = option.train()(given)
            assert output.shape == unit.output_shape
            widths = [m.out_channels for m in option.modules() if isinstance(m, nn.Conv2d)]
            assert all(w % MULTIPLE == 0 or w == unit.output_shape[1] for w in widths)


def test_what_ends_in_an_activation_is_never_negative(units: list[Unit]) -> None:
    for unit in units:
        if place_of(unit).activated and place_of(unit).is_map:
            for name, option in options_of(unit).items():
                if name != DROP:
                    assert option.train()(torch.randn(unit.input_shape)).min().item() >= 0


def test_options_between_equal_shapes_begin_as_the_identity() -> None:
    for activated in (True, False):
        place = Place((16, 8, 8), (16, 8, 8), activated)
        given = torch.rand(4, 16, 8, 8)
        for name in ("basic-half", "basic-quarter", "bottleneck", "inverted"):
            option = OPTIONS[name](place)
            assert option is not None
            torch.testing.assert_close(option.train()(given), given)


def test_strides_are_shared_by_two_convolutions() -> None:
    assert Place((3, 64, 64), (8, 16, 16), True).strides == (2, 2)
    assert Place((3, 33, 33), (8, 17, 17), True).strides == (2, 1)
    assert Place((3, 64, 64), (8, 8, 8), True).strides is None
    assert Place((3, 64, 64), (8, 32, 16), True).strides is None
    assert Place((8, 4, 4), (10,), False).strides is None


def test_a_derived_network_is_rebuilt_from_its_description(tmp_path: Path) -> None:
    origin = described("resnet10_w50")
    offered = [options_of(unit) for unit in units_for(origin.build(), origin.signature.input)]
    description = origin.derived(all_with("bottleneck", offered))
    assert description.task == "classification"
    assert description.origin == origin
    assert description.resized((3,)).signature.output.size == (3,)
    network = description.build().eval()
    save_network(network, description, tmp_path / "model.network.json")
    again = NetworkDescription.from_json(json.loads((tmp_path / "model.network.json").read_text()))
    assert again == description
    inputs = description.signature.input.draw_torch(2)
    with torch.no_grad():
        torch.testing.assert_close(load_network(tmp_path / "model.network.json")(inputs), network(inputs))


def test_a_derived_network_can_be_the_origin_of_another() -> None:
    origin = described("resnet10_w50")
    units = units_for(origin.build(), origin.signature.input)
    first = origin.derived(all_with("conv3", [options_of(unit) for unit in units]))
    parts = units_for(first.build(), first.signature.input)
    second = first.derived(all_with("basic-quarter", [options_of(unit) for unit in parts]))
    assert NetworkDescription.from_json(json.loads(json.dumps(second.to_json()))) == second
    assert second.build().eval()(second.signature.input.draw_torch(1)).shape == (1, 10)
    assert source_key(second.source) != source_key(first.source) != source_key(origin.source)


def of_a_space() -> NetworkDescription:
    space = load_search_space("dense").restrict("resolution", [32])
    arch = space.architecture(space.sample(1, np.random.default_rng(1))[0])
    return NetworkDescription.of_architecture(space, arch, (10,))


@pytest.mark.parametrize(
    ("of", "width"), [(lambda: described("resnet10_w50"), 0.5), (of_a_space, 1.0)], ids=["zoo", "space"]
)
def test_a_network_with_smaller_images_is_rebuilt_from_its_description(
    of: Callable[[], NetworkDescription], width: float
) -> None:
    origin = of()
    units = units_for(origin.build(), origin.signature.input)
    options = all_with("conv3", [options_of(unit) for unit in units])
    first = origin.derived(options, Form(width, 24))
    assert first.signature.input == image_input(24)
    second = first.derived(options_for(first), Form(1.0, 16))
    for description in (first, second):
        assert NetworkDescription.from_json(json.loads(json.dumps(description.to_json()))) == description
        assert description.build().eval()(description.signature.input.draw_torch(1)).shape == (1, 10)
        assert description.resized((3,)).signature.input == description.signature.input
    states = [origin.derived(options, Form(width, side)).build().state_dict() for side in (None, 24)]
    assert {k: v.shape for k, v in states[0].items()} == {k: v.shape for k, v in states[1].items()}


def options_for(description: NetworkDescription) -> tuple[str, ...]:
    return (KEEP,) * len(units_for(description.build(), description.signature.input))


def test_weights_that_stay_are_shared() -> None:
    description = described("resnet10_w50")
    network = description.build()
    count = len(units_for(network, description.signature.input))
    derived = derive(network, description.signature.input, [KEEP] * count)
    inputs = description.signature.input.draw_torch(2)
    with torch.no_grad():
        assert torch.equal(derived.eval()(inputs), network.eval()(inputs))
    assert {id(p) for p in derived.parameters()} == {id(p) for p in network.parameters()}


@pytest.mark.parametrize(
    ("options", "message"),
    [((KEEP,), "1 options are given for the 6 units"), ((DROP, *[KEEP] * 5), "cannot be replaced by 'drop'")],
)
def test_options_that_do_not_fit_are_refused(options: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        described("resnet10_w50").derived(options).build()


@pytest.mark.parametrize(
    "document",
    [
        {"derived": {"origin": {"zoo": "resnet18"}}},
        {"derived": {"origin": {"zoo": "resnet18"}, "options": [1]}},
        {"derived": {"origin": {}, "options": []}},
        {"derived": {"origin": {"zoo": "resnet18"}, "options": ["keep"], "width": 0.0}},
        {"derived": {"origin": {"zoo": "resnet18"}, "options": ["keep"], "width": "half"}},
        {"derived": {"origin": {"zoo": "resnet18"}, "options": ["keep"], "resolution": 0}},
        {"derived": {"origin": {"zoo": "resnet18"}, "options": ["keep"], "resolution": 24.0}},
        {"derived": {"origin": {"zoo": "resnet18"}, "options": ["keep"], "resolution": True}},
        {"derived": {"origin": {"zoo": "resnet18"}, "options": ["keep"], "resolution": 24}},  # takes larger ones
        {"derived": [], "zoo": "resnet18"},
        {"derived": "resnet18"},
    ],
)
def test_a_damaged_description_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(UserError):
        NetworkDescription.from_json({"signature": described("resnet18").signature.to_json(), **document})


def test_keys_are_equal_for_equal_networks() -> None:
    assert Derived("resnet18", ("keep", "drop")).key == Derived("resnet18", ("keep", "drop")).key
    assert Derived("resnet18", ("keep", "drop")).key != Derived("resnet18", ("keep", "keep")).key
    forms = [Form(), Form(0.5), Form(0.5, 24), Form(1.0, 24)]
    assert len({Derived("resnet18", ("keep", "drop"), form).key for form in forms}) == len(forms)
