"""Ray Serve: the sentence where it is missing, and what it is asked for, by a stand-in that keeps what it was given.

The stand-in takes the place of the library, since its distribution is not among those of the tests.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

from nas.cli.main import run
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
    said: list[tuple[str, float | None]] = []
    monkeypatch.setattr(on_ray, "round_trip_ms", lambda host, port: 2.5 if (host, port) == ("127.0.0.1", 8001) else 0)
    with pytest.raises(KeyboardInterrupt):
        on_ray.serve_on_ray(spec, "auto", lambda url, hop_ms: said.append((url, hop_ms)))
    assert said == [("http://127.0.0.1:8001", 2.5)]
    assert asked["address"] == "auto"
    assert asked["http_options"] == {"host": "127.0.0.1", "port": 8001}
    assert asked["deployment"]["num_replicas"] == 2
    assert asked["deployment"]["max_ongoing_requests"] == asked["deployment"]["max_queued_requests"] == 99
    assert asked["route_prefix"] == "/"
    assert asked["deleted"] == "digits"
    answer = TestClient(asked["build"]()).post("/predict", content=encoded())
    assert answer.status_code == 200


def test_what_a_request_pays_is_measured_and_said(
    bundles: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Slow(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            time.sleep(0.02)
            self.send_response(200 if self.path == "/v2/health/live" else 404)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Slow) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        found = on_ray.round_trip_ms("127.0.0.1", server.server_port, calls=3)
        server.shutdown()
        thread.join(20)
    assert found is not None
    assert found >= 20
    assert on_ray.round_trip_ms("127.0.0.1", server.server_port, calls=3) is None, "nobody is there any more"
    monkeypatch.setattr(on_ray, "serve_on_ray", lambda spec, address, say: say("http://head:8000", 2.54))
    line = ["serve", str(bundles["classification"]), "--ray", "auto", "--quiet"]
    assert run(line) == 0
    assert "at http://head:8000" in (text := capsys.readouterr().out)
    assert "HTTP and Ray's proxy take 2.5 ms" in text
    assert run([*line, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ray_ms"] == 2.54
