"""Requests that cannot be answered: each has its status and a sentence, and the next good one is answered."""

import gc
import json
import struct
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from starlette.testclient import TestClient

from nas.errors import UserError
from nas.serving.app import Health, create_app
from nas.serving.engine import Engine
from nas.serving.metrics import Metrics
from nas.serving.protocol import HEADER_LENGTH
from nas.serving.refusal import Refusal
from nas.serving.settings import ServingSettings
from tests.nas.serving.bundles import encoded
from tests.nas.serving.conftest import SETTINGS

pytestmark = pytest.mark.xdist_group("serving")
INFER = "/v2/models/classification/infer"


@pytest.fixture(scope="session")
def client(clients: dict[str, TestClient]) -> TestClient:
    return clients["classification"]


def huge_png(side: int = 20_000) -> bytes:
    """A few bytes whose header announces side x side pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


BAD_FILES: Mapping[str, tuple[bytes, int, str]] = {
    "empty": (b"", 400, "empty"),
    "text": (b"a photo of a cat", 415, "not an image"),
    "json": (b'{"image": "photo.jpg"}', 415, "not an image"),
    "page description": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n", 415, "not an image"),
    "signature alone": (b"\x89PNG\r\n\x1a\n", 415, "not an image"),
    "truncated": (encoded()[:700], 422, "cannot read"),
    "damaged": (encoded("PNG")[:-200] + bytes(200), 422, "cannot read"),
    "huge": (huge_png(), 422, "million pixels"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_files_that_are_no_image(name: str, client: TestClient) -> None:
    body, status, says = BAD_FILES[name]
    answer = client.post("/predict", content=body)
    assert (answer.status_code, name) == (status, name)
    assert says in answer.json()["error"]
    assert client.post("/predict", content=encoded()).status_code == 200


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("images", [1, 3])
def test_nothing_is_left_of_a_refused_image(threads: int, images: int, engines: dict[str, Engine]) -> None:
    """Neither what was decoded of it nor the request: with photos that is a megabyte, ten thousand times."""
    engine = Engine(engines["classification"].model, replace(SETTINGS, threads=threads))
    client = TestClient(create_app(engine, Health(), Metrics()))
    files = [encoded()[:700], *[encoded()] * (images - 1)]
    blob = b"".join(struct.pack("<I", len(file)) + file for file in files)
    entry = {"name": "image", "datatype": "BYTES", "shape": [images]}
    gc.collect()
    gc.freeze()  # what is there already is not looked at
    gc.disable()
    try:
        for _ in range(3):
            assert client.post(INFER, **binary(entry, blob)).status_code == 422
        # A decoding thread wakes who waits for its answer, and forgets its error only then: a leak stays.
        deadline = time.monotonic() + 10
        while (left := kept_objects()) and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        gc.enable()
        gc.unfreeze()
        engine.close()
    assert not left


def test_one_bad_image_of_several_is_named(client: TestClient) -> None:
    files = [encoded(), b"text", encoded()]
    blob = b"".join(struct.pack("<I", len(file)) + file for file in files)
    answer = client.post(INFER, **binary({"name": "image", "datatype": "BYTES", "shape": [3]}, blob))
    assert answer.status_code == 415
    assert answer.json()["error"].startswith("image 1:")


def kept_objects() -> list[type]:
    """Types of the pictures and errors that there are."""
    return [kind for kind in map(type, gc.get_objects()) if issubclass(kind, Image.Image | UserError | Refusal)]


def binary(entry: dict[str, Any], blob: bytes) -> dict[str, Any]:
    head = json.dumps({"inputs": [{**entry, "parameters": {"binary_data_size": len(blob)}}]}).encode()
    return {"content": head + blob, "headers": {HEADER_LENGTH: str(len(head))}}


def inputs_of(array: np.ndarray[Any, Any], name: str = "input", datatype: str = "FP32") -> dict[str, Any]:
    return binary({"name": name, "datatype": datatype, "shape": list(array.shape)}, array.tobytes())


GOOD = np.zeros((1, 3, 32, 32), np.float32)
BAD_TENSORS: Mapping[str, tuple[dict[str, Any], str]] = {
    "not a number": (inputs_of(np.full_like(GOOD, np.nan)), "not finite"),
    "infinite": (inputs_of(np.full_like(GOOD, np.inf)), "not finite"),
    "type": (inputs_of(GOOD.astype(np.float64), datatype="FP64"), "FP64"),
    "shape": (inputs_of(np.zeros((1, 3, 16, 16), np.float32)), "shape"),
    "name": (inputs_of(GOOD, "inptu"), "no input 'inptu'"),
    "no images": (inputs_of(GOOD[:0]), "has 0"),
    "too many images": (inputs_of(np.zeros((9, 3, 32, 32), np.float32)), "has 9"),
    "no colours": (inputs_of(np.zeros((1, 8, 8), np.uint8), "pixels", "UINT8"), "pixels"),
    "no rows": (inputs_of(np.zeros((1, 0, 8, 3), np.uint8), "pixels", "UINT8"), "pixels"),
    "no base64": (
        {"content": json.dumps({"inputs": [{"name": "image", "datatype": "BYTES", "shape": [1], "data": ["?"]}]})},
        "base64",
    ),
    "two inputs": (
        {"content": json.dumps({"inputs": [{"name": "image", "datatype": "BYTES", "shape": [0], "data": []}] * 2})},
        "one input",
    ),
}


@pytest.mark.parametrize("name", BAD_TENSORS)
def test_tensors_that_the_network_does_not_take(name: str, client: TestClient) -> None:
    request, says = BAD_TENSORS[name]
    answer = client.post(INFER, **request)
    assert (answer.status_code, name) == (400, name)
    assert says in answer.json()["error"]


def test_inputs_whose_answer_is_not_finite(client: TestClient) -> None:
    answer = client.post(INFER, **inputs_of(np.full_like(GOOD, 3e38)))
    assert answer.status_code == 422
    assert "not finite" in answer.json()["error"]


def test_as_many_images_as_a_server_takes_by_default_and_one_more(engines: dict[str, Engine]) -> None:
    engine = Engine(engines["classification"].model, ServingSettings(deadline_ms=60_000))
    client = TestClient(create_app(engine, Health(), Metrics()))
    try:
        answer = client.post(INFER, **inputs_of(np.zeros((65, *GOOD.shape[1:]), np.float32)))
        assert answer.status_code == 400
        assert answer.json()["error"] == "a request has 1 to 64 images, this one has 65"
        answer = client.post(INFER, **inputs_of(np.zeros((64, *GOOD.shape[1:]), np.float32)))
        assert answer.status_code == 200
        assert [len(output["data"]) for output in answer.json()["outputs"]] == [640, 64]
    finally:
        engine.close()


@pytest.mark.parametrize("length", ["-1", "many", "99999999999", "1" * 5000, "٣"])
def test_a_header_that_is_no_length(length: str, client: TestClient) -> None:
    answer = client.post(INFER, content=b"{}", headers={HEADER_LENGTH: length.encode()})
    assert answer.status_code == 400


def test_bodies_that_are_too_long(client: TestClient) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(100):
            yield bytes(SETTINGS.body_bytes // 10)

    for body in (bytes(SETTINGS.body_bytes + 1), endless()):  # announced, and not
        answer = client.post("/predict", content=body)
        assert answer.status_code == 413
        assert answer.headers["connection"] == "close"
    assert client.post("/predict", content=b"x", headers={"content-encoding": "gzip"}).status_code == 415


def test_a_chunked_body_is_taken(client: TestClient) -> None:
    file = encoded()
    answer = client.post("/predict", content=iter([file[:100], file[100:]]))
    assert answer.status_code == 200


@settings(max_examples=60)
@given(st.binary(max_size=300), st.integers(0, 300), st.sampled_from(["JPEG", "PNG", "GIF", "WEBP", "BMP"]))
def test_damaged_files_never_break_the_server(client: TestClient, noise: bytes, at: int, form: str) -> None:
    file = encoded(form)
    answer = client.post("/predict", content=file[:at] + noise + file[at + len(noise) :])
    assert answer.status_code in (200, 415, 422), answer.text
