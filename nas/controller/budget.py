"""One wall-clock budget and an account of where it went."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Budget:
    """Counts down from the moment it is made.

    `clock` is a monotonic clock in seconds, so that tests need not wait.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._start = clock()
        self._spent: dict[str, float] = {}

    @property
    def elapsed_s(self) -> float:
        return self._clock() - self._start

    @property
    def left_s(self) -> float:
        return self.seconds - self.elapsed_s

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Book the time inside the block on `name`."""
        began = self._clock()
        try:
            yield
        finally:
            self._spent[name] = self._spent.get(name, 0.0) + self._clock() - began

    def account(self) -> dict[str, float]:
        """Seconds by stage in the order they first ran, then `total`."""
        return {**{name: round(s, 2) for name, s in self._spent.items()}, "total": round(self.elapsed_s, 2)}
