"""Starting a server: how long a slow network is called before it serves, and replicas that cannot start."""

import asyncio
import socket
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nas.errors import UserError
from nas.serving import model as module
from nas.serving import supervisor as supervising
from nas.serving.engine import Engine
from nas.serving.settings import ServingSettings
from nas.serving.spec import ServerSpec
from nas.serving.supervisor import Supervisor

S_PER_IMAGE = 0.05


def test_a_slow_network_is_not_called_for_minutes(engines: dict[str, Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    model, now, calls = engines["classification"].model, [0.0], Counter[int]()
    true = model.sessions[1]

    def run(inputs: Any) -> Any:
        now[0] += S_PER_IMAGE * len(inputs)
        calls[len(inputs)] += 1
        return np.repeat(true.run(inputs[:1]), len(inputs), axis=0)

    sizes = [1, 2, 4, 8, 16, 32, 64]
    slow: Any = SimpleNamespace(run=run)
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    assert replace(model, sessions=dict.fromkeys(sizes, slow)).warm_up() == pytest.approx(S_PER_IMAGE)
    assert sorted(calls) == sizes
    assert min(calls.values()) == calls[64] == 2
    assert 20 <= calls[1] <= 41
    assert now[0] < 30


def test_a_replica_that_ends_before_it_serves_is_started_twice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lives = []

    async def one_life(_: Supervisor, slot: int) -> str:
        lives.append(slot)
        assert len(lives) < 5, "it is started again and again"
        return "ended with code 1"

    monkeypatch.setattr(Supervisor, "_one_life", one_life)
    spec = ServerSpec(folder=tmp_path, name="x", host="127.0.0.1", port=1, settings=ServingSettings())
    with pytest.raises(UserError, match="replica 0 ended with code 1 before it served, 2 times in a row"):
        asyncio.run(Supervisor(spec, [()], {}, tmp_path).run(lambda: None))
    assert lives == [0, 0]


def test_a_replica_that_is_being_started_when_the_server_ends_is_told_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spec = ServerSpec(folder=tmp_path, name="x", host="127.0.0.1", port=1, settings=ServingSettings())
    supervisor = Supervisor(spec, [()], {}, tmp_path)

    def command(_: str, end: socket.socket, __: Path) -> tuple[list[str], dict[str, Any]]:
        supervisor.stop()  # of no process yet
        return [sys.executable, "-c", "import time; time.sleep(600)"], {"pass_fds": (end.fileno(),)}

    monkeypatch.setattr(supervising, "command", command)
    asyncio.run(asyncio.wait_for(supervisor.run(lambda: None), 30))
