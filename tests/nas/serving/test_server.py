"""A server in real processes: a foreign client, replicas that are killed or hang, and an end without a lost request."""

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

from nas.bundles.predictor import Predictor
from nas.errors import UserError
from nas.files.writing import sha256_of
from nas.serving.process import Server, running
from nas.serving.settings import ServingSettings
from tests.nas.serving.bundles import encoded, picture

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("serving")]
CLIENTS = 10
SETTINGS = ServingSettings(replicas=2, threads=1, batch=2, drain_s=0.5, body_s=1.0, hang_s=2.0, deadline_ms=20_000)


@pytest.fixture(scope="module")
def server(bundles: dict[str, Path]) -> Iterator[Server]:
    from nas.serving.checks import usable_cores

    if len(usable_cores()) < SETTINGS.cores:
        pytest.skip("two replicas need two cores")
    with running(bundles["classification"], SETTINGS) as started:
        yield started


def ask(url: str, body: bytes, connection: http.client.HTTPConnection | None = None) -> tuple[int, bytes]:
    address = urlsplit(url)
    used = connection or http.client.HTTPConnection(str(address.hostname), address.port, timeout=30)
    used.request("POST", "/predict", body)
    answer = used.getresponse()
    return answer.status, answer.read()


def eventually(happens: Callable[[], bool], within_s: float = 30.0) -> None:
    end = time.monotonic() + within_s
    while not happens():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_foreign_client(server: Server, bundles: dict[str, Path]) -> None:
    from tritonclient import http as triton

    predictor = Predictor.open(bundles["classification"], threads=1)
    pixels = picture(32, 32)
    client = triton.InferenceServerClient(server.url.removeprefix("http://"))
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready(server.name)
    assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
    assert client.get_model_metadata(server.name)["inputs"][0]["name"] == "image"
    expected = predictor.predict(pixels)
    file = encoded("PNG")
    for name, array, datatype in (
        ("pixels", pixels[None], "UINT8"),
        ("input", predictor.processor.preprocess(pixels).inputs, "FP32"),
        ("image", np.array([file], dtype=np.object_), "BYTES"),
    ):
        for binary in (True, False) if datatype != "BYTES" else (True,):
            given = triton.InferInput(name, list(array.shape), datatype)
            given.set_data_from_numpy(array, binary_data=binary)
            wanted = [triton.InferRequestedOutput(o, binary_data=binary) for o in ("scores", "label")]
            answer = client.infer(server.name, [given], outputs=wanted, request_id="1")
            truth = predictor.predict(file) if name == "image" else expected
            assert answer.as_numpy("label")[0] in (truth[0]["label"].encode(), truth[0]["label"])
            scores = dict(zip(labels_of(bundles), answer.as_numpy("scores")[0], strict=True))
            assert scores == pytest.approx({found["label"]: found["score"] for found in truth}, abs=1e-5)
    whole = client.infer(server.name, [given])
    assert whole.as_numpy("scores").shape == (1, 10)
    with pytest.raises(Exception, match="no input 'x'"):
        client.infer(server.name, [triton.InferInput("x", [0], "FP32").set_data_from_numpy(np.zeros(0, np.float32))])
    client.close()


def labels_of(bundles: dict[str, Path]) -> list[str]:
    return list(json.loads((bundles["classification"] / "labels.json").read_text()))


