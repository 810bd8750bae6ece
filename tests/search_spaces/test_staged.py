"""Exact counts and canonical form on spaces small enough to enumerate."""

from itertools import product

import numpy as np

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
