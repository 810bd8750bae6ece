"""The server scenario of MLPerf's own load generator (`mlcommons-loadgen`), on a server that speaks HTTP."""

import queue
import re
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nas.loadtest.response import Response
from nas.loadtest.trial import Conversation

SENDERS = 64
"""Threads with a connection each: more requests at once than any of the compared loads has under way."""
_RATE = re.compile(r"(?:Completed|Scheduled) samples per second\s*:\s*([\d.]+)")
_P99 = re.compile(r"99\.00 percentile latency \(ns\)\s*:\s*(\d+)")


@dataclass(frozen=True, slots=True)
class Found:
    """What LoadGen says of a run."""

    scheduled_per_s: float
    completed_per_s: float
    p99_ms: float


def run_mlperf(conversation: Conversation, rate_per_s: float, seconds: float) -> Found:
    """Poisson arrivals by LoadGen for `seconds`; every request is the conversation's first."""
    import mlperf_loadgen as loadgen

    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def issue(samples: Sequence[Any]) -> None:
        for sample in samples:
            waiting.put(sample.id)

    settings = loadgen.TestSettings()
    settings.scenario, settings.mode = loadgen.TestScenario.Server, loadgen.TestMode.PerformanceOnly
    settings.server_target_qps, settings.server_target_latency_ns = rate_per_s, 10**9
    settings.min_duration_ms = settings.max_duration_ms = round(1e3 * seconds)
    settings.min_query_count = 1
    senders = [threading.Thread(target=_send, args=(conversation, waiting, loadgen)) for _ in range(SENDERS)]
    for sender in senders:
        sender.start()
    sut = loadgen.ConstructSUT(issue, _nothing)
    samples = loadgen.ConstructQSL(1, 1, _nothing_of, _nothing_of)
    with TemporaryDirectory(prefix="mlperf-") as folder:
        logs = loadgen.LogSettings()
        logs.log_output.outdir = folder
        logs.enable_trace = False
        loadgen.StartTestWithLogSettings(sut, samples, settings, logs)
        summary = (Path(folder) / "mlperf_log_summary.txt").read_text(encoding="utf-8")
    loadgen.DestroyQSL(samples)
    loadgen.DestroySUT(sut)
    for _ in senders:
        waiting.put(None)
    for sender in senders:
        sender.join()
    return parse_summary(summary)


def parse_summary(text: str) -> Found:
    """The figures in `mlperf_log_summary.txt`; raises ValueError where it has them not."""
    rates, p99 = [float(rate) for rate in _RATE.findall(text)], _P99.search(text)
    if not rates or p99 is None:
        raise ValueError(f"no rate or percentile in LoadGen's summary: {text[:500]}")
    return Found(rates[0], rates[-1], int(p99[1]) / 1e6)


def _send(conversation: Conversation, waiting: "queue.SimpleQueue[Any]", loadgen: Any) -> None:
    with socket.create_connection((conversation.host, conversation.port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while (number := waiting.get()) is not None:
            connection.sendall(conversation.requests[0])
            response = Response()
            while not response.feed(connection.recv(1 << 16)):
                pass
            loadgen.QuerySamplesComplete([loadgen.QuerySampleResponse(number, 0, 0)])


def _nothing() -> None:
    pass


def _nothing_of(_: Sequence[int]) -> None:
    pass
