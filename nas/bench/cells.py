"""Measurements that a bench consists of: pure planning."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from nas.deployment import Deployment


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement: a network, how it is run, and how many calls at once."""

    model: int
    """Index of the network in the command line."""
    deployment: Deployment
    streams: int = 1


def plan_cells(models: int, deployments: Sequence[Deployment], batches: Iterable[int], max_streams: int) -> list[Cell]:
    """All measurements, in an order in which what will be compared is measured together.

    Every network in every deployment at every batch; and with 2, 4, ... up to `max_streams` calls at once at the
    smallest batch, for throughput.

    Args:
        models: number of networks.
        deployments: of any batch; theirs is replaced.
        batches: images per call, in any order.
        max_streams: at most the threads of the CPU's deployments; 1: no such measurements. A deployment with fewer
            threads, such as a GPU's, has none of them.
    """
    sizes = sorted(set(batches))
    ways = [(batch, 1) for batch in sizes] + [(sizes[0], count) for count in stream_counts(max_streams)]
    return [
        Cell(model, replace(d, batch=batch), streams)
        for batch, streams in ways
        for d in deployments
        if streams == 1 or streams <= d.threads
        for model in range(models)
    ]


def stream_counts(most: int) -> list[int]:
    """2, 4, 8, ... and `most` itself; empty for 1."""
    powers = [2**k for k in range(1, most.bit_length()) if 2**k <= most]
    return powers if most in (1, *powers) else [*powers, most]
