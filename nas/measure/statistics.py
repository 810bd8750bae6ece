"""Numbers of a measurement: percentiles, spread, drift, and whether the machine was disturbed. Pure functions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

SESSION_CONFIDENCE = 0.632
"""Of the bounds that one session puts on a percentile. That three sessions, each right so often, are all wrong happens
in 5 % of cases: a limit that all of them keep is kept with 95 % confidence, and one that all of them miss is missed."""
MIN_CPU_SHARE = 0.95
MAX_WAITING_SHARE = 0.08
"""A quiet machine whose every core computes shows 2-4 % (the kernel's own work has no other core to run on); another
process that computes on one of two cores shows 25 % and more."""
MAX_WAITING_WITH_PAUSES = 0.5
"""The same over the time in which there was work: threads that wake up wait a moment for their
cores each time, up to 38 % on a quiet machine. What disturbs less shows in the reference network."""
MAX_STEAL_SHARE = 0.05
"""The kernel counts steal time in ticks of 10 ms: in the usual 0.3 s a single tick is 3 %."""
MAX_SWITCHES_PER_S = 250.0
"""Most context switches per second and thread on a quiet machine; one with all cores in use shows 50-90."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Activity of the machine while one network was timed, summed over its windows."""

    wall_s: float
    cpu_s: float
    """Processor time of the whole process."""
    waiting_s: float | None = None
    """Time its threads were ready but not running, by the scheduler's account; None where that is not kept."""
    steal_s: float = 0.0
    """Time the hypervisor ran something else on this machine's cores, all cores together."""
    involuntary_switches: int = 0
    """Times a thread lost its core to another."""
    energy_j: float | None = None
    """Energy of the processor packages, everything that ran on them included; None where it is not known."""

    def __add__(self, other: "Activity") -> "Activity":
        energy = None if self.energy_j is None or other.energy_j is None else self.energy_j + other.energy_j
        waiting = [part for part in (self.waiting_s, other.waiting_s) if part is not None]
        return Activity(
            wall_s=self.wall_s + other.wall_s,
            cpu_s=self.cpu_s + other.cpu_s,
            waiting_s=sum(waiting) if waiting else None,
            steal_s=self.steal_s + other.steal_s,
            involuntary_switches=self.involuntary_switches + other.involuntary_switches,
            energy_j=energy,
        )


def percentiles(times_s: Sequence[float]) -> tuple[float, float, float]:
    """50th, 90th and 99th percentile of times, same unit, interpolated linearly.

    Raises:
        ValueError: no times.
    """
    if not times_s:
        raise ValueError("no times to summarise")
    p50, p90, p99 = np.percentile(np.asarray(times_s, dtype=np.float64), [50, 90, 99])
    return float(p50), float(p90), float(p99)


def upper_percentile(times_s: Sequence[float], percentile: int, confidence: float = SESSION_CONFIDENCE) -> float | None:
    """Upper confidence bound of a percentile of independent times: the r-th slowest, with the largest r that so many of
    them exceed the percentile with that probability. It assumes nothing of how times are distributed (order statistics,
    see Conover, Practical Nonparametric Statistics, 3rd edition, section 3.2).

    None where the times are too few: not even the slowest is a bound then.

    Args:
        times_s: at least one, any unit.
        percentile: above 0, below 100.
        confidence: probability that the bound is not below the percentile.
    """
    count, exceeding = len(times_s), 1 - percentile / 100
    rank, fewer = 0, 0.0  # `fewer`: probability that at most `rank` of the times exceed the percentile
    while rank < count:
        log_ways = math.lgamma(count + 1) - math.lgamma(rank + 1) - math.lgamma(count - rank + 1)
        fewer += math.exp(log_ways + rank * math.log(exceeding) + (count - rank) * math.log(1 - exceeding))
        if 1 - fewer < confidence:
            break
        rank += 1
    return float(np.partition(np.asarray(times_s, dtype=np.float64), count - rank)[count - rank]) if rank else None


def lower_percentile(times_s: Sequence[float], percentile: int, confidence: float = SESSION_CONFIDENCE) -> float | None:
    """Lower confidence bound of a percentile of independent times, as `upper_percentile` bounds it from above.

    None where the times are too few: not even the fastest is a bound then.
    """
    bound = upper_percentile([-time_s for time_s in times_s], 100 - percentile, confidence)
    return None if bound is None else -bound


def spread_pct(session_medians: Sequence[float]) -> float:
    """Largest minus smallest session median, in percent of their median; 0 for a single session."""
    return 100.0 * (max(session_medians) - min(session_medians)) / median(session_medians)


def drift_corrected(session_medians: Sequence[float], references: Sequence[float], usual_reference: float) -> float:
    """Median over sessions of latency scaled by how fast the machine was then.

    Args:
        session_medians: one latency per session, of one network.
        references: the reference network's latency in the same sessions.
        usual_reference: the reference network's usual latency; the result is what the network would take then.
    """
    return median(
        latency * usual_reference / reference for latency, reference in zip(session_medians, references, strict=True)
    )


def disturbance(activity: Activity, threads: int) -> str | None:
    """Reason why these times cannot be trusted, in words, or None where the machine was quiet.

    On a quiet machine a single-threaded network computes all the time; with more threads it also waits for its own
    slowest one, so processor time says nothing and the scheduler's waiting time has to.
    """
    if activity.wall_s <= 0:
        return None
    share = activity.cpu_s / activity.wall_s
    if threads == 1 and share < MIN_CPU_SHARE:
        return f"only {share:.0%} of the time was spent computing"
    return host_disturbance(activity, threads)


def host_disturbance(activity: Activity, threads: int) -> str | None:
    """`disturbance` for a process that may wait of its own accord, as one does that waits for a GPU."""
    if activity.wall_s <= 0:
        return None
    if activity.waiting_s is not None:
        waiting = activity.waiting_s / (activity.wall_s * threads)
        if waiting > MAX_WAITING_SHARE:
            return f"threads waited for a core {waiting:.0%} of the time"
    steal = activity.steal_s / (activity.wall_s * threads)
    if steal > MAX_STEAL_SHARE:
        return f"the hypervisor took {steal:.0%} of the time"
    switches = activity.involuntary_switches / activity.wall_s
    if switches > MAX_SWITCHES_PER_S * threads:
        return f"threads were interrupted {switches:.0f} times per second"
    return None


def disturbance_with_pauses(activity: Activity, threads: int) -> str | None:
    """`disturbance` for a process that sleeps between its calls, and so computes a small part of the time."""
    if activity.wall_s <= 0:
        return None
    if activity.waiting_s is not None and activity.cpu_s > 0:
        waiting = activity.waiting_s / (activity.waiting_s + activity.cpu_s)
        if waiting > MAX_WAITING_WITH_PAUSES:
            return f"threads waited for a core {waiting:.0%} of the time they had work"
    steal = activity.steal_s / (activity.wall_s * threads)
    if steal > MAX_STEAL_SHARE:
        return f"the hypervisor took {steal:.0%} of the time"
    return None
