"""An optimiser's state as tensors and numbers."""

import pytest
import torch
from timm.optim import Lamb

from nas.training.state import group_numbers, optimizer_tensors, restore_optimizer


@pytest.mark.parametrize("make", [torch.optim.AdamW, Lamb, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)])
def test_an_optimiser_goes_on_as_if_nothing_had_happened(make) -> None:  # type: ignore[no-untyped-def]
    def step(parameter: torch.nn.Parameter, optimizer: torch.optim.Optimizer) -> None:
        (parameter**2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    first = torch.nn.Parameter(torch.ones(3))
    optimizer = make([first])
    step(first, optimizer)
    second = torch.nn.Parameter(first.detach().clone())
    copy = make([second])
    restore_optimizer(copy, {k: v.clone() for k, v in optimizer_tensors(optimizer).items()}, group_numbers(optimizer))
    step(first, optimizer)
    step(second, copy)
    assert torch.equal(first, second)
