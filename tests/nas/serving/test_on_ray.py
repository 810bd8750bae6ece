"""Ray Serve: the sentence where it is missing, and what it is asked for, by a stand-in that keeps what it was given.

The stand-in takes the place of the library, since its distribution is not among those of the tests.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

from nas.errors import MissingDependencyError
from nas.serving import on_ray
from nas.serving.settings import ServingSettings
from nas.serving.spec import ServerSpec
from tests.nas.serving.bundles import encoded

pytestmark = pytest.mark.xdist_group("serving")


def test_what_to_install_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError("No module named 'grpc'", name="grpc")

    monkeypatch.setattr(on_ray.importlib, "import_module", missing)
    with pytest.raises(MissingDependencyError, match="Ray Serve needs 'grpc'") as missed:
        on_ray.serve_module()
    assert "ray[serve]" in str(missed.value.hint)


def test_the_same_application_with_bounded_queues(bundles: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def deployment(**options: Any) -> Callable[[Any], Any]:
        asked["deployment"] = options
        return lambda replica: SimpleNamespace(bind=lambda: replica)

    stand_in = SimpleNamespace(
        start=lambda **options: asked.update(options),
        ingress=lambda build: lambda: build,
        deployment=deployment,
        run=lambda build, **options: asked.update(options, build=build),
        delete=lambda name: asked.update(deleted=name),
    )

    @contextmanager
    def connected(address: str) -> Iterator[None]:
        asked["address"] = address
        yield

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(on_ray, "serve_module", lambda: stand_in)
    monkeypatch.setattr("nas.executors.ray_cluster.connected", connected)
    monkeypatch.setattr(on_ray.time, "sleep", interrupted)
    spec = ServerSpec(
        folder=bundles["classification"], name="digits", host="127.0.0.1", port=8001,
        settings=ServingSettings(replicas=2, requests=99),
    )  # fmt: skip
    urls: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        on_ray.serve_on_ray(spec, "auto", urls.append)
    assert urls == ["http://127.0.0.1:8001"]
    assert asked["address"] == "auto"
    assert asked["http_options"] == {"host": "127.0.0.1", "port": 8001}
    assert asked["deployment"]["num_replicas"] == 2
    assert asked["deployment"]["max_ongoing_requests"] == asked["deployment"]["max_queued_requests"] == 99
    assert asked["route_prefix"] == "/"
    assert asked["deleted"] == "digits"
    answer = TestClient(asked["build"]()).post("/predict", content=encoded())
    assert answer.status_code == 200
