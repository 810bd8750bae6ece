"""Which parts of trying deployments still fit into the time that is left: what does not is left out, and said."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LEFT_OUT = "left out: the budget did not reach it"
"""Reason of a deployment that was not tried."""
MEASURED = 2.0
"""Seconds of measuring a deployment in three sessions by those of preparing it and looking at its accuracy, where
nothing was measured yet."""


class InTime:
    """Compares what parts took with the seconds that are left.

    A part is expected to take as long as the longest of its kind so far, on the machine as it is now: on a busy one
    all of them take longer.
    """

    def __init__(self, left_s: Callable[[], float] = lambda: math.inf, clock: Callable[[], float] = time.monotonic):
        """`left_s`: seconds that are left now. `clock`: in seconds, so that tests need not wait."""
        self._left_s = left_s
        self._clock = clock
        self._longest_s: dict[str, float] = {}

    @contextmanager
    def timed(self, kind: str) -> Iterator[None]:
        """The block is a part of that kind."""
        began = self._clock()
        try:
            yield
        finally:
            self._longest_s[kind] = max(self.longest_s(kind), self._clock() - began)

    def longest_s(self, kind: str) -> float:
        """Seconds of the longest part of that kind; 0 where there was none."""
        return self._longest_s.get(kind, 0.0)

    def fits(self, *kinds: str) -> bool:
        """True if one further part of each of these kinds is expected to end in time."""
        return sum(self.longest_s(kind) for kind in kinds) <= self._left_s()

    def fits_attempt(self, under_way: int) -> bool:
        """True if a further deployment can be prepared, and be measured with the `under_way` that were before it."""
        return (1 + MEASURED * (under_way + 1)) * self.longest_s(ATTEMPT) <= self._left_s()


ATTEMPT, MEASURING = "attempt", "measuring"
"""Kinds of parts: preparing one deployment with a look at its accuracy, and measuring all that were prepared."""
