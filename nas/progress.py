"""Progress messages of long work: always on stderr, so that stdout holds results alone."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol, TextIO

from nas.text import duration

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

PLAIN_INTERVAL_S = 30.0
"""Seconds in which a running stage writes at most one line, where stderr is no terminal."""


class Stage(Protocol):
    """One piece of work of known or unknown length."""

    def advance(self, amount: float = 1, note: str | None = None) -> None:
        """`amount` more units are done; `note` is a few words about the latest one."""
        ...


class Progress(Protocol):
    """The engine's reports on its work.

    `with progress.stage("short trainings", total=24) as bar: bar.advance(1, note="61 %")`
    """

    def stage(self, name: str, total: float | None = None) -> AbstractContextManager[Stage]:
        """Opens a stage of `total` units (None where that is unknown); stages may be nested."""
        ...

    def note(self, text: str) -> None:
        """A sentence that stays visible."""
        ...


def progress_for(*, quiet: bool = False) -> Progress:
    """Bars on a terminal, a few plain lines elsewhere, nothing where `quiet`."""
    if quiet:
        return SilentProgress()
    return RichProgress() if sys.stderr.isatty() else PlainProgress()


class SilentProgress:
    """Says nothing: the default of the Python API."""

    @contextmanager
    def stage(self, name: str, total: float | None = None) -> Iterator[Stage]:
        yield _SilentStage()

    def note(self, text: str) -> None:
        pass


class _SilentStage:
    def advance(self, amount: float = 1, note: str | None = None) -> None:
        pass


class PlainProgress:
    """Sparse lines for logs: when a stage has run for a while, and when it ends."""

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock

    @contextmanager
    def stage(self, name: str, total: float | None = None) -> Iterator[Stage]:
        stage = _PlainStage(name, total, self.note, self._clock)
        yield stage
        stage.finish()

    def note(self, text: str) -> None:
        # Looked up late: `sys.stderr` may have been redirected since this object was made.
        print(text, file=self._stream or sys.stderr, flush=True)


class _PlainStage:
    def __init__(
        self, name: str, total: float | None, write: Callable[[str], None], clock: Callable[[], float]
    ) -> None:
        self._name = name
        self._total = total
        self._write = write
        self._clock = clock
        self._done = 0.0
        self._started = self._last_line = clock()

    def advance(self, amount: float = 1, note: str | None = None) -> None:
        self._done += amount
        now = self._clock()
        if now - self._last_line >= PLAIN_INTERVAL_S and self._done != self._total:
            self._last_line = now
            self._write(f"{self._name}: {self._state(now)}" + (f" ({note})" if note else ""))

    def finish(self) -> None:
        self._write(f"{self._name}: done in {duration(self._clock() - self._started)}")

    def _state(self, now: float) -> str:
        if self._total is None:
            return f"{self._done:g} done"
        left = (now - self._started) / self._done * (self._total - self._done) if self._done else None
        return f"{self._done:g} of {self._total:g}" + (f", about {duration(left)} left" if left is not None else "")


class RichProgress:
    """Bars with the time left; a finished stage leaves one line."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True)
        self._bars: Bars | None = None

    @contextmanager
    def stage(self, name: str, total: float | None = None) -> Iterator[Stage]:
        # One display for nested stages, a new one for each outermost stage: finished ones scroll away as text.
        outermost = self._bars is None
        bars = self._bars = self._bars or self._new_bars()
        task = bars.add_task(name, total=total, note="")
        if outermost:
            bars.start()
        try:
            yield _RichStage(bars, int(task))
            if total is None:
                bars.update(task, total=1, completed=1)
            bars.update(task, note="")
        finally:
            if outermost:
                bars.stop()
                self._bars = None

    def note(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)

    def _new_bars(self) -> "Bars":
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.progress import TimeRemainingColumn as TimeLeft

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeLeft(),
            TextColumn("{task.fields[note]}", markup=False, style="dim"),
        )
        # Steps take seconds to minutes: the time left must look back further than rich's 30 s.
        return Progress(*columns, console=self._console, speed_estimate_period=600)


class _RichStage:
    def __init__(self, bars: "Bars", task: int) -> None:
        from rich.progress import TaskID

        self._bars = bars
        self._task = TaskID(task)

    def advance(self, amount: float = 1, note: str | None = None) -> None:
        self._bars.advance(self._task, amount)
        if note is not None:
            self._bars.update(self._task, note=note)
