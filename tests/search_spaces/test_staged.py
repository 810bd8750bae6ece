"""Exact counts and canonical form on spaces small enough to enumerate."""

from itertools import product

import numpy as np
import torch

from search_spaces import load_search_space
from search_spaces.modules import folded
from search_spaces.staged import EARLY, SpaceTable, StagedSpace, StageTable, strides


def tiny(families: tuple[str, ...], *, early: bool = False, resolutions: tuple[int, ...] = (32,)) -> StagedSpace:
    stage = StageTable((32, 64), (1,))
    return StagedSpace(
        SpaceTable(
            name="tiny", families=families, stem_widths=(16,), stages=(stage,) * (2 if early else 1), early=early,
            kernels=(3, 5), resolutions=resolutions,
        )
    )  # fmt: skip


def distinct_networks(space: StagedSpace) -> set[object]:
    rows = product(*(range(len(d.options)) for d in space.decisions))
    return {space.blocks(space.architecture(row)) for row in rows}


def test_size_counts_the_distinct_networks() -> None:
    for families in (("mbconv",), ("basic", "rep"), ("bottleneck", "fused", "mbconv"), ("basic", "bottleneck", "rep")):
        space = tiny(families)
        assert space.size == len(distinct_networks(space))


def test_strides_follow_the_resolution() -> None:
    assert strides(np.array([32, 64, 96, 128, 224]), 4).tolist() == [
        [1, 1, 2, 2, 2],
        [2, 1, 2, 2, 2],
        [2, 1, 2, 2, 2],
        [2, 2, 2, 2, 2],
        [2, 2, 2, 2, 2],
    ]


def test_maps_shrink_one_place_earlier_where_one_does_not_halve() -> None:
    assert strides(np.array([32, 64, 128]), 4, np.array([1, 1, 1])).tolist() == [
        [2, 1, 2, 2, 1],
        [2, 2, 2, 2, 1],
        [2, 2, 2, 2, 2],
    ]
    assert strides(np.array([32, 32]), 4, np.array([1, 0])).tolist() == [[2, 1, 2, 2, 1], [1, 1, 2, 2, 2]]


def test_a_space_that_halves_early_counts_its_distinct_networks() -> None:
    space = tiny(("rep",), early=True, resolutions=(32, 64, 128))
    assert space.size == len(distinct_networks(space))
    assert space.decisions[1].name == EARLY
    assert {space.parameters(space.architecture(row))[EARLY] for row in space.sample(50, np.random.default_rng(0))} == {
        0,
        1,
    }
    late = space.restrict("resolution", [128])
    assert not late.sample(50, np.random.default_rng(0))[:, space.column(EARLY)].any(), (
        "each place halves there already"
    )


def test_a_network_that_halves_early_computes_as_its_blocks_say() -> None:
    space = load_search_space("compact").restrict("resolution", (32,))
    early = [arch for arch in space.anchors if space.parameters(arch)[EARLY]]
    assert len(early) == 2
    network = space.build(early[0], (10,)).eval()
    maps: list[tuple[int, ...]] = []
    for place in (network.get_submodule("stem"), *network.get_submodule("stages").children()):
        place.register_forward_hook(lambda module, given, answer: maps.append(tuple(answer.shape[1:])))
    with torch.no_grad():
        assert network(torch.zeros(1, 3, 32, 32)).shape == (1, 10)
    assert maps == [(48, 16, 16), (64, 16, 16), (128, 8, 8), (256, 4, 4), (256, 4, 4)]
    places = [(b.out_channels, -(-b.height // b.stride)) for b in space.blocks(early[0], (10,))[:-1]]
    assert places == [(48, 16), (64, 16), (128, 8), (128, 8), (256, 4), (256, 4)]


def test_designs_that_halve_early_exist_where_networks_can() -> None:
    space = load_search_space("compact")
    for arch in space.anchors:
        assert not space.parameters(arch)[EARLY] or space.resolution(arch) < 128
    assert len(space.restrict("resolution", (128,)).designs) == len(space.designs) - 2


def test_pooled_blocks_begin_by_handing_on_what_they_see() -> None:
    space = load_search_space("compact").restrict("resolution", (32,))
    speed_run = space.anchors[0]
    network = space.build(speed_run, (10,)).eval()
    block = network.get_submodule("stages.2.0")  # of 64 and 256 channels, on a map of 16 x 16
    seen = torch.rand(2, 64, 15, 16)
    with torch.no_grad():
        handed_on = block(seen)
    assert handed_on.shape == (2, 256, 8, 8)
    wanted = torch.nn.functional.max_pool2d(seen, 2, ceil_mode=True)
    assert torch.allclose(handed_on[:, :64], wanted, rtol=1e-3)
    with torch.no_grad():
        assert torch.allclose(folded(block)(seen), handed_on, rtol=1e-3, atol=1e-5)
