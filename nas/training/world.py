"""The processes that train together, as `torchrun` starts them: alone there is nothing to set up."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
from torch import distributed

T = TypeVar("T")

PATIENCE = timedelta(days=7)
"""Time that the others wait while the first process validates, or trains with rounding: `torchrun` ends them where it
has failed."""


@dataclass(frozen=True, slots=True)
class World:
    """This process among `size` ones."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Writes files, validates and prints."""
        return self.rank == 0

    def agree(self, value: T) -> T:
        """The first process's value, in all of them; waits for the others."""
        if self.size == 1:
            return value
        values: list[T] = [value]
        # Plain numbers and settings between processes of one training, not files of users.
        distributed.broadcast_object_list(values, src=0)
        return values[0]


@contextmanager
def joined_world() -> Iterator[World]:
    """Join the processes that `torchrun` has started, and leave them at the end (gloo on a CPU, nccl on GPUs)."""
    size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    # A caller may have set up the group itself.
    owns = size > 1 and not distributed.is_initialized()
    if owns:
        distributed.init_process_group("nccl" if cuda else "gloo", timeout=PATIENCE)
        if cuda:
            torch.cuda.set_device(device)
    try:
        yield World(rank, size, device)
    finally:
        if owns:
            distributed.destroy_process_group()
