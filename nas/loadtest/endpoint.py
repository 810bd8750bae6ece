"""A server that answers about images: where it listens, what it wants to be sent, and how its answers are read.

Two ways of asking are known: `POST /predict` with an image file, as our own server has it, and the Open Inference
Protocol, version 2, over REST with binary tensors (https://github.com/kserve/open-inference-protocol), which Triton,
OpenVINO Model Server, KServe and our own server speak.
"""

import http.client
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import urlsplit

from nas.errors import UserError
from nas.loadtest.answers import LABEL, LABELS, READERS, SCORES, TENSOR

Sent = Literal["file", "pixels", "floats"]
"""What a request carries: an encoded image file, uint8 pixels (h, w, 3), or a network's own float32 input."""

TIMEOUT_S = 10.0
_HINT = "give http://HOST:PORT of a server with /predict, or http://HOST:PORT/v2/models/NAME"
_MODELS = "/v2/models/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One way of asking one server."""

    host: str
    port: int
    path: str
    """Of the request that carries an image."""
    sent: Sent
    input: str = ""
    """Name of the input tensor; empty for `/predict`."""
    size: tuple[int, int] | None = None
    """Rows and columns of `pixels` or `floats`."""
    output: str = ""
    """Name of the output tensor that is asked for."""
    reader: str = LABEL
    """How answers are read, see `nas.loadtest.answers`."""

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}{self.path}"

    @property
    def speaks(self) -> str:
        """For people."""
        return f"Open Inference Protocol, {self.input!r}" if self.input else "POST /predict"


def find_endpoint(url: str, send: str | None = None) -> Endpoint:
    """Ask a server what it speaks.

    Args:
        url: `http://HOST:PORT` of a server with `/predict`, or `http://HOST:PORT/v2/models/NAME`.
        send: `file`, `pixels` or `floats`; None: the first of these that it takes.

    Raises:
        UserError: the URL makes no sense, nothing answers there, or it wants what we cannot send.
    """
    host, port, path = _parts(url)
    if _MODELS not in path:
        if send not in (None, "file"):
            raise UserError(f"{url} takes image files, not {send}", "give the address that ends in /v2/models/NAME")
        path = path.rstrip("/")
        return Endpoint(
            host=host, port=port, path=path if path.endswith("/predict") else f"{path}/predict", sent="file"
        )
    path = path.rstrip("/").removesuffix("/infer")
    document = _described(host, port, path, url)
    sent, tensor = _input(document, send, url)
    output, reader = _output(document, url)
    return Endpoint(
        host=host, port=port, path=f"{path}/infer", sent=sent, input=str(tensor["name"]),
        size=_size(document, tensor, sent, url), output=output, reader=reader,
    )  # fmt: skip


def with_reader(endpoint: Endpoint, body: bytes) -> Endpoint:
    """The endpoint with the reader that fits an answer of it: a classifier's or a detector's.

    Raises:
        UserError: it is no answer.
    """
    found = endpoint
    if not endpoint.input:
        try:
            document = json.loads(body)
        except ValueError:
            document = None
        detects = isinstance(document, dict) and isinstance(document.get("objects"), list)
        found = replace(endpoint, reader=LABELS if detects else LABEL)
    if READERS[found.reader](body) is None:
        said = body[:80].decode("utf-8", "replace")
        raise UserError(f"{endpoint.url} answers without a label: {said!r}", _HINT)
    return found


def ask(endpoint: Endpoint, request: bytes, timeout_s: float = TIMEOUT_S) -> bytes:
    """The body of the answer to one whole request, asked alone.

    Raises:
        UserError: no answer, or none with status 200.
    """
    head, _, body = request.partition(b"\r\n\r\n")
    headers = dict(line.decode().split(": ", 1) for line in head.split(b"\r\n")[1:])
    status, answer = _exchange(
        endpoint.host, endpoint.port, "POST", endpoint.path, endpoint.url, body, headers, timeout_s
    )
    if status != 200:
        said = answer[:200].decode("utf-8", "replace").strip()
        raise UserError(f"{endpoint.url} answers {status} to an image: {said}", _HINT)
    return answer


