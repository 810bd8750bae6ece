"""Replicas, threads and batch of a server, chosen by measurement: as many images per second as a limit allows."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nas.bundles.predictor import Predictor
from nas.bundles.receipt import read_receipt
from nas.deployment import CPU
from nas.errors import LimitMissedError
from nas.loadtest.endpoint import find_endpoint
from nas.loadtest.images import sample_picture
from nas.loadtest.messages import conversation_with
from nas.loadtest.outcome import PERCENTILE, Trial, hopeless_after, quantiles_ms
from nas.loadtest.plan import ClosedLoop, Load, OpenLoop
from nas.loadtest.rate_trials import search_rate
from nas.loadtest.subjects import served, settings_text
from nas.loadtest.trial import Conversation, run_trial
from nas.networks.find import find_bundle
from nas.progress import Progress
from nas.serving.checks import usable_cores, usual_settings
from nas.serving.settings import ServingSettings

BATCHES = (1, 4, 8)
CLIENTS = 16
"""Of the closed loops: two full batches of the largest size."""
SECONDS, WARM_UP_S = 3.0, 0.5
"""Of a closed loop, and of each rate that is tried unless it is so low that it takes longer to judge."""
FINALISTS, TRIALS, SERVERS = 3, 5, 2
"""Settings whose rate at the limit is searched, trials of each search, and fresh servers that it is searched with, in
turns: what one of them answers scatters by as much as settings differ."""
LEVEL = 0.97
"""Share of the best rate from which settings count as equally good, which is what servers with the same settings differ
by; the smaller batch answers sooner then. A lower one would spend what the choice may be below the best."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one choice of settings is worth."""

    settings: ServingSettings
    closed_per_s: float
    """Images per second of `CLIENTS` clients, each waiting for its answer."""
    at_slo_per_s: float | None = None
    """The largest rate of random requests that keeps the limit; None: none did, or it was not searched."""

    def to_json(self) -> dict[str, Any]:
        return {
            "settings": self.settings.to_json(),
            "closed_per_s": self.closed_per_s,
            "at_slo_per_s": self.at_slo_per_s,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """The choice, and what it was chosen from."""

    best: Measured
    finalists: tuple[Measured, ...]
    grid: tuple[Measured, ...]


def tune(bundle: str | Path, slo_ms: float, progress: Progress) -> ServingSettings:
    """The settings with which a bundle's server answers most images per second on this host, 99 % of them in time.

    Raises:
        UserError: a bundle that cannot be served here.
        LimitMissedError: no settings keep the limit.
    """
    return tuned(bundle, slo_ms, progress).best.settings


def tuned(bundle: str | Path, slo_ms: float, progress: Progress) -> Tuned:
    """`tune`, with all that was measured: a closed loop for every settings, and a search for the best of them."""
    folder = find_bundle(str(bundle))
    receipt = read_receipt(folder)
    usual = replace(usual_settings(receipt), drain_s=0.0)
    cores = len(usable_cores()) if receipt.deployment.device == CPU else 1
    offered = grid(usual, cores)
    with progress.stage("servers with other settings", total=len(offered)) as bar:
        measured = []
        for settings in offered:
            measured.append(Measured(settings=settings, closed_per_s=closed_rate(folder, settings)))
            bar.advance(1, note=f"{settings_text(settings.to_json())}: {measured[-1].closed_per_s:.0f} images/s")
    best = finalists(measured)
    nearest: list[Trial] = []
    rates: list[list[float | None]] = [[] for _ in best]
    with progress.stage(f"rates that keep {slo_ms:g} ms", total=len(best) * SERVERS) as bar:
        for k, entry in [*enumerate(best)] * SERVERS:
            rates[k].append(at_slo(folder, entry, slo_ms, nearest).at_slo_per_s)
            bar.advance(1, note=f"{settings_text(entry.settings.to_json())}: {rates[k][-1] or 0:.0f} images/s")
    split = [k for k, found in enumerate(rates) if disagree(found)]
    if split:  # one of them may have been disturbed
        with progress.stage("one more server where two disagree", total=len(split)) as bar:
            for k in split:
                rates[k].append(at_slo(folder, best[k], slo_ms, nearest).at_slo_per_s)
                bar.advance(1, note=f"{settings_text(best[k].settings.to_json())}: {rates[k][-1] or 0:.0f} images/s")
    best = [replace(entry, at_slo_per_s=together(found)) for entry, found in zip(best, rates, strict=True)]
    chosen = choose(best)
    if chosen is None:
        raise LimitMissedError(
            f"no settings let a server of '{bundle}' answer {PERCENTILE} % within {slo_ms:g} ms{_nearest(nearest)}",
            "ask for more --slo-ms, or serve a faster network",
        )
    # In use, a request that is late anyway is better refused; here its latency tells more.
    settings = replace(chosen.settings, drain_s=ServingSettings().drain_s, deadline_ms=slo_ms)
    return Tuned(best=replace(chosen, settings=settings), finalists=tuple(best), grid=tuple(measured))


def grid(usual: ServingSettings, cores: int, batches: Iterable[int] | None = None) -> list[ServingSettings]:
    """All ways to divide the cores among equal replicas, with each batch; `batches`: by default `BATCHES`."""
    return [
        replace(usual, replicas=cores // threads, threads=threads, batch=batch)
        for threads in range(1, cores + 1)
        if cores % threads == 0
        for batch in batches or BATCHES
    ]


def finalists(measured: Sequence[Measured], most: int | None = None) -> list[Measured]:
    """The fastest under full load, of equally fast ones those offered first; `most`: by default `FINALISTS`."""
    order = np.argsort([-entry.closed_per_s for entry in measured], kind="stable")
    return [measured[k] for k in order[: most or FINALISTS]]


def choose(searched: Sequence[Measured]) -> Measured | None:
    """Of those whose rate at the limit is about the highest, the one with the smallest batch, and of these the fastest;
    None where none keeps the limit."""
    keeping = [entry for entry in searched if entry.at_slo_per_s is not None]
    highest = max((entry.at_slo_per_s or 0.0 for entry in keeping), default=0.0)
    level = [entry for entry in keeping if (entry.at_slo_per_s or 0.0) >= LEVEL * highest]
    return min(level, key=lambda entry: (entry.settings.batch, -(entry.at_slo_per_s or 0.0)), default=None)


def together(rates: Sequence[float | None]) -> float | None:
    """The mean of rates of the same settings; None where not most of the servers kept the limit at some rate."""
    known = [rate for rate in rates if rate is not None]
    return float(np.mean(known)) if 2 * len(known) > len(rates) else None


def disagree(rates: Sequence[float | None]) -> bool:
    """Whether some servers kept the limit and others did not."""
    return 0 < sum(rate is None for rate in rates) < len(rates)


def closed_rate(bundle: Path, settings: ServingSettings) -> float:
    """Images per second of a fresh server with `CLIENTS` clients."""
    with served(str(bundle), bundle, settings).start() as live:
        conversation = _conversation(bundle, live.url, live.pid)
        load = ClosedLoop(clients=CLIENTS, seconds=SECONDS, warm_up_s=WARM_UP_S)
        return run_trial(conversation, load).images_per_s


def at_slo(bundle: Path, entry: Measured, slo_ms: float, trials: list[Trial] | None = None) -> Measured:
    """With the largest rate that a fresh server keeps the limit at; `trials` gets what was tried."""
    with served(str(bundle), bundle, entry.settings).start() as live:
        attempt = partial(_attempt, _conversation(bundle, live.url, live.pid), slo_ms)
        found = search_rate(entry.closed_per_s, SECONDS, attempt, TRIALS)
    if trials is not None:
        trials += found.searched
    return replace(entry, at_slo_per_s=found.rate_per_s)


def _nearest(trials: Sequence[Trial]) -> str:
    """How near the best trial came, where that can be told: where too many were refused, it has no percentile."""
    p99_ms = min((quantiles_ms(trial.counted.latency_ms)["p99"] for trial in trials), default=math.inf)
    return f": the nearest took {p99_ms:.3g} ms" if math.isfinite(p99_ms) else ""


def _attempt(conversation: Conversation, slo_ms: float, load: Load, seed: int) -> Trial:
    assert isinstance(load, OpenLoop)
    most_late = hopeless_after(load)
    return run_trial(conversation, load, slo_ms=slo_ms, most_late=most_late, seed=seed)


def _conversation(bundle: Path, url: str, pid: int | None) -> Conversation:
    return conversation_with(find_endpoint(url), sample_picture(bundle).pictures, Predictor.open(bundle), pid)
