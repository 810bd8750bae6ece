"""Training batches: their order, the random numbers behind them, and their preparation beside the gradients.

All work is done on whole batches, in the training process: the loop makes the next batch while it computes gradients,
and worker processes would only copy it.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Generic, Self, TypeVar

import numpy as np
import torch

from nas.files.tensors import Tensors

T = TypeVar("T")


def seed_step(*numbers: int) -> torch.Generator:
    """Seed torch's global random state by `numbers`, and return a generator of its own from the same seed."""
    seed = int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.manual_seed(seed)
    else:
        # torch.manual_seed would put off the seeds of GPUs, with the caller's stack written out, at every step.
        torch.default_generator.manual_seed(seed)
    return torch.Generator().manual_seed(seed)


class Batches:
    """The batches of a training, of nearly equal size: a small last one would disturb batch norm.

    Each hangs on the seed, the epoch and its number alone: the random state is set anew before every step, and nothing
    has to be remembered to go on after an interruption.

    Args:
        count: training examples.
        batch_size: over all processes together.
        seed: of the order and of what is drawn for each batch.
        rank: this process's number of `world`, from 0.
    """

    def __init__(self, count: int, batch_size: int, seed: int, rank: int = 0, world: int = 1) -> None:
        self.count, self.batch_size, self.seed, self.rank, self.world = count, batch_size, seed, rank, world

    @property
    def per_epoch(self) -> int:
        """Number of batches."""
        return max(1, min(round(self.count / self.batch_size), self.count // (2 * self.world)))

    def start(self) -> None:
        """Seed torch's global random state for the beginning of the training."""
        seed_step(self.seed)

    def epoch(self, epoch: int) -> Iterator[tuple[torch.Tensor, torch.Generator]]:
        """Indices (b,) int64 of this process's part of each batch of an epoch, and the generator of what it draws."""
        generator = torch.Generator().manual_seed(int(np.random.SeedSequence((self.seed, epoch)).generate_state(1)[0]))
        order = torch.randperm(self.count, generator=generator)
        for index, indices in enumerate(order.tensor_split(self.per_epoch)):
            yield indices.tensor_split(self.world)[self.rank], seed_step(self.seed, epoch, index, self.rank)

    def random_state(self) -> Tensors:
        """Random state to be kept after an epoch, by name."""
        return {}

    def restore(self, state: Tensors) -> None:
        """Undo `random_state`."""


class StreamedBatches(Batches):
    """The batches of a training whose random numbers all come from one stream, in the order of the steps.

    For one process alone: what another one draws depends on its images.
    """

    def __init__(self, count: int, batch_size: int, seed: int) -> None:
        super().__init__(count, batch_size, seed)
        self._generator = torch.Generator().manual_seed(seed)

    def start(self) -> None:
        torch.manual_seed(self.seed)

    def epoch(self, epoch: int) -> Iterator[tuple[torch.Tensor, torch.Generator]]:
        order = torch.randperm(self.count, generator=self._generator)
        for indices in order.tensor_split(self.per_epoch):
            yield indices, self._generator

    def random_state(self) -> Tensors:
        found = {"order": self._generator.get_state(), "cpu": torch.get_rng_state()}
        if torch.cuda.is_available():
            found["cuda"] = torch.cuda.get_rng_state()
        return found

    def restore(self, state: Tensors) -> None:
        self._generator.set_state(state["order"])
        torch.set_rng_state(state["cpu"])
        if "cuda" in state and torch.cuda.is_available():
            torch.cuda.set_rng_state(state["cuda"])


class Ahead(Generic[T]):
    """Takes items from an iterator, the next one in a thread of its own while the caller computes.

    The thread has one thread for each of its operations: the cores are busy with the network.
    """

    def __init__(self, items: Iterator[T], count: int) -> None:
        self._items, self._left = items, count
        # torch keeps a number for each thread, and the one that was set last in any: a thread that computes for the
        # first time takes it. So this one takes its own before it is changed, and the changed one does not stay.
        threads = torch.get_num_threads()
        self._beside = ThreadPoolExecutor(1)
        self._beside.submit(_compute_alone).result()
        torch.set_num_threads(threads)
        self._coming: Future[T] | None = None

    def __enter__(self) -> Self:
        self.prepare()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._beside.shutdown()

    def take(self) -> T:
        """The item that was prepared last; waits for it."""
        assert self._coming is not None
        return self._coming.result()

    def prepare(self) -> None:
        """Begin with the next item, if there is one."""
        if self._left:
            self._left -= 1
            self._coming = self._beside.submit(next, self._items)


def _compute_alone() -> None:
    """Have this thread compute with no others."""
    torch.set_num_threads(1)
    torch.get_num_threads()  # or it would take what is set elsewhere until it computes
