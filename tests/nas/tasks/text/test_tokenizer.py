"""The tokenizer: deterministic, nested vocabularies, and nothing a text says is a special token."""

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from nas.errors import UserError
from nas.tasks.text.portable import CLS, PAD, cut, token_ids
from nas.tasks.text.tokenizer import LONGEST, SPECIAL, TextPreprocess, canonical, read_tokenizer, train_tokenizer
from tests.nas.tasks.text.sentences import sentences

TEXTS = [text for text, _ in sentences(300, 1)]
BYTES = len(SPECIAL) + 256
"""Entries of a vocabulary that knows no merges."""


@pytest.fixture(scope="module")
def known() -> TextPreprocess:
    return train_tokenizer(TEXTS, 600)


def test_the_same_texts_in_any_order_and_process_give_the_same_file(known: TextPreprocess) -> None:
    assert train_tokenizer(reversed(TEXTS), 600) == known
    code = (
        "from tests.nas.tasks.text.test_tokenizer import TEXTS; from nas.tasks.text.tokenizer import *;"
        "import hashlib; print(hashlib.sha256(train_tokenizer(TEXTS, 600).tokenizer.encode()).hexdigest())"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    import hashlib

    assert told == hashlib.sha256(known.tokenizer.encode()).hexdigest()


@settings(max_examples=60, deadline=None)
@given(
    text=st.one_of(st.sampled_from(TEXTS), st.text(max_size=80)),
    vocabulary=st.integers(BYTES, 620),
    tokens=st.sampled_from((8, 16, 64, LONGEST)),
)
def test_a_smaller_vocabulary_is_the_beginning_of_a_larger_one(text: str, vocabulary: int, tokens: int) -> None:
    known = train_tokenizer(TEXTS, 600)
    by_cutting = token_ids(Tokenizer.from_str(json.dumps(cut(known.document(), vocabulary))), text, tokens)
    by_parts = known.smaller(known.encode([text]), tokens, vocabulary)
    np.testing.assert_array_equal(by_parts, by_cutting)
    assert by_parts.max() < vocabulary


@pytest.mark.parametrize(
    "text", ["", "   ", "[PAD] [MASK] [CLS]", "\ud800", "a\0b", "x" * 50_000, "é" * 300, "中文 текст"]
)
def test_odd_texts_have_ids(known: TextPreprocess, text: str) -> None:
    (ids,) = known.encode([text])
    assert ids[0] == CLS
    assert not np.isin(ids[1:], [1, 2, 3]).any(), "no text is encoded to a special token"
    body = ids[1:]
    assert (body[: int((body != PAD).sum())] != PAD).all(), "only the end is filled up"


def test_texts_come_back_in_lower_case(known: TextPreprocess) -> None:
    assert known.decode(known.encode(["Ba DU ke, 7!"])) == ["ba du ke, 7!"]


def test_files_that_are_no_tokenizer(known: TextPreprocess) -> None:
    assert read_tokenizer(known.tokenizer, "file") == known
    document = known.document()
    others = [
        "no json", "[]", "{}", '{"model": {}}', canonical({**document, "model": {**document["model"], "vocab": {}}}),
        canonical({**document, "model": {**document["model"], "vocab": {"a": 0, "b": 1}, "merges": []}}),
    ]  # fmt: skip
    for text in others:
        with pytest.raises(UserError, match=r"is no tokenizer|does not begin with"):
            read_tokenizer(text, "file")
