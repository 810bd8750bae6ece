"""Who is let in: a request that could not be answered in time is told so at once, instead of waiting for it."""

import threading
from collections.abc import Callable

from nas.serving.refusal import busy

WEIGHT = 0.1
"""Weight of the latest sample in the moving average of the time per image."""
ROOM = 0.6
"""Share of a request's time that its wait may be expected to take. The estimate may be wrong, and a longer queue would
answer no more images, only later."""
LARGEST_STEP = 4.0
"""A sample counts at most so many times the average: one huge image must not close the door."""


class Admission:
    """Counts the images in hand and learns how long one takes where others wait. For several threads at once.

    The time per image is that between two answers while there was always somebody waiting: what threads and cores
    share and what they do side by side is in it, whichever stage is the slowest.
    """

    def __init__(self, service_s: float, clock: Callable[[], float]) -> None:
        """`service_s`: seconds per image to begin with, above 0; `clock` gives seconds."""
        self._clock = clock
        self._lock = threading.Lock()
        self._service_s = service_s
        self._waiting = 0
        self._answered_at = clock()

    @property
    def service_s(self) -> float:
        """Seconds per image, where others wait."""
        return self._service_s

    @property
    def waiting(self) -> int:
        """Images in hand."""
        return self._waiting

    def enter(self, images: int, due: float) -> bool:
        """Take in a request of `images`, to be answered by `due` (as the clock counts); True if the server was idle.

        Whoever comes to an idle server is taken in, however short its time.

        Raises:
            Refusal: it would be answered too late (status 503).
        """
        with self._lock:
            wait_s = (self._waiting + images) * self._service_s
            idle = not self._waiting
            if not idle and wait_s > ROOM * (due - self._clock()):
                raise busy(f"busy: an answer would take {wait_s * 1e3:.0f} ms", wait_s)
            self._waiting += images
            return idle

    def leave(self, images: int = 1) -> None:
        """So many images are no longer in hand, for whatever reason."""
        with self._lock:
            self._waiting -= images

    def answered(self, images: int, arrived_at: float) -> None:
        """So many images were answered together, the first of which `arrived_at` that time."""
        with self._lock:
            now = self._clock()
            sample = (now - max(self._answered_at, arrived_at)) / images
            self._answered_at = now
            self._service_s += WEIGHT * (min(sample, LARGEST_STEP * self._service_s) - self._service_s)
