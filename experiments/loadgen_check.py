"""The load generator on servers of which the right answer is known, and beside MLPerf's.

`python -m experiments.loadgen_check` takes about 7 minutes and wants a quiet machine; `--scale 0.1` is a rehearsal of
too few requests to be judged. It prints a table, and exits with 1 where a figure is off.

1. A server that stands still for 1 s in every 10 s: a tenth of all requests come meanwhile and wait for its end,
   so the 99th percentile of an open loop is 0.9 s. A closed loop with one client sees one slow call per stall.
2. A server that takes exactly s for each request, one after the other, at load r: requests wait r s / (2 (1 - r)) on
   average (M/D/1, Pollaczek and Khinchine). That is the mean of infinitely many; the few thousand of a trial wait up to
   10 % longer or shorter by chance. So it is asked in two steps: hours of drawn arrivals have that mean, and those of
   the trial waited as long as Lindley's recursion says of these very arrivals.
3. A server that answers at once: how late the generator sends at 1,000 requests per second.
4. The same server and rate by `mlcommons-loadgen`, in its server scenario.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import click
import numpy as np
from numpy.typing import NDArray

from experiments.known_server import Known, known_server
from experiments.mlperf_server import run_mlperf
from nas.loadtest.answers import LABEL, label_text
from nas.loadtest.generator import opened
from nas.loadtest.outcome import Trial, quantiles_ms, why_invalid
from nas.loadtest.plan import ClosedLoop, Load, OpenLoop, poisson_arrivals_s
from nas.loadtest.trial import Conversation, run_trial

REQUEST_BYTES = 20_000
"""As a small photo has."""
STALL_S, STALL_EVERY_S = 1.0, 10.0
SERVICE_S = 0.004
LONG_S = 20_000.0
"""Of arrivals that are only drawn."""
SEED = 0


@dataclass(frozen=True, slots=True)
class Check:
    """One figure: as measured, as it has to be, and how far it may be off."""

    name: str
    measured: float
    right: float
    allowed: float
    """As a fraction of `right`; 0: `right` is the most that is allowed."""
    unit: str
    disturbed: str = ""

    @property
    def kept(self) -> bool:
        if not self.allowed:
            return self.measured <= self.right
        return abs(self.measured / self.right - 1) <= self.allowed

    def row(self) -> str:
        bar = f"at most {self.right:.4g}" if not self.allowed else f"{self.right:.4g} ± {self.allowed:.0%}"
        off = "" if not self.allowed else f"{self.measured / self.right - 1:+.1%}"
        verdict = "yes" if self.kept else "NO"
        return f"| {self.name} | {self.measured:.4g} {self.unit} | {bar} | {off} | {verdict} | {self.disturbed} |"


@click.command()
@click.option("--scale", type=click.FloatRange(min=0.01), default=1.0, show_default=True, help="Times the durations.")
def main(scale: float) -> None:
    """Check the load generator against theory and against MLPerf's."""
    click.echo("| figure | measured | right | off by | kept | disturbed |\n|---|---|---|---|---|---|")
    failed = False
    for check in checks(scale):
        click.echo(check.row())
        failed |= not check.kept
    sys.exit(1 if failed else 0)


def checks(scale: float) -> Iterator[Check]:
    """All of them, as they are made."""
    yield from _stall(scale)
    for load, allowed in ((0.5, 0.05), (0.8, 0.1)):
        yield from _waits(load, allowed, 75 * scale)
    with known_server() as server:
        trial = _loaded(server, OpenLoop(rate_per_s=1000.0, seconds=20 * scale))
        lag_ms = float(np.percentile(trial.counted.lag_ms, 99))
        yield Check("sent late at 1,000/s, p99", lag_ms, 1.0, 0.0, "ms", _disturbed(trial))
        share = trial.activity.cpu_s / trial.activity.wall_s
        yield Check("share of a core at 1,000/s", share, 0.8, 0.0, "", _disturbed(trial))
        fast = _loaded(server, ClosedLoop(clients=8, seconds=5 * scale))
        click.echo(f"(closed loop, a server that answers at once: {fast.images_per_s:.0f}/s)", err=True)
    yield from _beside_mlperf(125.0, 75 * scale)