def _parts(url: str) -> tuple[str, int, str]:
    try:
        parts = urlsplit(url)
        port = parts.port or 80
    except ValueError as error:
        raise UserError(f"{url!r} is no address: {error}", _HINT) from error
    if parts.scheme == "https":
        raise UserError(f"{url!r} asks for https, and load is made over http alone", "measure behind the TLS proxy")
    if parts.scheme != "http" or not parts.hostname:
        raise UserError(f"{url!r} is no address of a server", _HINT)
    return parts.hostname, port, parts.path


def _described(host: str, port: int, path: str, url: str) -> Mapping[str, Any]:
    """The model's metadata as the protocol has them."""
    status, body = _exchange(host, port, "GET", path, url)
    if status != 200:
        raise UserError(f"{url} answers {status} instead of describing a model", _HINT)
    try:
        document = json.loads(body)
    except ValueError as error:
        raise UserError(f"{url} does not answer with JSON", _HINT) from error
    tensors = [document.get(side) for side in ("inputs", "outputs")] if isinstance(document, dict) else [None]
    for side in tensors:
        if not isinstance(side, list) or not all(
            isinstance(t, dict) and {"name", "datatype", "shape"} <= t.keys() and isinstance(t["shape"], list)
            for t in side
        ):
            raise UserError(f"{url} does not describe the inputs and outputs of a model", _HINT)
    found: Mapping[str, Any] = document
    return found


def _input(document: Mapping[str, Any], send: str | None, url: str) -> tuple[Sent, Mapping[str, Any]]:
    inputs: Sequence[Mapping[str, Any]] = document["inputs"]
    offered: dict[Sent, Mapping[str, Any]] = {}
    for tensor in inputs:
        if tensor["datatype"] == "BYTES":
            offered.setdefault("file", tensor)
        elif tensor["datatype"] == "UINT8":
            offered.setdefault("pixels", tensor)
        elif tensor["datatype"] == "FP32":
            offered.setdefault("floats", tensor)
    for sent in ("file", "pixels", "floats"):
        if sent in offered and send in (None, sent):
            return sent, offered[sent]
    known = ", ".join(f"{t['name']} {t['datatype']}" for t in inputs) or "none"
    raise UserError(f"{url} has no input for {send or 'images'}: {known}", "choose with --send file, pixels or floats")


def _output(document: Mapping[str, Any], url: str) -> tuple[str, str]:
    """Labels where the model gives them, else the largest of its scores."""
    outputs: Sequence[Mapping[str, Any]] = document["outputs"]
    for datatype, reader in (("BYTES", TENSOR), ("FP32", SCORES)):
        for tensor in outputs:
            if tensor["datatype"] == datatype:
                return str(tensor["name"]), reader
    raise UserError(f"{url} has no output with labels or float32 scores", _HINT)


def _size(document: Mapping[str, Any], tensor: Mapping[str, Any], sent: Sent, url: str) -> tuple[int, int] | None:
    """Rows and columns to send; where pixels of any size are taken, those of the network's own input."""
    if sent == "file":
        return None
    shapes = [tensor["shape"][1:3] if sent == "pixels" else tensor["shape"][2:4]]
    shapes += [t["shape"][2:4] for t in document["inputs"] if t["datatype"] == "FP32" and len(t["shape"]) == 4]
    for shape in shapes:
        if len(shape) == 2 and all(isinstance(size, int) and size > 0 for size in shape):
            return int(shape[0]), int(shape[1])
    raise UserError(f"{url} does not say the size of its input {tensor['name']!r}: {tensor['shape']}", "send files")


def _exchange(
    host: str, port: int, method: str, path: str, url: str, body: bytes | None = None,
    headers: Mapping[str, str] | None = None, timeout_s: float = TIMEOUT_S,
) -> tuple[int, bytes]:  # fmt: skip
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request(method, path or "/", body, dict(headers or {}))
        response = connection.getresponse()
        return response.status, response.read()
    except TimeoutError as error:
        raise UserError(f"{url} does not answer within {timeout_s:g} s", _HINT) from error
    except OSError as error:
        raise UserError(f"nothing answers at {url}: {error.strerror or error}", "start the server first") from error
    except http.client.HTTPException as error:
        raise UserError(f"{url} does not speak HTTP ({type(error).__name__})", _HINT) from error
    finally:
        connection.close()
