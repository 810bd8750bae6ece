"""Whole HTTP requests as bytes, and the answers that are right: made before a load starts."""

import json
import struct
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nas.data.decode import decode
from nas.data.portable import normalised
from nas.errors import UserError
from nas.loadtest.answers import LABEL, LABELS, READERS, SCORES, label_text, labels_text, tensor_text
from nas.loadtest.endpoint import Endpoint, ask, with_reader
from nas.loadtest.images import Picture
from nas.loadtest.trial import Conversation

if TYPE_CHECKING:
    from nas.bundles.predictor import Predictor

JSON_BYTES = "Inference-Header-Content-Length"


def conversation_with(
    endpoint: Endpoint, pictures: Sequence[Picture], predictor: "Predictor | None", server_pid: int | None = None
) -> Conversation:
    """A request for each picture, and its answer: predicted by the bundle here, or what the server says when it is
    asked alone.

    Raises:
        UserError: a picture that cannot be read; a server that does not answer, or wrongly.
    """
    payloads = [_payload(endpoint, picture, predictor) for picture in pictures]
    requests = [request_bytes(endpoint, *payload) for payload in payloads]
    first = ask(endpoint, requests[0])
    endpoint = with_reader(endpoint, first)
    read = READERS[endpoint.reader]
    if predictor is not None:
        expected = [_predicted(endpoint, picture, predictor) for picture in pictures]
        if read(first) != expected[0]:
            raise UserError(
                f"{endpoint.url} answers {_text(read(first))} to image {pictures[0].name!r}, and the bundle says "
                f"{_text(expected[0])}",
                "name the bundle that is really served there",
            )
    else:
        expected = []
        for picture, request in zip(pictures, requests, strict=True):
            answer = read(ask(endpoint, request))
            if answer is None:
                raise UserError(f"{endpoint.url} gives no answer for image {picture.name!r}", "remove the image")
            expected.append(answer)
    return Conversation(
        host=endpoint.host, port=endpoint.port, requests=requests, expected=expected, reader=endpoint.reader,
        server_pid=server_pid,
    )  # fmt: skip


def conversation_again(conversation: Conversation, endpoint: Endpoint, server_pid: int | None = None) -> Conversation:
    """The same requests and answers, for a server that was started anew, of which one answer is compared.

    Raises:
        UserError: it does not answer, or otherwise than the one before.
    """
    said = READERS[conversation.reader](ask(endpoint, conversation.requests[0]))
    if said != conversation.expected[0]:
        raise UserError(
            f"{endpoint.url} answers {_text(said)}, and the server before it {_text(conversation.expected[0])}",
            "start it again: it is not the same server",
        )
    # The requests go on naming the first server's port in their Host header, which no server compares with its own.
    return replace(conversation, host=endpoint.host, port=endpoint.port, server_pid=server_pid)


def request_bytes(endpoint: Endpoint, body: bytes, json_bytes: int | None = None) -> bytes:
    """A POST of `body`; `json_bytes`: length of the JSON before binary tensors."""
    lines = [
        f"POST {endpoint.path} HTTP/1.1",
        f"Host: {endpoint.host}:{endpoint.port}",
        "Content-Type: application/octet-stream",
        f"Content-Length: {len(body)}",
    ]
    if json_bytes is not None:
        lines.append(f"{JSON_BYTES}: {json_bytes}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def infer_body(endpoint: Endpoint, datatype: str, shape: Sequence[int], data: bytes) -> tuple[bytes, int]:
    """Body of a request of the Open Inference Protocol with one binary tensor, and the length of its JSON."""
    scores = endpoint.reader == SCORES
    document: dict[str, Any] = {
        "inputs": [
            {
                "name": endpoint.input,
                "datatype": datatype,
                "shape": list(shape),
                "parameters": {"binary_data_size": len(data)},
            }
        ],
        # Labels are short enough for JSON; a thousand scores are not.
        "outputs": [{"name": endpoint.output, "parameters": {"binary_data": scores}}],
    }
    text = json.dumps(document).encode()
    return text + data, len(text)


def _payload(endpoint: Endpoint, picture: Picture, predictor: "Predictor | None") -> tuple[bytes, int | None]:
    if not endpoint.input:
        return picture.content, None
    if endpoint.sent == "file":
        return infer_body(endpoint, "BYTES", [1], struct.pack("<I", len(picture.content)) + picture.content)
    if endpoint.sent == "pixels":
        pixels = _pixels(endpoint, picture)
        return infer_body(endpoint, "UINT8", [1, *pixels.shape], pixels.tobytes())
    if predictor is not None:
        floats = predictor.processor.preprocess(picture.content).inputs
    else:  # how the network wants them is not told: good for times, and for answers that are always the same
        floats = normalised(_pixels(endpoint, picture)[None], (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    return infer_body(endpoint, "FP32", floats.shape, np.ascontiguousarray(floats, "<f4").tobytes())


def _pixels(endpoint: Endpoint, picture: Picture) -> NDArray[np.uint8]:
    assert endpoint.size is not None
    rows, columns = endpoint.size
    if rows != columns:
        raise UserError(f"{endpoint.url} takes {rows} x {columns} pixels, and images are made square", "send files")
    return decode(partial(_content, picture), picture.name, rows, exact=True)


def _content(picture: Picture) -> bytes:
    return picture.content


def _predicted(endpoint: Endpoint, picture: Picture, predictor: "Predictor") -> bytes:
    """What the server has to say, in the form that the endpoint's reader gives."""
    example: Any = picture.content if endpoint.sent != "pixels" else _pixels(endpoint, picture)
    if endpoint.reader == SCORES:
        return str(int(predictor.output(example).argmax())).encode()
    answer = predictor.predict(example)
    found = [str(entry["label"]) for entry in answer]
    if endpoint.reader == LABELS:
        return labels_text(found)
    detects = bool(answer) and "xyxy" in answer[0]
    if endpoint.reader == LABEL:
        return label_text(found[0])
    return tensor_text(found if detects else found[:1])


def _text(answer: bytes | None) -> str:
    return "nothing" if answer is None else answer.decode("utf-8", "replace")
