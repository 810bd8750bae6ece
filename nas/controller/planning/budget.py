"""One budget, an account of where it went, and the two ways to ask a search to come to an end."""

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from nas.files.writing import write_json
from nas.progress import Stage


@dataclass(frozen=True, slots=True)
class Beforehand:
    """What was done for a run before it began, within the same budget."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    """By stage, and their `total`."""
    notes: tuple[str, ...] = ()
    """Remarks for its result."""


NOTHING = Beforehand()


class Budget:
    """Counts down from the moment it is made, less what earlier processes of the same run have spent.

    `clock` is a monotonic clock in seconds, so that tests need not wait.
    """

    def __init__(
        self,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
        *,
        spent: Mapping[str, float] | None = None,
        price_per_hour: float | None = None,
    ) -> None:
        """`seconds`: of wall clock, inf where trials alone end the search. `spent`: seconds by stage before now."""
        self.seconds = seconds
        self.price_per_hour = price_per_hour
        self._clock = clock
        self._spent = {stage: s for stage, s in (spent or {}).items() if stage != "total"}
        self._start = clock() - (spent or {}).get("total", 0.0)
        self._running: list[tuple[str, float]] = []

    @property
    def elapsed_s(self) -> float:
        return self._clock() - self._start

    @property
    def left_s(self) -> float:
        """Seconds that are left, negative where it is overdrawn; inf where trials alone end the search."""
        return self.seconds - self.elapsed_s

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Book the time inside the block on `name`."""
        self._running.append((name, self._clock()))
        try:
            yield
        finally:
            _, began = self._running.pop()
            self._spent[name] = self._spent.get(name, 0.0) + self._clock() - began

    def account(self) -> dict[str, float]:
        """Seconds by stage in the order they first ran, running ones up to now, then `total`."""
        spent = dict(self._spent)
        if self._running:  # the outermost alone: nested ones lie within it
            name, began = self._running[0]
            spent[name] = spent.get(name, 0.0) + self._clock() - began
        return {**{name: round(s, 2) for name, s in spent.items()}, "total": round(self.elapsed_s, 2)}

    @property
    def cost_usd(self) -> float | None:
        """Cost in US dollars of the time so far; None where no price was given."""
        return None if self.price_per_hour is None else round(self.elapsed_s / 3600 * self.price_per_hour, 4)


class BookedStage:
    """A stage whose steps also save the account, so that a killed process has spent what it has spent."""

    def __init__(self, stage: Stage, budget: Budget, path: Path) -> None:
        self._stage, self._budget, self._path = stage, budget, path

    def advance(self, amount: float = 1, note: str | None = None) -> None:
        self._stage.advance(amount, note)
        write_json(self._path, self._budget.account())


class Abandoned(BaseException):
    """Raised inside `Interrupts.abandonable` by the first interrupt. No `Exception`, so that nothing swallows it."""


SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Ctrl-C, and what service managers, schedulers and `kill` send."""


class Interrupts:
    """One of `SIGNALS` once: finish with what is there. Twice: stop at once."""

    def __init__(self) -> None:
        self.asked = False
        self._abandonable = False

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Take over `SIGNALS` inside the block; other threads than the main one get none."""
        try:
            before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        except ValueError:  # not the main thread: then nobody presses keys for us
            yield
            return
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def abandonable(self) -> Iterator[None]:
        """A block that the first interrupt leaves at once. After it the caller asks `asked`."""
        outer, self._abandonable = self._abandonable, True
        try:
            yield
        except Abandoned:
            pass
        finally:
            self._abandonable = outer

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        if self._abandonable:
            raise Abandoned
