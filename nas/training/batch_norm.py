"""Batch-norm statistics measured afresh, for weights whose own are stale."""

from collections.abc import Iterable

import torch
from torch import nn

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def recalibrate_batch_norm(network: nn.Module, inputs: Iterable[torch.Tensor]) -> None:
    """Replace the running statistics of every batch norm by averages over batches of training inputs (b, ...).

    For subnets of a supernet (Yu & Huang 2019) and averaged weights. Other layers stay in evaluation mode (no dropout);
    weights are not touched. Does nothing where there is no batch norm. The inputs must be on the network's device; it
    is left in evaluation mode.
    """
    norms = [m for m in network.modules() if isinstance(m, BATCH_NORMS) and m.track_running_stats]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    network.eval()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # cumulative average over the batches
        norm.train()
    with torch.no_grad():
        for batch in inputs:
            network(batch)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()


def set_norm_momentum(network: nn.Module, momentum: float) -> None:
    """Give every batch norm that keeps a moving average this weight of a batch."""
    for module in network.modules():
        if isinstance(module, BATCH_NORMS) and module.momentum is not None:
            module.momentum = momentum
