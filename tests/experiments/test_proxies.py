"""The compared proxies keep the contract of those that a search uses; their aggregate, and known answers."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from experiments.proxies import ALL_PROXIES, jacob_cov, macs, params, rank_aggregate, snip, zico
from experiments.tabular.nb201 import Nb201Space
from nas.errors import UserError
from nas.evaluation.gradient_proxies import synflow
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

NEEDS_LABELS = ("grad_norm", "snip", "zico")
NEEDS_IMAGES = ["grad_norm", "snip", "zico", "naswot", "jacob_cov"]


@pytest.fixture
def batch() -> Batch:
    return random_batch()


@pytest.fixture
def network() -> nn.Module:
    torch.manual_seed(0)
    space = Nb201Space()
    return space.build(space.architecture([3, 2, 1, 4, 1, 2]), (10,))


@pytest.mark.parametrize("name", sorted(ALL_PROXIES))
def test_contract(name: str, network: nn.Module, batch: Batch) -> None:
    check_contract(ALL_PROXIES[name], network, batch)


@pytest.mark.parametrize("name", NEEDS_LABELS)
def test_a_batch_of_one_class_has_no_score_from_labels(name: str, network: nn.Module, batch: Batch) -> None:
    check_one_class_has_no_score(name, ALL_PROXIES, network, batch)


@pytest.mark.parametrize("name", NEEDS_LABELS)
def test_wrong_labels_are_named(name: str, network: nn.Module, batch: Batch) -> None:
    check_wrong_labels_are_named(name, ALL_PROXIES, network, batch)


@pytest.mark.parametrize("name", NEEDS_IMAGES)
def test_wrong_images_are_named(name: str, network: nn.Module) -> None:
    check_wrong_images_are_named(ALL_PROXIES[name], network)


def test_scores_that_do_not_exist_are_nan(network: nn.Module, batch: Batch) -> None:
    names = [name for name in ALL_PROXIES if name not in ("params", "macs")]
    check_nan_weights_have_no_score(names, ALL_PROXIES, network, batch)


def test_images_with_nan_give_nan(network: nn.Module, batch: Batch) -> None:
    check_images_with_nan_give_nan(NEEDS_IMAGES, ALL_PROXIES, network, batch)


def test_snip_by_hand() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(1, 2, bias=False))
    with torch.no_grad():
        network[1].weight.copy_(torch.tensor([[0.0], [3.0]]))
    images, labels = torch.ones(2, 1, 1, 1), torch.tensor([0, 1])
    # logits (0, 3), p = (1-q, q); the gradient per logit, averaged over both labels, is -+(q - 1/2)
    q = 1 / (1 + math.exp(-3.0))
    assert snip(network, images, labels) == pytest.approx(math.log(3.0 * (q - 0.5)), rel=1e-5)


def test_zico_counts_agreement_of_the_halves() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    images, labels = torch.randn(4, 3, 2, 2), torch.tensor([0, 1, 2, 0])
    twice = torch.cat([images, images + 1e-2 * torch.randn(4, 3, 2, 2)]), torch.cat([labels, labels])
    other = torch.cat([images, torch.randn(4, 3, 2, 2)]), torch.cat([labels, labels])
    assert zico(network, *twice) > zico(network, *other)
    same = torch.cat([images, images]), torch.cat([labels, labels])
    assert zico(network, *same) == 0.0  # no variance in any weight: as the paper, such layers are left out


def test_jacob_cov_is_best_where_no_two_images_are_alike() -> None:
    torch.manual_seed(0)
    images, labels = torch.randn(6, 1, 4, 4), torch.zeros(6)
    nonlinear = nn.Sequential(nn.Flatten(), nn.Linear(16, 512), nn.ReLU(), nn.Linear(512, 10))
    linear = nn.Sequential(nn.Flatten(), nn.Linear(16, 10))  # the same Jacobian everywhere
    assert jacob_cov(nonlinear, images, labels) > jacob_cov(linear, images, labels)
    assert jacob_cov(nonlinear, images, labels) <= -6.0  # of six uncorrelated images: -6 (log 1 + 1)


def test_params_and_macs_are_the_spaces(network: nn.Module, batch: Batch) -> None:
    space = Nb201Space()
    costs = space.costs(np.array([[3, 2, 1, 4, 1, 2]]))
    assert params(network, *batch) == costs["params"][0]
    assert macs(network, *batch) == costs["macs"][0]


def test_zico_needs_two_halves(network: nn.Module, batch: Batch) -> None:
    with pytest.raises(UserError, match="3 images are too few"):
        zico(network, batch[0][:3], torch.arange(3))


def test_a_disconnected_cell_has_the_lowest_flow(network: nn.Module, batch: Batch) -> None:
    space = Nb201Space()
    dead = space.build(space.architecture([0] * 6), (10,))
    assert synflow(dead, *batch) < synflow(network, *batch)


def test_rank_aggregate_punishes_one_bad_rank() -> None:
    good = np.array([[4.0, 3.0], [5.0, 1.0], [3.0, 4.0], [1.0, 5.0], [2.0, 2.0]])
    total = rank_aggregate(good)
    assert total[0] == pytest.approx(math.log(4 / 5) + math.log(3 / 5))
    assert total[0] > total[1]  # fourth and third beats first and last
    assert rank_aggregate(10 * good + 3).tolist() == total.tolist()
    missing = rank_aggregate(np.array([[np.nan, 3.0], [1.0, 3.0], [2.0, 3.0]]))
    assert missing.argmin() == 0
    assert missing.argmax() == 2
