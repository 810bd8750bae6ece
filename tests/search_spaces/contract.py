"""The contract that every search space keeps, whoever defines it."""

import json

import numpy as np
import torch

from search_spaces import SearchSpace, architecture_of_json, space_of
from search_spaces.modules import folded
from search_spaces.signature import Size


def check_space(space: SearchSpace, size: Size, count: int = 4) -> None:
    """Samples and moves are canonical, keys survive JSON, costs are those of the networks that `build` makes."""
    rng = np.random.default_rng(0)
    a, b = space.sample(50, rng), space.sample(50, rng)
    for choices in (a, space.mutate(a, rng), space.crossover(a, b, rng)):
        assert np.array_equal(choices, space.canonical(choices))
    features = space.features(a)
    assert features.shape == (50, len(space.feature_names))
    assert np.isfinite(features).all()
    inputs, places = space.inputs_of(a)
    assert [inputs[place] for place in places] == [space.signature(space.architecture(row), size).input for row in a]
    slots = space.slots(a, size)
    assert slots.count.shape == slots.kind.shape
    assert slots.occurring <= space.families.keys()
    costs = space.costs(a, size)
    for row, choice in list(enumerate(a))[:count]:
        arch = space.architecture(choice)
        assert architecture_of_json(json.loads(json.dumps(space.to_json(arch)))).key == arch.key
        assert space_of(arch).decisions == space.decisions
        assert sorted(slots.specs(row)) == sorted(space.blocks(arch, size))
        signature, network = space.signature(arch, size), space.build(arch, size)
        output = network(signature.input.draw_torch(2))
        assert output.shape == (2, *signature.output.shape)
        assert output.dtype == torch.float32
        output.sum().backward()
        assert [name for name, p in network.named_parameters() if p.grad is None] == []
        assert sum(p.numel() for p in folded(network.eval()).parameters()) == costs["params"][row]
