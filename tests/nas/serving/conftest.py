"""A bundle of each task and the application that serves it, in this process, made once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from nas.serving.app import Health, create_app
from nas.serving.checks import checked_bundle, served_name
from nas.serving.engine import Engine
from nas.serving.metrics import Metrics
from nas.serving.model import ServedModel
from nas.serving.settings import ServingSettings
from nas.serving.sizes import prepare_sizes
from tests.nas.serving.bundles import MADE

SETTINGS = ServingSettings(batch=4, body_bytes=4_000_000, images=8, deadline_ms=60_000)


@pytest.fixture(scope="session")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("served")
    return {task: make(folder / task) for task, make in MADE.items()}


@pytest.fixture(scope="session")
def engines(bundles: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Engine]]:
    made = {}
    for task, bundle in bundles.items():
        folder, receipt = checked_bundle(bundle)
        files = prepare_sizes(folder, receipt, SETTINGS.batch, tmp_path_factory.mktemp("sizes"))
        made[task] = Engine(ServedModel.open(folder, name=served_name(folder), threads=1, files=files), SETTINGS)
    yield made
    for engine in made.values():
        engine.close()


@pytest.fixture(scope="session")
def clients(engines: dict[str, Engine]) -> dict[str, TestClient]:
    """Task -> a client of its application. A defect of the server is an answer with status 500, as for any client."""
    return {
        task: TestClient(create_app(engine, Health(), Metrics()), raise_server_exceptions=False)
        for task, engine in engines.items()
    }
