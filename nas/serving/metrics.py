"""Counts and times for Prometheus (https://prometheus.io/docs/instrumenting/exposition_formats/).

Several processes share one port, so whichever answers `/metrics` speaks for all: each writes its numbers into files of
one folder, named by the environment variable `FOLDER` before the first import of `prometheus_client`, and they are
added up there (its multiprocess mode). What a process that was killed had counted stays counted.
"""

import os
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    multiprocess,
)

from nas.serving.metrics_folder import FOLDER

TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_IMAGES = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """The numbers of one process."""

    def __init__(self) -> None:
        self._own = CollectorRegistry()
        own: dict[str, Any] = {"registry": self._own}
        live: dict[str, Any] = {**own, "multiprocess_mode": "livesum"}
        self._requests = Counter("nas_requests", "Requests answered or refused.", ("route", "code"), **own)
        self._seconds = Histogram(
            "nas_request_seconds", "From a request's head to its answer.", ("route",), buckets=_SECONDS, **own
        )
        self._counted: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        phase = Histogram(
            "nas_phase_seconds", "Of one image: decoding, waiting, and the network's call.", ("phase",),
            buckets=_SECONDS, **own,
        )  # fmt: skip
        self._phases = [phase.labels(name) for name in ("decode", "queue", "infer")]
        self._images = Histogram("nas_call_images", "Images in the call, told for each.", buckets=_IMAGES, **own)
        self.waiting = Gauge("nas_waiting_images", "Images in hand.", **live)
        self.replicas = Gauge("nas_replicas", "Replicas that serve.", **live)
        self.memory = Gauge("nas_memory_bytes", "Resident memory of all replicas.", **live)

    def request(self, route: str, code: int, seconds: float) -> None:
        """A request was answered with the status `code`."""
        counted = self._counted.get((route, code))
        if counted is None:  # looking a label up costs as much as counting
            counted = self._requests.labels(route, str(code)), self._seconds.labels(route)
            self._counted[route, code] = counted
        counted[0].inc()
        counted[1].observe(seconds)

    def image(self, decode_s: float, queue_s: float, infer_s: float, images: int) -> None:
        """An image was answered, in a call of the network with `images`."""
        for phase, seconds in zip(self._phases, (decode_s, queue_s, infer_s), strict=True):
            if seconds:  # there is nothing to decode in a tensor
                phase.observe(seconds)
        self._images.observe(images)

    def text(self) -> bytes:
        """The numbers of all processes that share the folder, or of this one where there is none."""
        if not os.environ.get(FOLDER):
            return generate_latest(self._own)
        together = CollectorRegistry()
        multiprocess.MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return generate_latest(together)
