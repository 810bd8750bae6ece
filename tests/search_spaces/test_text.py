"""The space of text classifiers: the contract of all spaces, and what is particular to texts."""

import numpy as np
import pytest
import torch

from predictors.block_table import NetworkBlocks, SpaceBlocks
from search_spaces import TextSpace, resolve_space
from search_spaces.modules import folded
from search_spaces.text_modules import PAD
from tests.search_spaces.contract import check_space


@pytest.fixture(scope="module")
def space() -> TextSpace:
    found = resolve_space("text")
    assert isinstance(found, TextSpace)
    return found


def test_keeps_the_contract(space: TextSpace) -> None:
    check_space(space, (3,), count=12)
    assert space.size > 10**12


def test_size_is_the_number_of_different_networks(space: TextSpace) -> None:
    small = space.restricted(
        {"tokens": [32], "vocab": [1000], "embed.width": [32, 64], "stem": [0], "pool": ["mean"], "wide": ["none"],
         **{f"stage{n}.{short}": options for n in (1, 2, 3) for short, options in
            {"width": [64], "depth": [1], "kernel": [3], "expansion": [1, 2], "heads": [1], "act": ["relu"]}.items()}}
    )  # fmt: skip
    choices = small.sample(40_000, np.random.default_rng(0))
    assert len(np.unique(choices, axis=0)) == small.size


def test_blocks_of_the_table_are_those_of_each_network(space: TextSpace) -> None:
    choices = space.sample(200, np.random.default_rng(1))
    table = SpaceBlocks(space, (2,)).networks(choices)
    single = NetworkBlocks.of(space.slots(choices, (2,)))
    np.testing.assert_allclose(table.sums(table.blocks.columns), single.sums(single.blocks.columns))


def test_anchors_are_of_the_space_and_build(space: TextSpace) -> None:
    part = space.restricted({"tokens": [16, 24], "vocab": [1000, 2000]})
    assert len(part.anchors) == 6
    for arch in part.anchors:
        ids = torch.randint(1, 2000, (2, 24))
        assert space.build(arch)(ids).shape == (2, 2)


def test_what_fills_a_text_up_changes_little_and_no_text_is_no_number(space: TextSpace) -> None:
    """A text of attention or of a bag is answered alike however it is filled up; one without tokens has an answer."""
    for arch in space.restricted({"tokens": [16, 24], "vocab": [1000]}).anchors:
        network = folded(space.build(arch))
        empty = torch.zeros(1, 24, dtype=torch.int64)
        assert torch.isfinite(network(empty)).all()
    bag = space.restricted({"tokens": [24], "vocab": [1000]}).anchors[1]
    network = folded(space.build(bag))
    text = torch.cat([torch.randint(1, 1000, (1, 8)), torch.full((1, 16), PAD)], 1)
    expected = network.head.linear(network.embed.table(text)[:, :8].mean(1))  # type: ignore[union-attr,operator]
    torch.testing.assert_close(network(text), expected)


def test_slots_are_where_places_say(space: TextSpace) -> None:
    for row in space.sample(20, np.random.default_rng(2)):
        arch = space.architecture(row)
        names = {name for name, _ in space.build(arch).named_modules()}
        places, counts = space.slot_places(arch), space.slot_counts(row[None])[0]
        assert [len(place) for place in places] == counts.tolist()
        assert {name for place in places for name in place} <= names
