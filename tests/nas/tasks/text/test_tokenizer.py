"""The tokenizer: deterministic, nested vocabularies, and nothing a text says is a special token."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from nas.errors import UserError
from nas.tasks.text.own_tokenizer import load_tokenizer
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


def foreign_document(pairs_as_text: bool) -> dict[str, Any]:
    """A byte-level encoding as others write it: special tokens of their own in other places."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=["<s>", "<pad>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )  # fmt: skip
    tokenizer.train_from_iterator(TEXTS, trainer)
    document: dict[str, Any] = json.loads(tokenizer.to_str())
    if pairs_as_text:
        document["model"]["merges"] = [" ".join(pair) for pair in document["model"]["merges"]]
    return document


@pytest.mark.parametrize("pairs_as_text", [False, True])
def test_the_tokenizer_of_others_says_the_same(pairs_as_text: bool, tmp_path: Path) -> None:
    document = foreign_document(pairs_as_text)
    (tmp_path / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    found, theirs = load_tokenizer(str(tmp_path)), Tokenizer.from_str(json.dumps(document))
    ours = Tokenizer.from_str(found.tokenizer)
    for text in [*TEXTS[:50], "Ünknown <s> [PAD]", ""]:
        expected = theirs.encode(text, add_special_tokens=False)
        tokens = [token for token in expected.tokens if token not in ("<s>", "<pad>")]
        if "<s>" not in text:
            assert ours.encode(text, add_special_tokens=False).tokens == tokens
        (ids,) = found.encode([text])
        assert not np.isin(ids[1:], [1, 2, 3]).any()
    assert found.decode(found.encode(TEXTS[:3])) == TEXTS[:3]
    half = found.smaller(found.encode(TEXTS[:20]), 64, 400)
    by_cutting = [token_ids(Tokenizer.from_str(json.dumps(cut(found.document(), 400))), t, 64)[0] for t in TEXTS[:20]]
    np.testing.assert_array_equal(half, by_cutting)


def test_the_tokenizer_of_a_run_is_taken_as_it_is(known: TextPreprocess, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(known.tokenizer, encoding="utf-8")
    assert load_tokenizer(str(tmp_path / "tokenizer.json")) == known


@pytest.mark.parametrize("wrong", ["missing", "no json", "[]", '{"model": {"vocab": []}}', "words", "suffixes"])
def test_tokenizers_that_no_network_can_use(wrong: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    if wrong in ("words", "suffixes"):
        document = foreign_document(False)
        if wrong == "words":
            document["model"] = {"type": "WordPiece", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]"}
        else:
            document["model"]["end_of_word_suffix"] = "</w>"
        path.write_text(json.dumps(document))
    elif wrong != "missing":
        path.write_text(wrong)
    with pytest.raises(UserError) as error:
        load_tokenizer(str(path))
    assert "tokenizer.json" in str(error.value.hint)
