"""Finding out what a server speaks."""

import io
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from experiments.known_server import known_server
from nas.errors import UserError
from nas.loadtest.answers import LABEL, LABELS, SCORES, TENSOR
from nas.loadtest.endpoint import find_endpoint, with_reader
from nas.loadtest.images import Picture, read_pictures
from nas.loadtest.messages import conversation_again, conversation_with

LABEL_OUT = {"name": "label", "datatype": "BYTES", "shape": [-1]}
SCORES_OUT = {"name": "scores", "datatype": "FP32", "shape": [-1, 10]}
FILE_IN = {"name": "image", "datatype": "BYTES", "shape": [-1]}
PIXELS_IN = {"name": "pixels", "datatype": "UINT8", "shape": [-1, -1, -1, 3]}
FLOATS_IN = {"name": "input", "datatype": "FP32", "shape": [-1, 3, 8, 8]}


@contextmanager
def model_server(metadata: Any, answers: Mapping[str, Any] | None = None) -> Iterator[tuple[str, list[bytes]]]:
    """A server of the Open Inference Protocol in a thread; gives its address, and the bodies that it was sent."""
    sent: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply(metadata)

        def do_POST(self) -> None:
            sent.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.reply(answers)

        def reply(self, document: Any) -> None:
            body = document if isinstance(document, bytes) else json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v2/models/net", sent
    finally:
        server.shutdown()
        server.server_close()


def picture(name: str = "a.png", value: int = 9) -> Picture:
    file = io.BytesIO()
    Image.new("RGB", (12, 10), (value, 0, 0)).save(file, "PNG")
    return Picture(name, file.getvalue())


@pytest.mark.parametrize(
    ("inputs", "send", "sent", "size"),
    [
        ([FILE_IN, PIXELS_IN, FLOATS_IN], None, "file", None),
        ([FILE_IN, PIXELS_IN, FLOATS_IN], "pixels", "pixels", (8, 8)),
        ([FLOATS_IN, PIXELS_IN], None, "pixels", (8, 8)),
        ([FLOATS_IN], None, "floats", (8, 8)),
    ],
)
def test_what_is_sent_follows_from_what_a_model_takes(
    inputs: list[Any], send: str | None, sent: str, size: tuple[int, int] | None
) -> None:
    with model_server({"inputs": inputs, "outputs": [SCORES_OUT, LABEL_OUT]}) as (url, _):
        found = find_endpoint(url, send)
    assert (found.sent, found.size, found.reader) == (sent, size, TENSOR)
    assert found.path == "/v2/models/net/infer"


def test_a_model_without_labels_is_read_by_its_scores() -> None:
    with model_server({"inputs": [FLOATS_IN], "outputs": [SCORES_OUT]}) as (url, _):
        assert find_endpoint(url + "/infer").reader == SCORES


def test_a_conversation_in_the_protocol_carries_the_image_and_knows_the_answer() -> None:
    answer = {"outputs": [{"name": "label", "datatype": "BYTES", "shape": [1], "data": ["cat"]}]}
    pictures = [picture("a.png", 9), picture("b.png", 200)]
    with model_server({"inputs": [PIXELS_IN, FLOATS_IN], "outputs": [LABEL_OUT]}, answer) as (url, bodies):
        endpoint = find_endpoint(url)
        talk = conversation_with(endpoint, pictures, None)
        assert talk.expected == [b'["cat"]'] * 2
        head, pixels = bodies[0][:-192], np.frombuffer(bodies[0][-192:], np.uint8).reshape(8, 8, 3)
        assert (pixels == [9, 0, 0]).all()
        (tensor,) = json.loads(head)["inputs"]
        assert (tensor["shape"], tensor["parameters"]) == ([1, 8, 8, 3], {"binary_data_size": 192})
        assert f"Inference-Header-Content-Length: {len(head)}\r\n".encode() in talk.requests[0]
        assert conversation_again(talk, endpoint, 7).server_pid == 7
        other = replace(talk, expected=[b'["dog"]'] * 2)
        with pytest.raises(UserError, match=r'answers \["cat"\], and the server before it \["dog"\]'):
            conversation_again(other, endpoint)


def test_classifiers_and_detectors_are_told_apart_by_an_answer() -> None:
    plain = find_endpoint("http://127.0.0.1:1/predict")
    assert plain.path == "/predict"
    assert with_reader(plain, b'{"label": "cat"}').reader == LABEL
    assert with_reader(plain, b'{"label": null, "objects": []}').reader == LABELS


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://x", "is no address of a server"),
        ("localhost:8000", "is no address of a server"),
        ("https://x/predict", "asks for https"),
        ("http://x:port", "is no address"),
        ("http://127.0.0.1:1/v2/models/net", "nothing answers at"),
    ],
)
def test_an_address_that_makes_no_sense_is_said(url: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        find_endpoint(url)


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        (b"hello", "does not answer with JSON"),
        ([1], "does not describe"),
        ({"inputs": 3, "outputs": []}, "does not describe"),
        ({"inputs": [{"name": "x"}], "outputs": []}, "does not describe"),
        ({"inputs": [], "outputs": [LABEL_OUT]}, "has no input for images: none"),
        ({"inputs": [FILE_IN], "outputs": []}, "has no output with labels or float32 scores"),
        ({"inputs": [PIXELS_IN], "outputs": [LABEL_OUT]}, "does not say the size"),
    ],
)
def test_a_model_that_is_not_described_is_refused(metadata: Any, said: str) -> None:
    with model_server(metadata) as (url, _), pytest.raises(UserError, match=said):
        find_endpoint(url)


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        ({"body": "hello"}, "answers without a label: 'hello'"),
        ({"busy_every": 1}, "answers 503"),
        ({"raw": "SSH-2.0-OpenSSH\r\n\r\n"}, "does not speak HTTP"),
    ],
)
def test_a_server_that_answers_nonsense_is_refused_before_any_load(behaviour: dict[str, Any], said: str) -> None:
    with known_server(**behaviour) as server, pytest.raises(UserError, match=said):
        conversation_with(find_endpoint(server.url), [picture()], None)


def test_images_are_read_in_the_order_of_their_names_and_evenly(tmp_path: Path) -> None:
    for k in range(10):
        (tmp_path / f"{k}.jpg").write_bytes(bytes([k]))
    (tmp_path / "notes.txt").write_text("no image")
    assert [p.name for p in read_pictures(tmp_path).pictures] == [f"{k}.jpg" for k in range(10)]
    assert [p.name for p in read_pictures(tmp_path, most=3).pictures] == ["0.jpg", "3.jpg", "6.jpg"]


def test_a_folder_without_images_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder of images"):
        read_pictures(tmp_path / "none")
    with pytest.raises(UserError, match="holds no images"):
        read_pictures(tmp_path)
