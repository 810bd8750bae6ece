"""Exact counts and canonical form on spaces small enough to enumerate."""

from itertools import product

import numpy as np
import torch

from search_spaces import load_search_space
from search_spaces.modules import folded
from search_spaces.staged import SpaceTable, StagedSpace, StageTable, strides


def tiny(families: tuple[str, ...]) -> StagedSpace:
    stage = StageTable((32, 64), (1,))
    return StagedSpace(
        SpaceTable(
            name="tiny", families=families, stem_widths=(16,), stages=(stage,), kernels=(3, 5), resolutions=(32,)
        )
    )


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
