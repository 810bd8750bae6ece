import dataclasses
import json
from typing import Any

import numpy as np
import pytest
import torch

from search_spaces import OutputSpec, Signature, TensorSpec, UserError

IMAGE = TensorSpec((3, 32, 32))
TOKENS = TensorSpec((16,), "int64", 100)
BYTES = TensorSpec((8, 8), "uint8", 256)
LOGITS = OutputSpec("logits", (10,), (10,))


@pytest.mark.parametrize("spec", [IMAGE, TOKENS, BYTES], ids=lambda spec: spec.dtype)
def test_draws_have_the_shape_and_type_of_the_input(spec: TensorSpec) -> None:
    drawn = spec.draw(np.random.default_rng(0), 5)
    assert drawn.shape == spec.batched(5) == (5, *spec.shape)
    assert drawn.dtype == np.dtype(spec.dtype) == spec.zeros(1).dtype
    np.testing.assert_array_equal(drawn, spec.draw(np.random.default_rng(0), 5))


@pytest.mark.parametrize("spec", [IMAGE, TOKENS, BYTES], ids=lambda spec: spec.dtype)
def test_torch_draws_the_same_kind_of_input(spec: TensorSpec) -> None:
    torch.manual_seed(1)
    drawn = spec.draw_torch(50).numpy()
    assert drawn.shape == spec.batched(50)
    assert drawn.dtype == np.dtype(spec.dtype)
    if spec.values is not None:
        assert 0 <= drawn.min() <= drawn.max() < spec.values
    assert drawn.std() == pytest.approx(spec.draw(np.random.default_rng(0), 50).std(), rel=0.1)


def test_noise_is_drawn_as_one_array_of_normal_numbers() -> None:
    expected = np.random.default_rng(3).standard_normal((2, 3, 32, 32), dtype=np.float32)
    np.testing.assert_array_equal(IMAGE.draw(np.random.default_rng(3), 2), expected)


def test_integers_are_drawn_from_all_values_and_no_others() -> None:
    drawn = TensorSpec((1000,), "int64", 7).draw(np.random.default_rng(0), 1)
    assert set(drawn.reshape(-1).tolist()) == set(range(7))
    assert BYTES.draw(np.random.default_rng(0), 100).max() == 255


@pytest.mark.parametrize("spec", [IMAGE, TOKENS, BYTES], ids=lambda spec: spec.dtype)
def test_json_keeps_a_signature(spec: TensorSpec) -> None:
    signature = Signature(spec, OutputSpec("poses", (3, 17), (400, 20)))
    again = Signature.from_json(json.loads(json.dumps(signature.to_json())))
    assert again == signature
    assert hash(again) == hash(signature)


def test_a_signature_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        IMAGE.shape = (1,)  # type: ignore[misc]


@pytest.mark.parametrize(
    "wrong",
    [
        {"shape": ()},
        {"shape": (3, 0)},
        {"shape": [3]},
        {"shape": (True,)},
        {"shape": (1.5,)},
        {"dtype": "float64"},
        {"dtype": "int64"},
        {"values": 5},
        {"dtype": "int64", "values": 0},
        {"dtype": "uint8", "values": 257},
    ],
    ids=str,
)
def test_impossible_inputs_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        TensorSpec(**{"shape": (3, 4), **wrong})


@pytest.mark.parametrize("wrong", [{"kind": ""}, {"size": ()}, {"size": (0,)}, {"shape": [2]}], ids=str)
def test_impossible_outputs_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        OutputSpec(**{"kind": "logits", "size": (2,), "shape": (2,), **wrong})


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("input", "shape", [0]),
        ("input", "shape", 3),
        ("input", "dtype", "complex"),
        ("input", "dtype", ["float32"]),
        ("input", "values", 3),
        ("output", "kind", ""),
        ("output", "size", "ten"),
        ("output", "more", 1),
    ],
)
def test_a_damaged_document_is_refused_as_a_user_error(part: str, field: str, value: object) -> None:
    document = Signature(IMAGE, LOGITS).to_json()
    document[part][field] = value
    with pytest.raises(UserError):
        Signature.from_json(document)


@pytest.mark.parametrize("document", [None, [], {}, {"input": {}}, {"input": {}, "output": {}}], ids=str)
def test_another_document_is_refused_as_a_user_error(document: object) -> None:
    with pytest.raises(UserError):
        Signature.from_json(document)
