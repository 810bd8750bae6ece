"""Zero-cost scores: deterministic, harmless to the network, and sane on cases with a known answer."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

from nas.errors import UserError
from nas.evaluation.zero_cost import PROXIES, naswot, synflow, zero_cost_scores
from search_spaces import load_search_space


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(8, 3, 32, 32, generator=generator), torch.randint(0, 10, (8,), generator=generator)


@pytest.fixture
def network() -> nn.Module:
    torch.manual_seed(0)
    space = load_search_space("mixed").restrict("resolution", [32])
    return space.build(space.architecture([0] * len(space.decisions)), 10)


@pytest.mark.parametrize("name", sorted(PROXIES))
def test_contract(name: str, network: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    before = copy.deepcopy(network.state_dict())
    state = torch.random.get_rng_state()
    first = PROXIES[name](network, *batch)
    assert math.isfinite(first)
    assert PROXIES[name](network, *batch) == first
    assert all(torch.equal(before[k], v) for k, v in network.state_dict().items())
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(p.grad is None for p in network.parameters())


def test_synflow_of_a_chain_is_the_product_of_its_weights() -> None:
    weights = (2.0, -3.0, 5.0)
    chain = nn.Sequential(*(nn.Conv2d(1, 1, 1, bias=False) for _ in weights))
    for layer, weight in zip(chain, weights, strict=True):
        nn.init.constant_(layer.weight, weight)  # type: ignore[arg-type]
    score = synflow(nn.Sequential(chain, nn.Flatten()), torch.zeros(4, 1, 1, 1), torch.zeros(4))
    # each weight contributes w * dR/dw = the whole product, 30
    assert score == pytest.approx(math.log(3 * 30.0))


def test_naswot_prefers_inputs_told_apart(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    torch.manual_seed(0)
    wide, narrow = (nn.Sequential(nn.Flatten(), nn.Linear(3072, width), nn.ReLU()) for width in (256, 2))
    assert naswot(wide, *batch) > naswot(narrow, *batch)


def test_naswot_needs_activations(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    with pytest.raises(UserError, match="ReLU"):
        naswot(nn.Sequential(nn.Flatten(), nn.Linear(3072, 4)), *batch)


def test_scores_that_do_not_exist_are_nan(network: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(float("nan"))
    assert np.isnan(zero_cost_scores(network, *batch, names=["grad_norm"])).all()
