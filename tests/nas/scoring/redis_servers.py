"""A fresh Redis server on 127.0.0.1 for tests, which can be killed and started again; skipped where there is none."""

import importlib.util
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

PASSWORD = "s3cret-word"
START_S = 60.0


@dataclass
class RedisServer:
    folder: Path
    port: int
    _process: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)

    def url(self, stream: str) -> str:
        return f"redis://:{PASSWORD}@127.0.0.1:{self.port}/{stream}"

    def start(self) -> None:
        options = {
            "port": self.port, "bind": "127.0.0.1", "dir": self.folder, "requirepass": PASSWORD, "save": "",
            "appendonly": "yes", "appendfsync": "always", "daemonize": "no",
        }  # fmt: skip
        command = ["redis-server", *(str(part) for name, value in options.items() for part in (f"--{name}", value))]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + START_S
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), 1):
                    return
            except OSError:
                assert self._process.poll() is None, (self.folder / "log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.02)

    def kill(self) -> None:
        """`kill -9`."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextmanager
def redis_server() -> Iterator[RedisServer]:
    if shutil.which("redis-server") is None:
        pytest.skip("Redis is not installed (Debian: apt install redis-server)")
    if importlib.util.find_spec("redis") is None:
        pytest.skip("the driver redis is not installed (pip install 'hardware-nas[redis]')")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="nas-redis-") as folder:
        server = RedisServer(Path(folder), port)
        server.start()
        try:
            yield server
        finally:
            server.kill()
