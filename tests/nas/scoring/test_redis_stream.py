"""Images from a Redis stream: each has one result, whatever dies."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis

from nas.bundles.predictor import Predictor
from nas.cli.main import run
from nas.errors import UserError
from nas.progress import SilentProgress
from nas.scoring import redis_server as server_module
from nas.scoring import redis_stream as module
from nas.scoring.redis_server import PASSWORD_VARIABLE, Server, parse_url
from nas.scoring.redis_stream import Producer, RedisSource, StreamItem, open_stream
from nas.scoring.rows import Row, row_of_json
from nas.scoring.scorer import Item, score
from tests.nas.scoring.conftest import write_images
from tests.nas.scoring.redis_servers import PASSWORD, RedisServer, redis_server

pytestmark = pytest.mark.xdist_group("scoring")


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with redis_server() as started:
        yield started


@pytest.fixture
def stream(server: RedisServer, request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    return str(request.node.name)


@pytest.fixture
def client(server: RedisServer) -> Any:
    return redis.Redis(port=server.port, password=PASSWORD, decode_responses=True)


@pytest.fixture
def found_dead_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dead are found at once."""
    monkeypatch.setattr(module, "IDLE_S", 0.0)
    monkeypatch.setattr(module, "CARE_S", 0.0)


def opened(server: RedisServer, stream: str) -> RedisSource:
    """A worker that never comes to an orderly end."""
    return RedisSource(Server(parse_url(server.url(stream))), f"{stream}.results")


def scored(items: Sequence[StreamItem]) -> list[Row]:
    return [Row(path=item.name, label=bytes(item.source).decode(), score=0.5) for item in items]  # type: ignore[arg-type]


def results_of(client: Any, stream: str) -> list[dict[str, str]]:
    return [fields for _, fields in client.xrange(f"{stream}.results")]


def test_an_image_goes_in_once_and_comes_out_once(server: RedisServer, stream: str, client: Any) -> None:
    producer = Producer(server.url(stream))
    assert [producer.send(f"{k}", f"image {k}".encode()) for k in (0, 1, 0, 2, 1)] == [True, True, False, True, False]
    source = opened(server, stream)
    assert not source.empty()
    items = [*source.take(2), *source.take(10)]
    assert [(item.name, item.source) for item in items] == [(f"{k}", f"image {k}".encode()) for k in range(3)]
    assert source.take(10) == []
    source.finish(items, scored(items))
    source.finish(items, scored(items))  # as if the first answer of the server had been lost
    assert source.empty()
    results = results_of(client, stream)
    assert [(r["id"], r["label"], r["score"], "error" in r) for r in results] == [
        (f"{k}", f"image {k}", "0.5", False) for k in range(3)
    ]
    assert [row_of_json(json.loads(r["row"])) for r in results] == scored(items)
    assert client.xlen(stream) == 0, "what is done takes no room"
    assert not producer.send("0", b"image 0"), "it was sent before"
    client.xadd(stream, {"id": "0", "image": "image 0"})  # by somebody who does not ask
    items = source.take(10)
    source.finish(items, scored(items))
    assert len(results_of(client, stream)) == 3
    assert source.empty()


def test_what_a_dead_worker_had_is_taken_over_alone(
    server: RedisServer, stream: str, client: Any, found_dead_at_once: None
) -> None:
    producer = Producer(server.url(stream))
    for k in range(4):
        producer.send(f"{k}", b"x")
    assert len(opened(server, stream).take(3)) == 3, "and this worker dies"
    source = opened(server, stream)
    taken = [source.take(10) for _ in range(3)]
    assert [[item.name for item in items] for items in taken] == [["0"], ["0"], ["1"]], "0 is buried after the third"
    assert source.buried == 1
    (letter,) = client.xrange(f"{stream}.dead")
    assert letter[1]["id"] == "0"
    assert letter[1]["image"] == "x"
    assert letter[1]["reason"] == "it was delivered 3 times, and whoever had it died"
    source.finish(taken[2], scored(taken[2]))
    rest: list[StreamItem] = []
    for _ in range(2):
        items = source.take(10)
        source.finish(items, scored(items))
        rest += items
    assert {item.name for item in rest} == {"2", "3"}
    assert source.empty()
    assert Counter(r["id"] for r in results_of(client, stream)) == Counter("123")


