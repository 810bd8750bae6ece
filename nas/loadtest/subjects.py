"""What load is put on: bundles that are served here with several settings, and servers that run already."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from nas.loadtest.config import LoadConfig
from nas.networks.find import find_bundle
from nas.serving.process import running
from nas.serving.settings import ServingSettings

MODEL_PATH = "/v2/models/"


@dataclass(frozen=True, slots=True)
class Live:
    """A server that answers."""

    url: str
    pid: int | None
    """The root of its processes; None: not ours."""


Start = Callable[[], AbstractContextManager[Live]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One row of a load test."""

    name: str
    start: Start
    """A fresh server for each call, gone at the end of the block."""
    bundle: Path | None = None
    """Whose predictions are the right answers; None: what the server says when asked alone."""
    settings: ServingSettings | None = None
    """None: a server that runs already."""


def subjects_of(config: LoadConfig) -> list[Subject]:
    """All rows, in the order of the command line.

    Raises:
        UserError: no such bundle; settings that this machine has not the cores for.
    """
    if config.urls:
        bundle = find_bundle(config.bundles[0]) if config.bundles else None
        return [Subject(name=url, start=_running_already(url), bundle=bundle) for url in config.urls]
    return [
        served(name, find_bundle(name), settings, config.send) for name in config.bundles for settings in _settings(config)
    ]


def served(name: str, bundle: Path, settings: ServingSettings, send: str | None = None) -> Subject:
    """A bundle that a server of ours is started for."""

    @contextmanager
    def start() -> Iterator[Live]:
        with running(bundle, settings) as server:
            model = f"{MODEL_PATH}{server.name}" if send in ("pixels", "floats") else ""
            yield Live(f"{server.url}{model}", server.pid)

    return Subject(name=name, start=start, bundle=bundle, settings=settings)


def _settings(config: LoadConfig) -> Sequence[ServingSettings]:
    usual = ServingSettings()
    threads = config.threads or usual.threads
    return [
        replace(usual, replicas=replicas, threads=threads, batch=batch)
        for replicas in config.replicas or (usual.replicas,)
        for batch in config.batches or (usual.batch,)
    ]


def _running_already(url: str) -> Start:
    @contextmanager
    def start() -> Iterator[Live]:
        yield Live(url, None)

    return start
