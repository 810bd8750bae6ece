"""Comparisons as int8 computes: rounding costs, and most where few large values stand beside many small ones."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

from nas.baseline.as_int8 import as_deployed, as_int8
from nas.baseline.library import Library, replacement_losses
from nas.deployment import Deployment
from nas.networks.options import KEEP
from nas.networks.units import units_of

INPUTS = torch.randn(16, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)).eval()


@torch.no_grad()
def with_a_large_value(given: nn.Sequential) -> nn.Sequential:
    """The same function: one channel is a thousand times as large, and nobody looks at it."""
    first, second = given[0], given[2]
    assert isinstance(first, nn.Conv2d)
    assert isinstance(second, nn.Conv2d)
    second.weight[:, 0] = 0
    changed = copy.deepcopy(given)
    assert isinstance(changed[0], nn.Conv2d)
    changed[0].weight[0] *= 1000
    assert torch.allclose(changed(INPUTS), given(INPUTS), atol=1e-5)
    return changed


@torch.no_grad()
def test_rounding_costs_a_little_and_a_large_value_more() -> None:
    plain = network()
    large = with_a_large_value(plain)
    before = copy.deepcopy(plain.state_dict())
    costs = [float(mse_loss(as_int8(each, INPUTS)(INPUTS), plain(INPUTS))) for each in (plain, large)]
    assert 0 < costs[0] < 0.01 * float(plain(INPUTS).var())
    assert costs[1] > 10 * costs[0]
    assert all(torch.equal(value, before[name]) for name, value in plain.state_dict().items())


class Choosy(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


@torch.no_grad()
def test_what_cannot_be_rounded_computes_as_it_is() -> None:
    choosy = Choosy()
    assert as_int8(choosy, INPUTS) is choosy
    broken = network()
    next(broken.parameters()).fill_(float("nan"))
    assert as_int8(broken, INPUTS) is broken


@pytest.mark.parametrize(("precision", "rounds"), [("int8", True), ("int8-dynamic", True), ("fp32", False)])
def test_comparisons_are_rounded_for_deployments_that_are(precision: str, rounds: bool) -> None:
    assert (as_deployed(Deployment("onnxruntime", precision, 1)) is as_int8) == rounds


def test_the_losses_of_a_library_can_be_those_of_rounded_options() -> None:
    units = units_of(network(), INPUTS[:2])
    library = Library(units, [["conv3"] if i == 1 else [] for i in range(len(units))])
    library.eval()
    plain = replacement_losses(library, [INPUTS], mse_loss)
    rounded = replacement_losses(library, [INPUTS], mse_loss, as_deployed=as_int8)
    assert all(named[KEEP] == 0 for named in plain)
    assert any(named[KEEP] > 0 for named in rounded)
    assert rounded[1]["conv3"] != plain[1]["conv3"]
    assert rounded[1]["conv3"] == pytest.approx(plain[1]["conv3"], rel=0.2)
