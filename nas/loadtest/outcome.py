"""What one trial showed, and whether it may be believed. Pure functions of its records."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nas.loadtest.plan import ClosedLoop, Load, OpenLoop
from nas.loadtest.records import NO_SOCKET, WRONG, Records, failure_name
from nas.measure.statistics import Activity, disturbance_with_pauses, upper_percentile

PERCENTILE = 99
"""Of the latencies that a limit is asked of."""
CONFIDENCE = 0.99
"""That the percentile is really kept, where a rate is said to keep it (MLPerf's early stopping)."""
MAX_LAG_MS, MAX_LAG_SHARE = 1.0, 0.05
"""A generator that sent later than this, absolutely and as a share of the limit, in 1 % of cases was too slow."""
MAX_CPU_SHARE = 0.8
"""Of one core, that the generator may use: beyond that its own queue is measured."""
MAX_OTHERS_SHARE = 0.1
"""Of the machine's cores, that programs may use which are neither server nor generator."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trial:
    """One load on one server, as it was seen."""

    load: Load
    slo_ms: float | None
    """Limit on the latency that `PERCENTILE` per cent keep; None: none was asked for."""
    records: Records
    activity: Activity
    """Of the generator's process; the hypervisor's time is the mean of the cores that it may run on."""
    others_share: float | None = None
    """Part of the machine's cores that other programs used; None where the server's own part is not known."""
    gone: bool = False
    """The server was not there any more, and the trial was given up."""
    phases_ms: Mapping[str, float] | None = None
    """Median time of each phase, where the server tells."""
    stopped_s: float | None = None
    """When it was ended because too many had been late already; None: it was not."""

    @property
    def seconds(self) -> float:
        """Counted time."""
        return self.load.seconds if self.stopped_s is None else max(1e-3, min(self.stopped_s, self.load.seconds))

    @property
    def counted(self) -> Records:
        """Without warm-up."""
        return self.records.where(self.records.due_s >= 0)

    @property
    def images_per_s(self) -> float:
        """Right answers within the counted time, per second of it."""
        return int(self._answered_at_s.size) / self.seconds

    @property
    def keeps_slo(self) -> bool:
        """True if the limit is kept with `CONFIDENCE`, by the number of those that were over it."""
        return self.slo_ms is not None and self.stopped_s is None and keeps(self.counted.latency_ms, self.slo_ms)

    @property
    def cv_1s(self) -> float | None:
        """Coefficient of variation of the right answers in each whole second; None for fewer than three seconds."""
        seconds = int(self.seconds)
        if seconds < 3:
            return None
        counts, _ = np.histogram(self._answered_at_s, bins=seconds, range=(0, seconds))
        return variation([float(count) for count in counts])

    @property
    def _answered_at_s(self) -> NDArray[np.float64]:
        done_s = self.records.done_s[self.records.ok]
        return done_s[(done_s >= 0) & (done_s < self.seconds)]


def keeps(latencies_ms: NDArray[np.float32], slo_ms: float) -> bool:
    """Whether so few latencies are over the limit that its percentile is kept with `CONFIDENCE`.

    This is MLPerf's rule of early stopping (https://github.com/mlcommons/inference_policies, appendix): t late answers
    are forgiven among at least n(t) of them, n(0) = 459, n(1) = 662.
    """
    if not len(latencies_ms):
        return False
    bound = upper_percentile(latencies_ms.tolist(), PERCENTILE, CONFIDENCE)
    return bound is not None and bound <= slo_ms


def fewest_requests(over: int) -> int:
    """The fewest requests among which `over` late ones are forgiven: n(t) of MLPerf's rule.

    That is the smallest n for which at most `over` of n are late with probability 1 - `CONFIDENCE` at most, if the
    limit was just missed.
    """
    from scipy.stats import binom

    low, high = over, 100 * (over + 10) * 10
    while high - low > 1:
        middle = (low + high) // 2
        if binom.cdf(over, middle, 1 - PERCENTILE / 100) <= 1 - CONFIDENCE:
            high = middle
        else:
            low = middle
    return high


def hopeless_after(load: OpenLoop) -> int:
    """So many late requests that an open loop cannot keep its limit any more, with room for chance in their number."""
    return round(2 * (1 - PERCENTILE / 100) * load.rate_per_s * load.seconds) + 10


def variation(values: list[float]) -> float | None:
    """Sample standard deviation over mean; None for fewer than two values or a mean of zero."""
    if len(values) < 2 or not np.mean(values):
        return None
    return float(np.std(values, ddof=1) / np.mean(values))


def why_invalid(trial: Trial) -> list[str]:
    """The reasons why the figures of a trial cannot be trusted, as sentences; empty where they can."""
    counted, reasons = trial.counted, []
    if trial.gone:
        reasons.append("the server was gone before the end")
    if not len(counted):
        return [*reasons, "no request was counted"]
    lag_ms = float(np.percentile(counted.lag_ms, PERCENTILE))
    limit_ms = max(MAX_LAG_MS, MAX_LAG_SHARE * (trial.slo_ms or 0.0))
    if lag_ms > limit_ms:
        reasons.append(f"1 % of the requests were sent more than {lag_ms:.2g} ms late, {limit_ms:.2g} ms is allowed")
    cpu_share = trial.activity.cpu_s / trial.activity.wall_s
    if cpu_share > MAX_CPU_SHARE:
        reasons.append(f"the load generator itself used {cpu_share:.0%} of its core")
    if unsent := int(np.sum(counted.code == NO_SOCKET)):
        reasons.append(f"for {unsent} requests this system gave no further connection")
    if wrong := int(np.sum(counted.code == WRONG)):
        reasons.append(f"{wrong} of {len(counted)} answers were wrong")
    if trial.others_share is not None and trial.others_share > MAX_OTHERS_SHARE:
        reasons.append(f"other programs used {trial.others_share:.0%} of the machine")
    steal = Activity(wall_s=trial.activity.wall_s, cpu_s=trial.activity.cpu_s, steal_s=trial.activity.steal_s)
    # The time in which the generator waited for a core says nothing here: server and generator may share one.
    if (disturbed := disturbance_with_pauses(steal, threads=1)) is not None:
        reasons.append(disturbed)
    return reasons


def trial_document(trial: Trial) -> dict[str, Any]:
    """A trial as plain values, see docs/load-tests.md; a percentile that fell to failures is infinite."""
    counted, closed = trial.counted, isinstance(trial.load, ClosedLoop)
    latencies, reasons = counted.latency_ms, why_invalid(trial)
    codes, counts = np.unique(counted.code[~counted.ok], return_counts=True)
    return {
        "scenario": "closed" if closed else "server",
        "clients": trial.load.clients if isinstance(trial.load, ClosedLoop) else None,
        "rate": None if isinstance(trial.load, ClosedLoop) else trial.load.rate_per_s,
        "seconds": trial.seconds,
        "slo_ms": trial.slo_ms,
        "keeps_slo": None if trial.slo_ms is None else trial.keeps_slo,
        "n": len(counted),
        "over": None if trial.slo_ms is None else int(np.sum(latencies > trial.slo_ms)),
        "valid": not reasons,
        "why_invalid": reasons,
        "images_per_s": trial.images_per_s,
        "latency_ms": quantiles_ms(latencies),
        "phases_ms": dict(trial.phases_ms or {}),
        "failures": {failure_name(int(code)): int(count) for code, count in zip(codes, counts, strict=True)},
        "cv_1s": trial.cv_1s,
        "generator": {
            "lag_p99_ms": float(np.percentile(counted.lag_ms, PERCENTILE)) if len(counted) else None,
            "cpu_share": trial.activity.cpu_s / trial.activity.wall_s,
        },
        "others_share": trial.others_share,
    }


def quantiles_ms(latencies_ms: NDArray[np.float32]) -> dict[str, float]:
    """Exact percentiles (the smallest latency that so many per cent do not exceed); NaN without latencies."""
    names = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
    if not len(latencies_ms):
        return dict.fromkeys(names, math.nan)
    found = np.quantile(latencies_ms, list(names.values()), method="inverted_cdf")
    return {name: float(value) for name, value in zip(names, found, strict=True)}
