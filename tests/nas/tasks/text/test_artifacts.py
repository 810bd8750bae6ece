"""A text bundle's documents: what is damaged is refused in one sentence, and what is no text too."""

import io
import json
from pathlib import Path

import numpy as np
import pytest

from nas.errors import UserError
from nas.tasks import TASKS
from nas.tasks.text.artifacts import TextProcessor, text_of
from search_spaces import OutputSpec, Signature, TensorSpec
from tests.nas.tasks.text.sentences import text_data

SIGNATURE = Signature(TensorSpec((16,), "int64", 1000), OutputSpec("logits", (2,), (2,)))
ARTIFACTS = TASKS["text"].artifacts


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    data = text_data()
    (tmp_path / "labels.json").write_text(json.dumps(data.classes))
    for name, document in ARTIFACTS.documents(data.preprocess, SIGNATURE).items():
        (tmp_path / name).write_text(json.dumps(document))
    return tmp_path


def test_texts_and_files_of_them_are_examples(bundle: Path) -> None:
    processor = ARTIFACTS.processor(bundle)
    assert isinstance(processor, TextProcessor)
    (bundle / "a.txt").write_text("Ba du ké")
    expected = processor.preprocess("Ba du ké").inputs
    for example in ("ba DU ké", "Ba du ké".encode(), bundle / "a.txt", io.BytesIO("Ba du ké".encode())):
        np.testing.assert_array_equal(processor.preprocess(example).inputs, expected)
    assert [found["label"] for found in processor.postprocess(np.array([0.0, 2.0], np.float32), None)] == ["up", "down"]
    with pytest.raises(UserError, match="names 2 classes, the network tells 3 apart"):
        processor.postprocess(np.zeros(3, np.float32), None)


@pytest.mark.parametrize(("example", "told"), [(7, "a int is no text"), (b"\xff", "not in UTF-8"), (None, "NoneType")])
def test_what_is_no_text(example: object, told: str) -> None:
    with pytest.raises(UserError, match=told):
        text_of(example)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("text.json", '{"tokens": 0, "vocabulary": 10}', "does not say how many tokens"),
        ("text.json", "[]", "does not say how many tokens"),
        ("text.json", "{", "cannot read"),
        ("tokenizer.json", "{}", "is no tokenizer"),
        ("tokenizer.json", None, "there is no such file"),
        ("labels.json", "7", "is no list of names"),
    ],
)
def test_damaged_documents(bundle: Path, name: str, content: str | None, told: str) -> None:
    (bundle / name).unlink() if content is None else (bundle / name).write_text(content)
    with pytest.raises(UserError, match=told):
        ARTIFACTS.processor(bundle)
