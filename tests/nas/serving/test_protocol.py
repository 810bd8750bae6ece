"""Bodies of the protocol: what is written is read, and whatever else is sent is refused."""

import contextlib
import json
import struct
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from nas.serving.engine import finite
from nas.serving.protocol import NUMPY_TYPES, InferRequest, Tensor, bytes_tensor, compose_answer, parse_request
from nas.serving.refusal import Refusal

arrays = st.sampled_from(sorted(NUMPY_TYPES)).flatmap(
    lambda datatype: st.tuples(
        st.just(datatype),
        hnp.arrays(NUMPY_TYPES[datatype], hnp.array_shapes(max_dims=4, max_side=4),
                   elements=hnp.from_dtype(np.dtype(NUMPY_TYPES[datatype]), allow_nan=False, allow_infinity=False)),
    )
)  # fmt: skip


def as_request(answer: bytes, json_bytes: int | None) -> InferRequest:
    """An answer read as if its outputs were the inputs of a request: both are written in the same way."""
    document = json.loads(answer[:json_bytes])
    document["inputs"] = document.pop("outputs")
    head = json.dumps(document).encode()
    blob = answer[json_bytes:] if json_bytes is not None else b""
    return parse_request(head + blob, len(head) if json_bytes is not None else None)


@example(("UINT64", np.array([0, 2**63], np.uint64)), False)
@given(arrays, st.booleans())
def test_arrays_come_back(typed: tuple[str, Any], binary: bool) -> None:
    datatype, array = typed
    written = compose_answer("m", "1", [Tensor("x", datatype, array.shape, array)], InferRequest((), binary=binary))
    (read,) = as_request(*written).inputs
    assert (read.name, read.datatype, read.shape) == ("x", datatype, array.shape)
    assert np.array_equal(np.asarray(read.data), array)


@given(st.lists(st.text("aé\U0001f600\x00"), max_size=4), st.booleans())
def test_texts_come_back(texts: list[str], binary: bool) -> None:
    written = compose_answer("m", "1", [bytes_tensor("x", texts)], InferRequest((), binary=binary))
    (read,) = as_request(*written).inputs
    assert list(read.data) == [text.encode() for text in texts]
    assert read.text is not binary


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
nearly = st.fixed_dictionaries({
    "inputs": json_values | st.lists(st.fixed_dictionaries({
        "name": st.just("input") | json_values, "datatype": st.sampled_from(["FP32", "UINT8", "BYTES", "FP99"]),
        "shape": st.lists(st.integers(-1, 10**12), max_size=5) | json_values, "data": json_values,
        "parameters": json_values | st.fixed_dictionaries({"binary_data_size": st.integers(-1, 40) | json_values}),
    }), max_size=2),
}, optional={"id": json_values, "outputs": json_values, "parameters": json_values})  # fmt: skip


@settings(max_examples=300)
@given(nearly | json_values, st.binary(max_size=40), st.none() | st.integers(-5, 400))
def test_whatever_is_sent_is_read_or_refused(document: Any, blob: bytes, length: int | None) -> None:
    head = json.dumps(document).encode()
    with contextlib.suppress(Refusal):  # any other exception would be an answer with status 500
        parse_request(head + blob, len(head) if length is not None and length < 200 else length)


@given(st.binary(max_size=60))
def test_noise_is_refused(noise: bytes) -> None:
    with pytest.raises(Refusal):
        parse_request(noise + b"\xff")


def request(**entry: Any) -> bytes:
    return json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2], **entry}]}).encode()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b'{"inputs": [1e999', "no JSON"),
        (request(data=[1.0, float("nan")]), "NaN is no number"),
        (request(data=[1, 2, 3]), "has 3 values"),
        (request(data=[[1, 2], [3]]), "no array"),
        (request(data=["a", "b"]), "not of type FP32"),
        (request(data=None), "no list"),
        (request(datatype="UINT8", data=[1, 256]), "not within UINT8"),
        (request(datatype="UINT8", data=[1, 2.5]), "not of type UINT8"),
        (request(datatype="UINT8", data=[1, 10**30]), "not of type UINT8"),
        (request(datatype="FLOAT"), "unknown datatype"),
        (request(shape=[-2]), "not of whole numbers"),
        (request(shape=[True, 2]), "not of whole numbers"),
        (request(shape=[0, 2**70], data=[]), "one beyond 2147483647"),
        (request(shape=[1] * 100, data=[1.0]), "more than 32 axes"),
        (request(shape=[1] * 100, data=None, parameters={"binary_data_size": 4}), "more than 32 axes"),
        (request(data=[1, None]), "not of type FP32"),
        (request(data=[1, ["a"]]), "not of type FP32"),
        (request(name=7), "no text"),
        (request(parameters={"binary_data_size": 8}), "announces 8 bytes"),
        (request(datatype="BYTES"), "not texts"),
        (b"{}", "inputs is no list"),
        (b'{"inputs": [], "outputs": [{"name": 3}]}', "no text"),
        (b'{"inputs": [], "parameters": {"binary_data_output": 1}}', "neither true nor false"),
    ],
)
def test_the_sentence_names_what_is_wrong(body: bytes, says: str) -> None:
    with pytest.raises(Refusal, match=says) as refused:
        parse_request(body)
    assert refused.value.status == 400


def test_texts_among_numbers_take_no_memory_for_each() -> None:
    body = request(data=["x" * 100_000, *["a"] * 200], shape=[201])
    tracemalloc.start()
    try:
        with pytest.raises(Refusal, match="not of type FP32"):
            parse_request(body)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 20 * len(body)


@pytest.mark.parametrize(
    ("size", "blob", "says"),
    [
        (8, struct.pack("<I", 9) + b"four", "longer than its tensor"),
        (3, b"abc", "longer than its tensor"),
        (5, struct.pack("<I", 1) + b"a", "has 1 elements"),
        (0, b"", "has 0 elements"),
        (5, struct.pack("<I", 1) + b"ab", "1 bytes follow"),
    ],
)
def test_wrong_lengths_of_elements(size: int, blob: bytes, says: str) -> None:
    shape = [1] if says.endswith("follow") else [2]
    head = request(datatype="BYTES", shape=shape, parameters={"binary_data_size": size})
    with pytest.raises(Refusal, match=says):
        parse_request(head + blob, len(head))


def test_a_header_that_lies() -> None:
    with pytest.raises(Refusal, match="says 900"):
        parse_request(request(), 900)


def test_an_output_that_is_not_there() -> None:
    with pytest.raises(Refusal, match="no output 'y'"):
        compose_answer("m", "1", [bytes_tensor("x", ["a"])], InferRequest((), outputs={"y": False}))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_answer_that_json_cannot_hold(value: float) -> None:
    tensor = Tensor("logits", "FP32", (1,), np.array([value], np.float32))
    with pytest.raises(Refusal, match="not finite") as refused:
        compose_answer("m", "1", [tensor], InferRequest(()))
    assert refused.value.status == 422
    body, head = compose_answer("m", "1", [tensor], InferRequest((), binary=True))
    assert head is not None
    assert np.array_equal(np.frombuffer(body[head:], np.float32), tensor.data, equal_nan=True)


@given(hnp.arrays(np.float32, hnp.array_shapes(max_dims=2, max_side=8), elements=st.floats(width=32)))
@example(np.full((2, 2), np.finfo(np.float32).max))
@example(np.array([np.inf, -np.inf], np.float32))
def test_a_number_that_is_not_finite_is_found(inputs: NDArray[np.float32]) -> None:
    assert finite(inputs) == bool(np.isfinite(inputs).all())