def test_what_is_under_way_is_not_taken_over(server: RedisServer, stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_S", 0.3)
    monkeypatch.setattr(module, "CARE_S", 0.0)
    Producer(server.url(stream)).send("a", b"x")
    slow, other = opened(server, stream), opened(server, stream)
    items = slow.take(1)
    for _ in range(5):
        time.sleep(0.1)
        slow.look_after()
        assert other.take(1) == []
    time.sleep(0.4)
    assert [item.name for item in other.take(1)] == ["a"]
    slow.finish(items, scored(items))
    assert slow.empty()


def test_whoever_leaves_takes_nothing_along(server: RedisServer, stream: str, client: Any) -> None:
    with open_stream(server.url(stream), progress=SilentProgress()):
        pass
    Producer(server.url(stream)).send("a", b"x")
    with open_stream(server.url(stream), progress=SilentProgress()) as source:
        assert len(source.take(1)) == 1, "and it is never finished"
    assert [(c["name"], c["pending"]) for c in client.xinfo_consumers(stream, "nas")] == [(source._consumer, 1)]


def test_entries_without_an_image_are_buried(server: RedisServer, stream: str, client: Any) -> None:
    client.xadd(stream, {"id": "a", "picture": "x"})
    source = opened(server, stream)
    assert source.take(1) == []
    assert source.empty()
    ((_, letter),) = client.xrange(f"{stream}.dead")
    assert letter["reason"] == "it has no field 'image'"
    assert letter["picture"] == "x"


def test_producers_wait_where_the_stream_is_full(server: RedisServer, stream: str) -> None:
    producer = Producer(server.url(stream), most_waiting=1)
    producer.send("a", b"x")
    with pytest.raises(UserError, match="has 1 entries that nobody scores"):
        producer.send("b", b"x", patience_s=0.1)
    source = opened(server, stream)

    def consume() -> None:
        time.sleep(0.2)
        items = source.take(1)
        source.finish(items, scored(items))

    thread = threading.Thread(target=consume)
    thread.start()
    assert producer.send("b", b"x")
    thread.join()


def test_ids_are_forgotten_in_the_end(
    server: RedisServer, stream: str, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    Producer(server.url(stream)).send("a", b"x")
    source = opened(server, stream)
    source.look_after()
    assert client.zcard(f"{stream}.sent") == 1
    monkeypatch.setattr(module, "FORGET_S", 0.0)
    monkeypatch.setattr(module, "REMEMBER_S", -10)
    source.look_after()
    assert client.zcard(f"{stream}.sent") == 0


def test_a_server_that_may_lose_entries_is_refused(server: RedisServer, stream: str, client: Any) -> None:
    for name, value, why in (
        ("appendonly", "no", r"it writes no log \(appendonly is no\)"),
        ("maxmemory-policy", "allkeys-lru", "maxmemory-policy is allkeys-lru"),
    ):
        before = client.config_get(name)[name]
        client.config_set(name, value)
        try:
            with (
                pytest.raises(UserError, match=why) as error,
                open_stream(server.url(stream), progress=SilentProgress()),
            ):
                pass
            assert PASSWORD not in str(error.value)
            with open_stream(server.url(stream), may_lose=True, progress=SilentProgress()):
                pass
        finally:
            client.config_set(name, before)


def test_a_server_without_memory_is_one_sentence(server: RedisServer, stream: str, client: Any) -> None:
    producer = Producer(server.url(stream))
    client.config_set("maxmemory", "1")
    try:
        with pytest.raises(UserError, match="has no memory left"):
            producer.send("a", b"x")
    finally:
        client.config_set("maxmemory", "0")
    assert producer.send("a", b"x")


class Notes(SilentProgress):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_what_a_loss_of_power_costs_is_said(server: RedisServer, stream: str, client: Any) -> None:
    notes = Notes()
    with open_stream(server.url(stream), progress=notes):
        pass
    assert notes.notes == []
    client.config_set("appendfsync", "everysec")
    try:
        with open_stream(server.url(stream), progress=notes):
            pass
    finally:
        client.config_set("appendfsync", "always")
    assert "loss of power" in notes.notes[0]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("http://:s3cret-word@host/stream", "begins with 'http'"),
        ("redis://:s3cret-word@host", "host:6379 names no stream"),
        ("redis://:s3cret-word@host:port/stream", "is no URL"),
        ("images", "begins with no protocol"),
    ],
)
def test_wrong_addresses(text: str, why: str) -> None:
    with pytest.raises(UserError, match=why.replace("no protocol", "'no protocol'")) as error:
        parse_url(text)
    assert PASSWORD not in f"{error.value} {error.value.hint}"


