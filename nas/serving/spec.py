"""What a server's processes tell each other: one JSON document per line over a pair of sockets."""

import asyncio
import json
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from nas.serving.metrics_folder import FOLDER
from nas.serving.settings import ServingSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """A server to be started, its bundle checked already."""

    folder: Path
    """Of the bundle."""
    name: str
    """What clients call the model."""
    host: str
    port: int
    """0: any free one."""
    settings: ServingSettings

    def to_json(self) -> dict[str, Any]:
        return {
            **{"folder": str(self.folder), "name": self.name, "host": self.host, "port": self.port},
            "settings": self.settings.to_json(),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        return cls(
            **{name: document[name] for name in ("name", "host", "port")},
            folder=Path(document["folder"]),
            settings=ServingSettings.from_json(document["settings"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSpec:
    """A process of a server."""

    server: ServerSpec
    """With the port that all share."""
    cores: tuple[int, ...]
    """Processors that are its own; empty: any."""
    files: Mapping[int, Path]
    """Images per call -> the network for so many."""

    def to_json(self) -> dict[str, Any]:
        files = [[size, str(path)] for size, path in self.files.items()]
        return {"server": self.server.to_json(), "cores": list(self.cores), "files": files}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        return cls(
            server=ServerSpec.from_json(document["server"]),
            cores=tuple(document["cores"]),
            files={int(size): Path(path) for size, path in document["files"]},
        )


def line(document: Mapping[str, Any]) -> bytes:
    """A document as it is sent."""
    return json.dumps(document).encode() + b"\n"


def command(module: str, end: socket.socket, metrics: Path | None = None) -> tuple[list[str], dict[str, Any]]:
    """Arguments and options for starting `python -m module` as a process that gets `end` of a pair of sockets."""
    project = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(part for part in (project, os.environ.get("PYTHONPATH")) if part)
    environment = {**os.environ, "PYTHONPATH": path, **({FOLDER: str(metrics)} if metrics else {})}
    # A session of its own: an interrupt from the keyboard is for the first process, which ends the others.
    options = {"env": environment, "pass_fds": (end.fileno(),), "start_new_session": True}
    return [sys.executable, "-m", module, str(end.fileno())], options


async def connect(end: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The streams of one end of a pair of sockets."""
    return await asyncio.open_connection(sock=end)