def answered_so_far(url: str) -> int:
    """What all replicas together have counted."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=30)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    found = [line for line in lines if line.startswith('nas_requests_total{code="200",route="predict"}')]
    return int(float(found[0].rpartition(" ")[2])) if found else 0


def test_numbers_are_those_of_all_replicas(server: Server) -> None:
    before = answered_so_far(server.url)
    for _ in range(12):  # each on a connection of its own, so that both replicas have some
        assert ask(server.url, encoded())[0] == 200
    assert {answered_so_far(server.url) for _ in range(6)} == {before + 12}


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hanging"])
def test_a_replica_is_replaced(how: signal.Signals, server: Server) -> None:
    eventually(lambda: len(server.replicas()) == 2)  # a busy machine may have silenced one of them for too long
    old, before = server.replicas(), answered_so_far(server.url)
    os.kill(old[0], how)
    eventually(lambda: len(server.replicas()) == 2 and old[0] not in server.replicas())
    answered = Counter()
    for _ in range(40):  # while the new one starts, the other answers
        with contextlib.suppress(ConnectionError):
            answered[ask(server.url, encoded())[0]] += 1
    assert answered[200] >= 39
    assert old[1] in server.replicas()
    assert answered_so_far(server.url) == before + answered[200], "what the dead one had counted still counts"


def test_slow_and_broken_connections(server: Server) -> None:
    address = urlsplit(server.url)

    def say(text: bytes, wait: bool = True) -> bytes:
        with socket.create_connection((str(address.hostname), int(address.port or 0)), 20) as connection:
            connection.sendall(text)
            answer = b""
            while wait and (part := connection.recv(65536)):
                answer += part
            return answer

    head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: "
    assert b" 408 " in say(head + b"100\r\n\r\nslow").partition(b"\r\n")[0]
    assert b" 400 " in say(head + b"-1\r\n\r\n").partition(b"\r\n")[0]
    assert b" 400 " in say(b"\x00\x01\x02\r\n\r\n").partition(b"\r\n")[0]
    say(head + b"100\r\n\r\nand gone", wait=False)
    file = encoded()
    one = head + str(len(file)).encode() + b"\r\n\r\n" + file
    last = one.replace(b"Host: x\r\n", b"Host: x\r\nConnection: close\r\n", 1)
    assert say(one + one + last).count(b"HTTP/1.1 200 OK") == 3  # one after the other, without waiting
    too_long = say(head + b"99999999\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n")
    assert b" 413 " in too_long.partition(b"\r\n")[0]
    assert ask(server.url, file)[0] == 200


@pytest.mark.parametrize("most", [1000, 1], ids=["kept connections", "a connection each"])
def test_it_ends_without_losing_a_request(most: int, bundles: dict[str, Path]) -> None:
    """Clients ask without a pause; those whose connection is closed after an answer come back, until nobody is there
    any more. No request that was sent may be without an answer."""
    failed: list[str] = []
    answered = [0] * CLIENTS
    stop = threading.Event()

    def client(number: int, url: str) -> None:
        address, file = urlsplit(url), encoded()
        while not stop.is_set():
            connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=30)
            try:
                connection.connect()
            except ConnectionError:
                return  # it has ended
            try:
                for _ in range(most):
                    status, _ = ask(url, file, connection)
                    if status != 200:
                        failed.append(str(status))
                    answered[number] += 1
                    if connection.sock is None:  # the answer said that the connection would be closed
                        break
                connection.close()
            except (OSError, http.client.HTTPException) as error:
                failed.append(repr(error))

    with running(bundles["classification"], SETTINGS) as ending:
        threads = [threading.Thread(target=client, args=(number, ending.url)) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        eventually(lambda: min(answered) > 2)
        at_signal = sum(answered)
        os.kill(ending.pid, signal.SIGTERM)
        time.sleep(SETTINGS.drain_s / 2)
        address = urlsplit(ending.url)
        probe = http.client.HTTPConnection(str(address.hostname), address.port, timeout=30)
        probe.request("GET", "/v2/health/ready")
        assert probe.getresponse().status == 503
    for thread in threads:
        thread.join(30)
    stop.set()
    assert failed == []
    assert sum(answered) > at_signal  # it went on for a while


def test_a_bundle_that_answers_its_sample_wrongly_is_never_served(bundles: dict[str, Path], tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    shutil.copytree(bundles["classification"], wrong)
    with pytest.raises(UserError, match=r"is not as it was delivered: sample\.json was changed"):
        damage(wrong, sign=False)
    with pytest.raises(UserError, match="answers its own sample wrongly"):
        damage(wrong, sign=True)


def damage(bundle: Path, *, sign: bool) -> None:
    sample = json.loads((bundle / "sample.json").read_text())
    sample["logits"][0] += 10
    (bundle / "sample.json").write_text(json.dumps(sample))
    if sign:
        sign_sample(bundle)
    with running(bundle, ServingSettings()):
        raise AssertionError("it serves")


def test_a_replica_that_cannot_start_is_not_tried_for_ever(bundles: dict[str, Path], tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(bundles["classification"], broken)
    sample = json.loads((broken / "sample.json").read_text())
    del sample["picture_size"]
    (broken / "sample.json").write_text(json.dumps(sample))
    sign_sample(broken)
    began = time.monotonic()
    with pytest.raises(UserError, match=r"cannot be served: KeyError: 'picture_size'"), running(broken):
        raise AssertionError("it serves")
    assert time.monotonic() - began < 60


def sign_sample(bundle: Path) -> None:
    receipt = json.loads((bundle / "receipt.json").read_text())
    receipt["sha256"]["sample.json"] = sha256_of(bundle / "sample.json")
    (bundle / "receipt.json").write_text(json.dumps(receipt))


def test_the_command_serves_until_it_is_told_to_end(bundles: dict[str, Path]) -> None:
    command = [sys.executable, "-m", "nas", "serve", str(bundles["detection"]), "--json", "--replicas", "1"]
    first = [*command, "--port", "0", "--drain-s", "0"]
    process = subprocess.Popen(first, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        text = ""
        while not text.endswith("}\n}\n") and process.poll() is None:
            text += process.stdout.readline()
        document = json.loads(text)
        status, answer = ask(document["url"], encoded())
        assert status == 200
        assert json.loads(answer)["objects"]
        port = str(urlsplit(document["url"]).port)
        second = subprocess.run([*command, "--port", port], capture_output=True, text=True)
        assert second.returncode == 1
        assert f"Error: port {port} is taken by another program" in second.stderr
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()