def test_passwords_are_not_shown(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    url = parse_url("rediss://me:s3cret-word@host:1/a%2Fb?db=2")
    assert str(url) == "rediss://me@host:1/a/b?db=2"
    assert PASSWORD not in repr(url)
    assert (url.user, url.password, url.stream, url.db, url.encrypted) == ("me", PASSWORD, "a/b", 2, True)
    monkeypatch.setenv(PASSWORD_VARIABLE, "another")
    assert parse_url("redis://host/s").password == "another"
    for address in (f"redis://127.0.0.1:{server.port}/s", f"redis://:wrong@127.0.0.1:{server.port}/s"):
        with (
            pytest.raises(UserError, match="no Redis server answers at redis://127"),
            open_stream(address, progress=SilentProgress()),
        ):
            pass
    for results in ("s", "redis://elsewhere/x"):
        with (
            pytest.raises(UserError, match="another stream of the same server"),
            open_stream(server.url("s"), results, progress=SilentProgress()),
        ):
            pass


@pytest.mark.slow
def test_a_server_that_is_killed(stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "PAUSE_S", 0.02)
    with redis_server() as server:
        producer, source = Producer(server.url(stream)), opened(server, stream)
        stop = threading.Event()

        def kill() -> None:
            while not stop.wait(0.15):
                server.kill()
                time.sleep(0.1)
                server.start()

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            for k in range(60):
                producer.send(f"{k}", b"x")
                items = source.take(10)
                source.finish(items, scored(items))
                time.sleep(0.01)
            while not source.empty():
                items = source.take(10)
                source.finish(items, scored(items))
                if not items:  # delivered, and the answer of the server was lost: ours again after a while
                    monkeypatch.setattr(module, "IDLE_S", 0.0)
                    monkeypatch.setattr(module, "CARE_S", 0.0)
        finally:
            stop.set()
            killer.join()
        client = redis.Redis(port=server.port, password=PASSWORD, decode_responses=True)
        assert Counter(r["id"] for r in results_of(client, stream)) == Counter(f"{k}" for k in range(60))
        server.kill()
        monkeypatch.setattr(server_module, "PATIENCE_S", 0.1)
        with pytest.raises(UserError, match="does not answer any more"):
            source.empty()


@pytest.mark.slow
def test_a_server_that_is_gone_for_a_while(stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a quarter of the time that is waited for it, as 30 s are of 120; then all go on where they were."""
    gone_s = 1.0
    assert server_module.PATIENCE_S >= 4 * 30
    monkeypatch.setattr(server_module, "PATIENCE_S", 4 * gone_s)
    with redis_server() as server:
        producer, source = Producer(server.url(stream)), opened(server, stream)
        for k in range(4):
            producer.send(f"{k}", b"x")
        had = source.take(2)
        server.kill()
        gone_since = time.monotonic()
        sent: list[bool] = []
        sending = threading.Thread(target=lambda: sent.append(producer.send("4", b"x")))
        coming_back = threading.Timer(gone_s, server.start)
        for thread in (sending, coming_back):
            thread.start()
        source.finish(had, scored(had))  # waits until it is there again
        assert time.monotonic() - gone_since >= gone_s
        sending.join(20)
        coming_back.join(20)
        assert sent == [True]
        while not source.empty():
            items = source.take(10)
            source.finish(items, scored(items))
        client = redis.Redis(port=server.port, password=PASSWORD, decode_responses=True)
        assert Counter(r["id"] for r in results_of(client, stream)) == Counter("01234")


@pytest.mark.slow
def test_the_command(
    server: RedisServer, stream: str, client: Any, bundle: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    paths = write_images(tmp_path, 60)
    producer = Producer(server.url(stream))
    for path in paths:
        producer.send(path.name, path.read_bytes())
    producer.send("text", b"hello")
    line = ["predict", str(bundle), "--from", server.url(stream), "--to", f"{stream}.results", "--workers", "1"]
    process = subprocess.Popen([sys.executable, "-m", "nas", *line], start_new_session=True, stderr=subprocess.PIPE)
    while client.xlen(f"{stream}.results") == 0:
        assert process.poll() is None, process.communicate()[1].decode()
        time.sleep(0.001)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    monkeypatch.setattr(module, "IDLE_S", 0.1)
    assert run([*line, "--until-empty", "--json"]) == 0
    text = capsys.readouterr()
    assert PASSWORD not in text.out + text.err
    document = json.loads(text.out)
    assert (document["dead"], document["from"]) == (0, f"redis://127.0.0.1:{server.port}/{stream}")
    results = results_of(client, stream)
    assert Counter(r["id"] for r in results) == Counter([*(path.name for path in paths), "text"])
    rows = {r["id"]: row_of_json(json.loads(r["row"])) for r in results}
    expected = score(Predictor.open(bundle, threads=1), [Item(path.name, str(path)) for path in paths])
    assert [rows[path.name] for path in paths] == expected
    assert "cannot read image" in next(r["error"] for r in results if r["id"] == "text")
    assert run([*line, "--until-empty", "--restart"]) == 2
    assert run(["predict", str(bundle), str(tmp_path), "--out", "x.parquet", "--may-lose"]) == 2
