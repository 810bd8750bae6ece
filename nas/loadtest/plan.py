"""What one trial does: when requests start, which image each sends, and what makes an answer right.

A trial is either a closed loop (each client sends its next image when it has the last answer) or an open loop
(requests start at the times of a Poisson process, whether or not earlier ones were answered), as in the server scenario
of MLPerf (Reddi et al. 2020, https://arxiv.org/abs/1911.02549). A closed loop waits together with a slow server and so
hides how long users would have waited; an open loop does not.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

RAMP_S = 0.002
"""Between two connections that are opened before a trial: a burst of them may all end up at one of several workers."""
MOST_RAMP_S = 1.0
"""For all of them together: the first must not be taken for idle before the last is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoop:
    """`clients` requests are under way at all times."""

    clients: int
    seconds: float
    warm_up_s: float = 1.0
    """Before the `seconds`; its answers do not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLoop:
    """Requests start at random times, `rate_per_s` of them on average."""

    rate_per_s: float
    seconds: float
    warm_up_s: float = 1.0
    """Before the `seconds`; its answers do not count."""


Load = ClosedLoop | OpenLoop


def warm_up_s(seconds: float) -> float:
    """The usual warm-up before so many counted seconds."""
    return min(1.0, seconds / 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """All that the generator's process needs, besides the bytes of the requests and the expected answers."""

    host: str
    port: int
    load: Load
    reader: str
    """How the answer is read from a body, a key of `nas.loadtest.answers.READERS`."""
    seed: int
    """Of arrival times and of the order of images."""
    timeout_s: float
    """From the scheduled start to the last byte of the answer."""
    slo_ms: float | None = None
    """Limit on the latency; None: there is none."""
    most_late: int | None = None
    """After more requests than this that were late or failed, the outcome is clear and the trial ends."""

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "loop": "closed" if isinstance(self.load, ClosedLoop) else "open"}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "Job":
        values = dict(document)
        kind = ClosedLoop if values.pop("loop") == "closed" else OpenLoop
        return cls(**{**values, "load": kind(**values["load"])})


def poisson_arrivals_s(rate_per_s: float, seconds: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Ascending times within [0, seconds) of a Poisson process, (n,) float64: exponential gaps, one after the other."""
    times = np.empty(0)
    last = 0.0
    while last < seconds:
        gaps = rng.exponential(1.0 / rate_per_s, max(16, int(1.1 * rate_per_s * (seconds - last))))
        more = last + np.cumsum(gaps)
        times, last = np.concatenate([times, more]), float(more[-1])
    return times[times < seconds]


def drawn_images(images: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Which of so many images each request sends, (count,) int64: drawn with replacement."""
    return rng.integers(0, images, count)
