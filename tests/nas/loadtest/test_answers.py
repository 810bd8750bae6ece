"""What is compared of an answer."""

import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nas.loadtest.answers import LABEL, LABELS, READERS, SCORES, TENSOR, label_text, labels_text, phases_ms, tensor_text


@given(label=st.text(), ascii_only=st.booleans())
def test_a_label_is_the_same_however_it_is_written(label: str, ascii_only: bool) -> None:
    try:
        body = json.dumps({"top": 1, "label": label, "ms": {"infer": 1}}, ensure_ascii=ascii_only, indent=2).encode()
    except UnicodeEncodeError:
        return  # half a surrogate pair, which no server can send
    assert READERS[LABEL](body) == label_text(label)


def test_the_first_label_counts_and_not_those_of_the_other_classes() -> None:
    body = json.dumps({"label": "cat", "top": [{"label": "cat"}, {"label": "dog"}]}).encode()
    assert READERS[LABEL](body) == label_text("cat")


def test_objects_count_in_any_order() -> None:
    objects = [{"label": "b", "score": 0.9}, {"label": "a", "score": 0.9}]
    one, other = (json.dumps({"label": o[0]["label"], "objects": o}).encode() for o in (objects, objects[::-1]))
    assert READERS[LABELS](one) == READERS[LABELS](other) == labels_text(["a", "b"])
    assert READERS[LABELS](json.dumps({"label": None, "objects": []}).encode()) == labels_text([])


def test_tensors_of_the_open_inference_protocol() -> None:
    body = json.dumps({"outputs": [{"name": "label", "datatype": "BYTES", "shape": [1], "data": ["cat"]}]}).encode()
    assert READERS[TENSOR](body) == tensor_text(["cat"])
    scores = np.array([0.1, 0.7, 0.2], "<f4").tobytes()
    head = json.dumps({"outputs": [{"name": "s", "parameters": {"binary_data_size": len(scores)}}]}).encode()
    assert READERS[SCORES](head + scores) == b"1"


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "body", [b"", b"hello", b"<html>label</html>", b'{"error": "busy"}', b'{"binary_data_size": 12}', b'{"label": 3}']
)
def test_nonsense_is_no_answer(reader: str, body: bytes) -> None:
    assert READERS[reader](body) is None


@given(st.binary(max_size=100) | st.just(struct.pack("<f", float("nan"))))
def test_any_bytes_can_be_read(body: bytes) -> None:
    for read in READERS.values():
        assert read(body) is None or body


def test_phases_are_medians_of_those_that_tell() -> None:
    told = [json.dumps({"ms": {"decode": ms, "note": "x"}}).encode() for ms in (1, 2, 9)]
    assert phases_ms([*told, b"hello", b"[1]", b'{"ms": 3}', b"\xff"]) == {"decode": 2.0}
    assert phases_ms([]) == {}
