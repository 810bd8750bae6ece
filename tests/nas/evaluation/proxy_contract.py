"""The contract of a zero-cost proxy: for those that a search uses and for those that were compared."""

import copy
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
import torch
from torch import nn

from nas.errors import UserError
from nas.evaluation.proxy_scratch import NoScoreError
from nas.evaluation.zero_cost import Proxy, zero_cost_scores

Batch = tuple[torch.Tensor, torch.Tensor]
NEED_NO_LABELS = ("synflow", "naswot")


def random_batch() -> Batch:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(8, 3, 32, 32, generator=generator), torch.randint(0, 10, (8,), generator=generator)


def check_contract(proxy: Proxy, network: nn.Module, batch: Batch) -> None:
    """A finite score, the same again; network, gradients, hooks, images and random state as they were."""
    network.eval()
    frozen = next(network.parameters()).requires_grad_(False)
    last = list(network.parameters())[-1]
    last.grad = torch.ones_like(last)
    before, images = copy.deepcopy(network.state_dict()), batch[0].clone()
    state = torch.random.get_rng_state()
    with torch.no_grad():  # as a caller may have it
        first = proxy(network, *batch)
    assert math.isfinite(first)
    assert proxy(network, *batch) == first
    assert all(torch.equal(before[k], v) for k, v in network.state_dict().items())
    assert torch.equal(state, torch.random.get_rng_state())
    assert [p for p in network.parameters() if p.grad is not None] == [last]
    assert torch.equal(last.grad, torch.ones_like(last))
    assert not frozen.requires_grad
    assert not network.training
    assert not any(m._forward_hooks or m._backward_hooks for m in network.modules())
    assert torch.equal(images, batch[0])
    assert not batch[0].requires_grad


def check_one_class_has_no_score(name: str, proxies: Mapping[str, Proxy], network: nn.Module, batch: Batch) -> None:
    images, labels = batch[0], torch.full((8,), 3)
    with pytest.raises(NoScoreError, match="all 8 inputs of the batch are of class 3"):
        proxies[name](network, images, labels)
    scores = zero_cost_scores(network, images, labels, [name, *NEED_NO_LABELS], proxies)
    assert np.isnan(scores).tolist() == [True, *(False for _ in NEED_NO_LABELS)]


WRONG_LABELS = [
    (torch.arange(8) + 5, "label 12 is out of range: the network has 10 outputs"),
    (torch.arange(8) - 1, "label -1 is out of range"),
    (torch.arange(7), r"8 inputs came with labels of shape \(7,\)"),
    (torch.arange(8) / 8, "labels of shape .* type torch.float32"),
]


def check_wrong_labels_are_named(name: str, proxies: Mapping[str, Proxy], network: nn.Module, batch: Batch) -> None:
    for given, message in WRONG_LABELS:
        labels = given.flip(0) if name == "zico" else given  # it scores halves: the wrong label must be in either
        for scores in (proxies[name], lambda *batch: zero_cost_scores(*batch, names=[name], proxies=proxies)):
            with pytest.raises(UserError, match=message) as refused:
                scores(network, batch[0], labels)
            assert not isinstance(refused.value, NoScoreError)


def check_wrong_images_are_named(proxy: Proxy, network: nn.Module) -> None:
    for images in (torch.zeros(1, 3, 32, 32), torch.zeros(8)):
        with pytest.raises(UserError, match="zero-cost scores got inputs"):
            proxy(network, images, torch.arange(len(images)))


def check_nan_weights_have_no_score(
    names: Sequence[str], proxies: Mapping[str, Proxy], network: nn.Module, batch: Batch
) -> None:
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(float("nan"))
    assert np.isnan(zero_cost_scores(network, *batch, names=names, proxies=proxies)).all()


def check_images_with_nan_give_nan(
    names: Sequence[str], proxies: Mapping[str, Proxy], network: nn.Module, batch: Batch
) -> None:
    images = batch[0].clone()
    images[0, 0, 0, 0] = float("nan")
    assert np.isnan(zero_cost_scores(network, images, batch[1], names, proxies)).all()
