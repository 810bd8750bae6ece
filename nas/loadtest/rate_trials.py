"""The largest rate that one kind of server keeps a limit at: found on one server, confirmed on fresh ones."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nas.loadtest.outcome import Trial, fewest_requests, why_invalid
from nas.loadtest.plan import OpenLoop, warm_up_s
from nas.loadtest.rate_search import largest_rate

HEADROOM = 1.1
"""Times what a closed loop reached, which is where the search begins: no server answers more for long."""
STEP_BACK = 0.95
"""Of a rate that a fresh server did not keep, that is tried next."""
STEPS_BACK = 4
REPEATS = 1
"""So often a trial that failed, and was invalid, is made again before it counts as failed."""
SPARE = 1.5
"""Times the fewest requests of MLPerf's rule, which would forgive not a single late one."""

Try = Callable[[OpenLoop, int], Trial]
"""Makes a load with a seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateFound:
    """The end of a search for a rate."""

    rate_per_s: float | None
    """None: not even the lowest rate that was tried is kept."""
    searched: tuple[Trial, ...]
    confirmed: tuple[Trial, ...]
    """One trial for each fresh server, all at that rate."""


def search_rate(closed_rate_per_s: float, seconds: float, attempt: Try, trials: int = 8) -> RateFound:
    """Bisection on one server.

    Args:
        closed_rate_per_s: what a closed loop reached with many clients.
        seconds: of a trial; more at low rates, so that MLPerf's rule can say anything.
        attempt: makes a trial.
        trials: most of them.
    """
    made: list[Trial] = []

    def keeps(rate_per_s: float) -> bool:
        made.append(credible(_load(rate_per_s, seconds), len(made), attempt))
        return made[-1].keeps_slo

    rate = largest_rate(keeps, HEADROOM * closed_rate_per_s, trials)
    return RateFound(rate_per_s=rate, searched=tuple(made), confirmed=())


def confirm_rate(found: RateFound, seconds: float, fresh: Sequence[Try]) -> RateFound:
    """The found rate, or one a little lower, at which every one of the fresh servers keeps the limit."""
    rate = found.rate_per_s
    for _ in range(STEPS_BACK + 1):
        if rate is None:
            break
        load = _load(rate, seconds)
        trials = []
        for k, attempt in enumerate(fresh):
            trials.append(credible(load, 100 + k, attempt))
            if not trials[-1].keeps_slo:
                break
        else:
            return RateFound(rate_per_s=rate, searched=found.searched, confirmed=tuple(trials))
        rate *= STEP_BACK
    return RateFound(rate_per_s=None, searched=found.searched, confirmed=())


def credible(load: OpenLoop, seed: int, attempt: Try) -> Trial:
    """A trial; made again where it missed its limit and something other than the server may be at fault. One that kept
    the limit did so in spite of it: whatever disturbs only adds to latencies."""
    trial = attempt(load, seed)
    for repeat in range(REPEATS):
        if trial.keeps_slo or trial.gone or not why_invalid(trial):
            break
        trial = attempt(load, seed + 1000 * (repeat + 1))
    return trial


def long_enough(rate_per_s: float, seconds: float) -> float:
    """Seconds of a trial in which so many requests start that some may be late."""
    return max(seconds, SPARE * fewest_requests(0) / rate_per_s)


def _load(rate_per_s: float, seconds: float) -> OpenLoop:
    return OpenLoop(
        rate_per_s=rate_per_s, seconds=long_enough(rate_per_s, seconds), warm_up_s=warm_up_s(seconds)
    )  # fmt: skip
