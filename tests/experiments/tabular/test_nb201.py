"""The NAS-Bench-201 cell space against the published sizes, and the part of the space contract that it keeps."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from experiments.tabular.nb201 import CONV1, CONV3, NONE, POOL, SKIP, Nb201Space
from experiments.tabular.nb201_network import Cell
from search_spaces import SEARCH_SPACES, UserError

cells = st.lists(st.integers(0, 4), min_size=6, max_size=6)


@pytest.fixture
def space() -> Nb201Space:
    return Nb201Space()


def built(space: Nb201Space, ops: list[int], num_classes: int = 10) -> nn.Module:
    torch.manual_seed(0)
    return space.build(space.architecture(ops), (num_classes,))


def test_its_sizes(space: Nb201Space) -> None:
    assert space.name == "nb201"
    assert "nb201" not in SEARCH_SPACES
    assert space.size == 5**6
    assert space.restrict("edge01", ["conv3x3", "skip"]).size == 2 * 5**5


@pytest.mark.parametrize(
    ("ops", "params"),
    [
        ([NONE] * 6, 73_306),  # the smallest and largest sizes that Dong & Yang's tables give for CIFAR-10
        ([CONV3] * 6, 1_531_546),
        ([POOL, SKIP, SKIP, CONV1, CONV3, CONV1], None),
    ],
)
def test_costs_are_those_of_the_network(space: Nb201Space, ops: list[int], params: int | None) -> None:
    network = built(space, ops).eval()
    costs = space.costs(np.array([ops]))
    counted = sum(p.numel() for p in network.parameters())
    assert counted == costs["params"][0]
    assert params is None or counted == params
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(torch.zeros(1, 3, 32, 32))
    assert counter.get_total_flops() == 2 * costs["macs"][0]


def test_a_cell_computes_what_its_edges_say() -> None:
    x = torch.randn(2, 4, 6, 6)
    pool = nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False)
    # 0>1, 0>2, 1>2, 0>3, 1>3, 2>3: node 1 = x, node 2 = x + pool(x), node 3 = pool(x) + node 1 + node 2
    cell = Cell([SKIP, SKIP, POOL, POOL, SKIP, SKIP], 4)
    assert torch.allclose(cell(x), pool(x) + x + (x + pool(x)), atol=1e-6)
    assert not Cell([CONV3] * 3 + [NONE] * 3, 4)(x).any()


def test_edges_that_reach_nothing_change_sizes_and_not_outputs(space: Nb201Space) -> None:
    images = torch.randn(2, 3, 32, 32)
    plain, idle = (
        built(space, [NONE, NONE, NONE, CONV1, NONE, NONE]),
        built(space, [CONV3, NONE, NONE, CONV1] + [NONE] * 2),
    )
    shared = {k: v for k, v in plain.state_dict().items() if k in idle.state_dict()}
    idle.load_state_dict(shared, strict=False)
    with torch.no_grad():
        assert torch.equal(plain(images), idle(images))
    assert sum(p.numel() for p in idle.parameters()) > sum(p.numel() for p in plain.parameters())


@settings(max_examples=15, deadline=None)
@given(cells)
def test_any_cell_is_its_own_canonical_form_and_survives_json(ops: list[int]) -> None:
    space = Nb201Space()
    arch = space.architecture(ops)
    assert arch.choices == tuple(ops)
    assert space.from_json(json.loads(json.dumps(space.to_json(arch)))) == arch
    assert space.signature(arch, (10,)).input.shape == (3, 32, 32)


@settings(max_examples=8, deadline=None)
@given(cells, st.sampled_from([16, 32]))
def test_any_cell_builds_runs_and_trains(ops: list[int], resolution: int) -> None:
    network = built(Nb201Space(), ops, num_classes=7)
    logits = network(torch.randn(3, 3, resolution, resolution))
    assert logits.shape == (3, 7)
    logits.square().sum().backward()
    assert [name for name, p in network.named_parameters() if p.grad is None] == []


def test_moves_stay_inside_and_features_are_finite_and_named(space: Nb201Space) -> None:
    rng = np.random.default_rng(0)
    small = space.restrict("edge23", ["conv1x1"])
    a, b = small.sample(200, rng), small.sample(200, rng)
    for choices in (a, small.mutate(a, rng), small.crossover(a, b, rng)):
        assert choices.shape == (200, 6)
        assert set(choices[:, -1].tolist()) == {CONV1}
        assert np.isfinite(space.features(choices)).all()
    assert space.features(a).shape == (200, len(space.feature_names))
    assert space.encode(a).shape == (200, 30)


def test_what_it_cannot_do_is_one_sentence(space: Nb201Space) -> None:
    arch = space.architecture([SKIP] * 6)
    with pytest.raises(UserError, match="no chain of blocks"):
        space.blocks(arch)
    with pytest.raises(UserError, match="choice 5 of 'edge23' is out of range"):
        space.architecture([0, 0, 0, 0, 0, 5])