def _stall(scale: float) -> Iterator[Check]:
    with known_server(stall_every_s=STALL_EVERY_S, stall_s=STALL_S) as server:
        whole = STALL_EVERY_S * max(1, round(10 * scale))
        trial = _loaded(server, OpenLoop(rate_per_s=200.0, seconds=whole))
        p99_ms = quantiles_ms(trial.counted.latency_ms)["p99"]
        right_ms = 1e3 * (STALL_S - 0.01 * STALL_EVERY_S)
        yield Check("stall of 1 s in 10 s, open loop, p99", p99_ms, right_ms, 0.05, "ms", _disturbed(trial))
        one = _loaded(server, ClosedLoop(clients=1, seconds=2 * STALL_EVERY_S))
        slow = int(np.sum(one.counted.latency_ms > 500))
        yield Check("slow calls of one client in two such periods", slow, 2, 0.01, "", _disturbed(one))


def _waits(load: float, allowed: float, seconds: float) -> Iterator[Check]:
    """Mean wait in the queue: what is beyond a request's service, and beyond what an idle server takes to answer."""
    formula_ms = 1e3 * load * SERVICE_S / (2 * (1 - load))
    hours = poisson_arrivals_s(load / SERVICE_S, LONG_S, np.random.default_rng(0))
    drawn_ms = 1e3 * float(np.mean(waits_s(hours, SERVICE_S)))
    yield Check(f"M/D/1 at a load of {load}, {len(hours):,} drawn arrivals", drawn_ms, formula_ms, allowed, "ms")
    loop = OpenLoop(rate_per_s=load / SERVICE_S, seconds=seconds)
    with known_server() as server:
        idle = _loaded(server, OpenLoop(rate_per_s=100.0, seconds=max(1.0, seconds / 10)))
    with known_server(service_s=SERVICE_S) as server:
        trial = _loaded(server, loop)
    way_ms = float(np.mean(idle.counted.latency_ms))
    wait_ms = float(np.mean(trial.counted.latency_ms)) - 1e3 * SERVICE_S - way_ms
    arrivals_s = np.array([at_s for at_s, _ in opened(loop, 0.0, np.zeros(1, np.int64), SEED)])
    right_ms = 1e3 * float(np.mean(waits_s(arrivals_s, SERVICE_S)[arrivals_s >= loop.warm_up_s]))
    yield Check(f"M/D/1 at a load of {load}, measured", wait_ms, right_ms, allowed, "ms", _disturbed(trial))


def waits_s(arrivals_s: NDArray[np.float64], service_s: float) -> NDArray[np.float64]:
    """How long each of (n,) ascending arrivals waits for a server that takes `service_s` for each, one after the other
    (Lindley 1952)."""
    waits = np.empty(len(arrivals_s))
    free_s = 0.0
    for k, at_s in enumerate(arrivals_s.tolist()):
        start_s = max(free_s, at_s)
        waits[k] = start_s - at_s
        free_s = start_s + service_s
    return waits


def _beside_mlperf(rate_per_s: float, seconds: float) -> Iterator[Check]:
    with known_server(service_s=SERVICE_S) as server:
        theirs = run_mlperf(_conversation(server), rate_per_s, seconds)
        ours = _loaded(server, OpenLoop(rate_per_s=rate_per_s, seconds=seconds))
    p99_ms = quantiles_ms(ours.counted.latency_ms)["p99"]
    yield Check(
        "rate, beside mlcommons-loadgen", ours.images_per_s, theirs.completed_per_s, 0.1, "/s", _disturbed(ours)
    )
    yield Check("p99, beside mlcommons-loadgen", p99_ms, theirs.p99_ms, 0.1, "ms", _disturbed(ours))


def _loaded(server: Known, load: Load) -> Trial:
    return run_trial(_conversation(server), load, seed=SEED)


def _conversation(server: Known) -> Conversation:
    head = f"POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {REQUEST_BYTES}\r\n\r\n".encode()
    return Conversation(
        host="127.0.0.1", port=server.port, requests=[head + bytes(REQUEST_BYTES)], expected=[label_text("cat")],
        reader=LABEL, server_pid=server.pid,
    )  # fmt: skip


def _disturbed(trial: Trial) -> str:
    return "; ".join(why_invalid(trial))


if __name__ == "__main__":
    main()
