"""The same application on a cluster: a deployment of Ray Serve (https://docs.ray.io/en/latest/serve/).

Ray's proxy takes the requests and hands them to replicas on any machine, which read the bundle from a path that all
see. Every request pays for that hop; on one machine `nas.serving.supervisor` does without.
"""

import http.client
import importlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from nas.errors import MissingDependencyError
from nas.serving.spec import ServerSpec

if TYPE_CHECKING:
    from starlette.applications import Starlette

INSTALL = "pip install 'ray[serve]'"
CALLS = 50
"""Of which the median is what a request pays."""
ANSWER_S = 10.0
LOOK_S = 1.0
"""Seconds between two looks whether the cluster still serves."""


def serve_module() -> Any:
    """`ray.serve`. Raises MissingDependencyError where Ray, or what its Serve needs besides, is not installed."""
    try:
        return importlib.import_module("ray.serve")
    except ModuleNotFoundError as error:
        raise MissingDependencyError(f"Ray Serve needs {error.name!r}, which", INSTALL) from error


def serve_on_ray(spec: ServerSpec, address: str, on_ready: Callable[[str, float | None], None]) -> None:
    """Serve a checked bundle on a cluster until an interrupt, and take it down again.

    Args:
        spec: the server; its replicas are those of Ray's deployment, its host and port those of Ray's proxy.
        address: of the cluster, or `auto` for the one that this machine belongs to.
        on_ready: is told where the application is, and what `round_trip_ms` says, once.

    Raises:
        MissingDependencyError: Ray Serve is not installed.
        UserError: there is no such cluster.
    """
    serve = serve_module()
    from nas.executors.ray_cluster import connected

    with connected(address):
        settings = spec.settings
        serve.start(http_options={"host": spec.host, "port": spec.port})
        options: dict[str, Any] = {
            "name": spec.name,
            "num_replicas": settings.replicas,
            "ray_actor_options": {"num_cpus": settings.threads},
            "max_ongoing_requests": settings.requests,  # its default of 5 would leave the batches empty
            "max_queued_requests": settings.requests,  # by default it queues without bound
            "graceful_shutdown_timeout_s": settings.drain_s + settings.deadline_ms / 1e3,
        }
        deployment = serve.deployment(**options)(serve.ingress(lambda: replica_app(spec))())
        serve.run(deployment.bind(), name=spec.name, route_prefix="/")
        on_ready(f"http://{spec.host}:{spec.port}", round_trip_ms(spec.host, spec.port))
        try:
            while True:
                time.sleep(LOOK_S)
        finally:
            serve.delete(spec.name)


def round_trip_ms(host: str, port: int, calls: int = CALLS) -> float | None:
    """What a request pays before the network has its turn, as one client sees it: the median of `calls` that a replica
    answers without decoding or running anything; None where they are not answered."""
    connection = http.client.HTTPConnection(host, port, timeout=ANSWER_S)
    taken_ms = []
    try:
        for _ in range(calls):
            start = time.perf_counter()
            connection.request("GET", "/v2/health/live")
            answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                return None
            taken_ms.append(1e3 * (time.perf_counter() - start))
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return median(taken_ms)


def replica_app(spec: ServerSpec) -> "Starlette":
    """The application of one of Ray's replicas, loaded and checked on the machine where it runs.

    Raises:
        UserError: that machine cannot serve the bundle.
    """
    from nas.serving.app import Health, create_app
    from nas.serving.checks import checked_bundle
    from nas.serving.engine import Engine
    from nas.serving.metrics import Metrics
    from nas.serving.model import ServedModel
    from nas.serving.sizes import prepare_sizes

    folder, receipt = checked_bundle(spec.folder)
    with tempfile.TemporaryDirectory(prefix="nas-serve-") as scratch:  # read once, when they are loaded
        files = prepare_sizes(folder, receipt, spec.settings.batch, Path(scratch))
        model = ServedModel.open(folder, name=spec.name, threads=spec.settings.threads, files=files)
    return create_app(Engine(model, spec.settings), Health(), Metrics())
