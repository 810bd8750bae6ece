"""Scoring what arrives: images are taken from a source, scored by a crew, and given back with their rows.

A source owns what is taken, scored and done, and keeps it so that a process may be killed at any moment: what was
taken and not given back is taken again, by this command or another one.
"""

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from nas.progress import Progress
from nas.scoring.crew import Crew
from nas.scoring.messages import Task
from nas.scoring.rows import Row
from nas.scoring.scorer import Item

TASK_IMAGES = 32
"""Most images of a task: what a kill costs each worker."""
IDLE_S = 0.1
"""Seconds between two looks at an empty source."""


ItemT = TypeVar("ItemT", bound=Item)


class Source(Protocol[ItemT]):
    """Images that wait somewhere."""

    def take(self, most: int) -> list[ItemT]:
        """Up to `most` images that nobody else will take; none where there are none now. Does not wait."""
        ...

    def finish(self, items: Sequence[ItemT], rows: Sequence[Row]) -> None:
        """The images of one `take` are scored: keep the rows, and have the images never taken again."""
        ...

    def empty(self) -> bool:
        """Nothing waits, and nothing was left behind by others that this source might take."""
        ...

    def look_after(self) -> None:
        """Called several times a second: whatever has to be done now and then."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """What a stream has come to."""

    images: int = 0
    bad: int = 0

    def with_rows(self, rows: Sequence[Row]) -> "Count":
        return Count(images=self.images + len(rows), bad=self.bad + sum(row.error is not None for row in rows))


def run_stream(
    crew: Crew,
    source: Source[ItemT],
    progress: Progress,
    *,
    until_empty: bool = False,
    stop: threading.Event | None = None,
) -> Count:
    """Score what `source` has until `stop` is set, or, with `until_empty`, until it has nothing more.

    What is under way then is scored and given back first.

    Raises:
        UserError, OSError: as `Crew.wait`, and as the source.
    """
    under_way: dict[int, list[ItemT]] = {}
    count, number = Count(), 0
    stop = stop or threading.Event()
    with progress.stage("scoring") as stage:
        while True:
            while crew.idle and not stop.is_set() and (items := source.take(TASK_IMAGES)):
                under_way[number] = items
                crew.submit(Task(number=number, items=items))
                number += 1
            if not under_way:
                if stop.is_set() or (until_empty and source.empty()):
                    return count
                time.sleep(IDLE_S)
            for done in crew.wait() if under_way else ():
                assert done.rows is not None
                source.finish(under_way.pop(done.number), done.rows)
                count = count.with_rows(done.rows)
                stage.advance(done.count)
            source.look_after()


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """Ctrl-C and SIGTERM ask for an end while the block lasts; the second one ends the process as usual."""
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(number: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    try:
        for number in before:
            signal.signal(number, ask)
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
