"""Zero-cost scores: deterministic, harmless to the network, and right on cases with a known answer."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from nas.errors import UnknownNameError
from nas.evaluation.activation_proxies import naswot
from nas.evaluation.gradient_proxies import grad_norm, synflow
from nas.evaluation.proxy_scratch import NoScoreError
from nas.evaluation.zero_cost import PROXIES, zero_cost_scores
from search_spaces import TensorSpec, load_search_space
from tests.nas.evaluation.proxy_contract import (
    Batch,
    check_contract,
    check_images_with_nan_give_nan,
    check_nan_weights_have_no_score,
    check_one_class_has_no_score,
    check_wrong_images_are_named,
    check_wrong_labels_are_named,
    random_batch,
)

NEEDS_LABELS = ["grad_norm"]
NEEDS_IMAGES = ["grad_norm", "naswot"]


@pytest.fixture
def batch() -> Batch:
    return random_batch()


@pytest.fixture
def network() -> nn.Module:
    torch.manual_seed(0)
    space = load_search_space("mixed").restrict("resolution", [32])
    return space.build(space.architecture([0] * len(space.decisions)), (10,))


@pytest.mark.parametrize("name", sorted(PROXIES))
def test_contract(name: str, network: nn.Module, batch: Batch) -> None:
    check_contract(PROXIES[name], network, batch)


@pytest.mark.parametrize("name", NEEDS_LABELS)
def test_a_batch_of_one_class_has_no_score_from_labels(name: str, network: nn.Module, batch: Batch) -> None:
    check_one_class_has_no_score(name, PROXIES, network, batch)


@pytest.mark.parametrize("name", NEEDS_LABELS)
def test_wrong_labels_are_named(name: str, network: nn.Module, batch: Batch) -> None:
    check_wrong_labels_are_named(name, PROXIES, network, batch)


@pytest.mark.parametrize("name", NEEDS_IMAGES)
def test_wrong_images_are_named(name: str, network: nn.Module) -> None:
    check_wrong_images_are_named(PROXIES[name], network)


@pytest.mark.parametrize("name", sorted(PROXIES))
def test_networks_for_token_ids_have_scores(name: str) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Embedding(50, 8), nn.Flatten(), nn.Linear(6 * 8, 16), nn.ReLU(), nn.Linear(16, 4))
    ids, labels = TensorSpec((6,), "int64", 50).draw_torch(8), torch.arange(8) % 4
    score = PROXIES[name](network, ids, labels)
    assert math.isfinite(score)
    assert PROXIES[name](network, ids, labels) == score
    for parameter in network.parameters():
        assert parameter.grad is None


def test_scores_that_do_not_exist_are_nan(network: nn.Module, batch: Batch) -> None:
    check_nan_weights_have_no_score(list(PROXIES), PROXIES, network, batch)


def test_images_with_nan_give_nan(network: nn.Module, batch: Batch) -> None:
    check_images_with_nan_give_nan(NEEDS_IMAGES, PROXIES, network, batch)


def test_random_layers_are_the_same_in_every_call(batch: Batch) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(3072, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 10))
    assert grad_norm(network, *batch) == grad_norm(network, *batch)


def chain(*values: float) -> nn.Sequential:
    layers = [nn.Conv2d(1, 1, 1, bias=False) for _ in values]
    for layer, value in zip(layers, values, strict=True):
        nn.init.constant_(layer.weight, value)
    return nn.Sequential(*layers)


def test_synflow_of_a_chain_is_the_product_of_its_weights() -> None:
    score = synflow(nn.Sequential(chain(2.0, -3.0, 5.0), nn.Flatten()), torch.zeros(4, 1, 1, 1), torch.zeros(4))
    # each weight contributes w * dR/dw = the whole product, 30
    assert score == pytest.approx(math.log(3 * 30.0))


def test_synflow_leaves_batch_norms_out_and_does_not_overflow() -> None:
    norm = nn.BatchNorm2d(1)
    nn.init.constant_(norm.weight, 7.0)
    with_norm = nn.Sequential(chain(2.0, 3.0), norm, nn.Flatten())
    assert synflow(with_norm, torch.zeros(2, 1, 1, 1), torch.zeros(2)) == pytest.approx(math.log(2 * 6.0))
    deep = nn.Sequential(chain(*[1e3] * 40), nn.Flatten())  # 1e120 is far beyond float32
    assert synflow(deep, torch.zeros(2, 1, 1, 1), torch.zeros(2)) == pytest.approx(math.log(40) + 120 * math.log(10))


def test_grad_norm_by_hand() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(1, 2, bias=False))
    with torch.no_grad():
        network[1].weight.copy_(torch.tensor([[0.0], [3.0]]))
    images, labels = torch.ones(2, 1, 1, 1), torch.tensor([0, 1])
    # logits (0, 3), p = (1-q, q); the gradient per logit, averaged over both labels, is -+(q - 1/2)
    q = 1 / (1 + math.exp(-3.0))
    assert grad_norm(network, images, labels) == pytest.approx(math.log(math.sqrt(2) * (q - 0.5)), rel=1e-5)


def test_naswot_by_hand() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(1, 3, bias=False), nn.ReLU())
    with torch.no_grad():
        network[1].weight.copy_(torch.tensor([[1.0], [2.0], [-1.0]]))
    images = torch.tensor([1.0, -1.0]).reshape(2, 1, 1, 1)
    # patterns 110 and 001 agree nowhere: the kernel is 3 on the diagonal
    assert naswot(network, images, torch.zeros(2)) == pytest.approx(math.log(9.0), abs=1e-5)


def test_naswot_prefers_inputs_told_apart(batch: Batch) -> None:
    torch.manual_seed(0)
    wide, narrow = (nn.Sequential(nn.Flatten(), nn.Linear(3072, width), nn.ReLU()) for width in (256, 2))
    assert naswot(wide, *batch) > naswot(narrow, *batch)


def test_naswot_takes_a_hard_swish_by_the_sign_of_its_input(batch: Batch) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(3072, 64)
    relu, hard = (nn.Sequential(nn.Flatten(), linear, gate) for gate in (nn.ReLU(), nn.Hardswish(inplace=True)))
    assert naswot(relu, *batch) == naswot(hard, *batch)


@pytest.mark.parametrize("activation", [nn.Identity(), nn.SiLU(), nn.GELU()])
def test_naswot_needs_gates(activation: nn.Module, batch: Batch) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(3072, 10), activation)
    with pytest.raises(NoScoreError, match="ReLU") as refused:
        naswot(network, *batch)
    assert refused.value.hint == "leave naswot out"
    scores = zero_cost_scores(network, *batch, names=["naswot", "grad_norm"])
    assert np.isnan(scores[0])
    assert np.isfinite(scores[1])


def test_an_unknown_proxy_is_named(network: nn.Module, batch: Batch) -> None:
    with pytest.raises(UnknownNameError, match="synfow"):
        zero_cost_scores(network, *batch, names=["synfow"])
