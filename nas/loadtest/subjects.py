"""What load is put on: bundles that are served here with several settings, and servers that run already."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nas.bundles.receipt import read_receipt
from nas.loadtest.config import LoadConfig
from nas.networks.find import find_bundle
from nas.serving.checks import usable_cores, usual_settings
from nas.serving.process import running
from nas.serving.settings import ServingSettings, replica_cores
from nas.serving.stored import load_stored

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

    @property
    def text(self) -> str:
        """The name, with what distinguishes it from others of that name."""
        return self.name if self.settings is None else f"{self.name} ({settings_text(self.settings.to_json())})"


def settings_text(settings: Mapping[str, Any]) -> str:
    """`2 x 1, batch 4`: replicas, threads of each, images of a call at most."""
    return f"{settings['replicas']} x {settings['threads']}, batch {settings['batch']}"


def subjects_of(config: LoadConfig) -> list[Subject]:
    """All rows, in the order of the command line.

    Raises:
        UserError: no such bundle; settings that this machine has not the cores for.
    """
    if config.urls:
        bundle = find_bundle(config.bundles[0]) if config.bundles else None
        return [Subject(name=url, start=_running_already(url), bundle=bundle) for url in config.urls]
    found = []
    for name in config.bundles:
        bundle = find_bundle(name)
        for settings in _settings(config, _usual(bundle)):
            replica_cores(settings, usable_cores())
            found.append(served(name, bundle, settings, config.send))
    return found


def served(name: str, bundle: Path, settings: ServingSettings, send: str | None = None) -> Subject:
    """A bundle that a server of ours is started for."""

    @contextmanager
    def start() -> Iterator[Live]:
        with running(bundle, settings) as server:
            model = f"{MODEL_PATH}{server.name}" if send in ("pixels", "floats") else ""
            yield Live(f"{server.url}{model}", server.pid)

    return Subject(name=name, start=start, bundle=bundle, settings=settings)


def _usual(bundle: Path) -> ServingSettings:
    """As the bundle would be served on this host: as was measured for it, else as suits it."""
    known = load_stored(bundle)
    return known.settings if known is not None else usual_settings(read_receipt(bundle))


def _settings(config: LoadConfig, usual: ServingSettings) -> Sequence[ServingSettings]:
    """All that are asked for. Of threads, where they are not, as many as the most replicas leave for each, so that rows
    differ in their replicas alone; of replicas as many as fit; the rest is as usual."""
    cores = len(usable_cores())
    threads = config.threads or max(1, min(usual.threads, cores // max(config.replicas, default=1)))
    fitting = usual.replicas if threads == usual.threads else max(1, cores // threads)
    return [
        replace(
            usual,
            replicas=replicas,
            threads=threads,
            batch=batch,
            deadline_ms=ServingSettings().deadline_ms,  # how late an answer is tells more than that it was refused
            drain_s=0.0,  # nobody else will come
        )
        for replicas in config.replicas or (fitting,)
        for batch in config.batches or (usual.batch,)
    ]


def _running_already(url: str) -> Start:
    @contextmanager
    def start() -> Iterator[Live]:
        yield Live(url, None)

    return start
