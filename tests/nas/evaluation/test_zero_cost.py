"""Zero-cost scores: deterministic, harmless to the network, and right on cases with a known answer."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

from experiments.tabular.nb201 import Nb201Space
from nas.errors import UnknownNameError, UserError
from nas.evaluation.activation_proxies import jacob_cov, naswot
from nas.evaluation.gradient_proxies import grad_norm, snip, synflow, zico
from nas.evaluation.proxy_scratch import NoScoreError
from nas.evaluation.zero_cost import PROXIES, macs, params, rank_aggregate, zero_cost_scores
from search_spaces import load_search_space

Batch = tuple[torch.Tensor, torch.Tensor]
LABELLED = ("grad_norm", "snip", "zico")


@pytest.fixture
def batch() -> Batch:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(8, 3, 32, 32, generator=generator), torch.randint(0, 10, (8,), generator=generator)


def mixed_network() -> nn.Module:
    torch.manual_seed(0)
    space = load_search_space("mixed").restrict("resolution", [32])
    return space.build(space.architecture([0] * len(space.decisions)), 10)


def cell_network() -> nn.Module:
    torch.manual_seed(0)
    space = Nb201Space()
    return space.build(space.architecture([3, 2, 1, 4, 1, 2]), 10)


@pytest.fixture(params=[mixed_network, cell_network])
def network(request: pytest.FixtureRequest) -> nn.Module:
    built: nn.Module = request.param()
    return built


@pytest.mark.parametrize("name", sorted(PROXIES))
def test_contract(name: str, network: nn.Module, batch: Batch) -> None:
    network.eval()
    frozen = next(network.parameters()).requires_grad_(False)
    last = list(network.parameters())[-1]
    last.grad = torch.ones_like(last)
    before, images = copy.deepcopy(network.state_dict()), batch[0].clone()
    state = torch.random.get_rng_state()
    with torch.no_grad():  # as a caller may have it
        first = PROXIES[name](network, *batch)
    assert math.isfinite(first)
    assert PROXIES[name](network, *batch) == first
    assert all(torch.equal(before[k], v) for k, v in network.state_dict().items())
    assert torch.equal(state, torch.random.get_rng_state())
    assert [p for p in network.parameters() if p.grad is not None] == [last]
    assert torch.equal(last.grad, torch.ones_like(last))
    assert not frozen.requires_grad
    assert not network.training
    assert not any(m._forward_hooks or m._backward_hooks for m in network.modules())
    assert torch.equal(images, batch[0])
    assert not batch[0].requires_grad


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


def test_snip_and_grad_norm_by_hand() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(1, 2, bias=False))
    with torch.no_grad():
        network[1].weight.copy_(torch.tensor([[0.0], [3.0]]))
    images, labels = torch.ones(2, 1, 1, 1), torch.tensor([0, 1])
    # logits (0, 3), p = (1-q, q); the gradient per logit, averaged over both labels, is -+(q - 1/2)
    q = 1 / (1 + math.exp(-3.0))
    assert snip(network, images, labels) == pytest.approx(math.log(3.0 * (q - 0.5)), rel=1e-5)
    assert grad_norm(network, images, labels) == pytest.approx(math.log(math.sqrt(2) * (q - 0.5)), rel=1e-5)


def test_zico_counts_agreement_of_the_halves() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    images, labels = torch.randn(4, 3, 2, 2), torch.tensor([0, 1, 2, 0])
    twice = torch.cat([images, images + 1e-2 * torch.randn(4, 3, 2, 2)]), torch.cat([labels, labels])
    other = torch.cat([images, torch.randn(4, 3, 2, 2)]), torch.cat([labels, labels])
    assert zico(network, *twice) > zico(network, *other)
    same = torch.cat([images, images]), torch.cat([labels, labels])
    assert zico(network, *same) == 0.0  # no variance in any weight: as the paper, such layers are left out


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


def test_jacob_cov_is_best_where_no_two_images_are_alike() -> None:
    torch.manual_seed(0)
    images, labels = torch.randn(6, 1, 4, 4), torch.zeros(6)
    nonlinear = nn.Sequential(nn.Flatten(), nn.Linear(16, 512), nn.ReLU(), nn.Linear(512, 10))
    linear = nn.Sequential(nn.Flatten(), nn.Linear(16, 10))  # the same Jacobian everywhere
    assert jacob_cov(nonlinear, images, labels) > jacob_cov(linear, images, labels)
    assert jacob_cov(nonlinear, images, labels) <= -6.0  # of six uncorrelated images: -6 (log 1 + 1)


def test_params_and_macs_are_the_spaces(batch: Batch) -> None:
    space = Nb201Space()
    costs = space.costs(np.array([[3, 2, 1, 4, 1, 2]]))
    assert params(cell_network(), *batch) == costs["params"][0]
    assert macs(cell_network(), *batch) == costs["macs"][0]


@pytest.mark.parametrize("name", LABELLED)
def test_a_batch_of_one_class_has_no_score_from_labels(name: str, batch: Batch) -> None:
    network, images, labels = cell_network(), batch[0], torch.full((8,), 3)
    with pytest.raises(NoScoreError, match="all 8 images of the batch are of class 3"):
        PROXIES[name](network, images, labels)
    scores = zero_cost_scores(network, images, labels, [name, "synflow", "naswot", "jacob_cov"])
    assert np.isnan(scores).tolist() == [True, False, False, False]


@pytest.mark.parametrize("name", LABELLED)
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.arange(8) + 5, "label 12 is out of range: the network has 10 outputs"),
        (torch.arange(8) - 1, "label -1 is out of range"),
        (torch.arange(7), r"8 images came with labels of shape \(7,\)"),
        (torch.arange(8) / 8, "labels of shape .* type torch.float32"),
    ],
)
def test_wrong_labels_are_named(name: str, labels: torch.Tensor, message: str, batch: Batch) -> None:
    network = cell_network()
    if name == "zico":  # it scores halves: the wrong label must be found in either
        labels = labels.flip(0)
    for scores in (PROXIES[name], lambda *given: zero_cost_scores(*given, names=[name])):
        with pytest.raises(UserError, match=message) as refused:
            scores(network, batch[0], labels)
        assert not isinstance(refused.value, NoScoreError)


@pytest.mark.parametrize("name", ["grad_norm", "snip", "zico", "naswot", "jacob_cov"])
@pytest.mark.parametrize("images", [torch.zeros(1, 3, 32, 32), torch.zeros(8, 3, 32, 32).byte(), torch.zeros(8, 32)])
def test_wrong_images_are_named(name: str, images: torch.Tensor) -> None:
    with pytest.raises(UserError, match="zero-cost scores got images"):
        PROXIES[name](cell_network(), images, torch.arange(len(images)))


def test_zico_needs_two_halves(batch: Batch) -> None:
    with pytest.raises(UserError, match="3 images are too few"):
        zico(cell_network(), batch[0][:3], torch.arange(3))


def test_an_unknown_proxy_is_named(batch: Batch) -> None:
    with pytest.raises(UnknownNameError, match="synfow"):
        zero_cost_scores(cell_network(), *batch, names=["synfow"])


def test_scores_that_do_not_exist_are_nan(network: nn.Module, batch: Batch) -> None:
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(float("nan"))
    names = [name for name in PROXIES if name not in ("params", "macs")]
    assert np.isnan(zero_cost_scores(network, *batch, names=names)).all()


def test_images_with_nan_give_nan(batch: Batch) -> None:
    images = batch[0].clone()
    images[0, 0, 0, 0] = float("nan")
    scores = zero_cost_scores(cell_network(), images, batch[1], ["grad_norm", "snip", "zico", "naswot", "jacob_cov"])
    assert np.isnan(scores).all()


def test_a_disconnected_cell_has_the_lowest_flow(batch: Batch) -> None:
    space = Nb201Space()
    dead = space.build(space.architecture([0] * 6), 10)
    assert synflow(dead, *batch) < synflow(cell_network(), *batch)


def test_rank_aggregate_punishes_one_bad_rank() -> None:
    good = np.array([[4.0, 3.0], [5.0, 1.0], [3.0, 4.0], [1.0, 5.0], [2.0, 2.0]])
    total = rank_aggregate(good)
    assert total[0] == pytest.approx(math.log(4 / 5) + math.log(3 / 5))
    assert total[0] > total[1]  # fourth and third beats first and last
    assert rank_aggregate(10 * good + 3).tolist() == total.tolist()
    missing = rank_aggregate(np.array([[np.nan, 3.0], [1.0, 3.0], [2.0, 3.0]]))
    assert missing.argmin() == 0
    assert missing.argmax() == 2
