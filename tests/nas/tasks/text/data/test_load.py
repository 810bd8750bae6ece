"""Reading texts: every form, splits by content, and one sentence with a hint for what is wrong."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nas.data_options import DataOptions
from nas.errors import UserError
from nas.tasks import TASKS
from nas.tasks.text.data import TextData
from tests.nas.tasks.text.sentences import sentences, write_csv

TASK = TASKS["text"]
ROWS = sentences(240, 0)


def loaded(path: Path, **options: object) -> TextData:
    found = TASK.load(str(path), seed=0, options=DataOptions(**options))  # type: ignore[arg-type]
    assert isinstance(found, TextData)
    return found


def as_csv(folder: Path) -> Path:
    return write_csv(folder / "t.csv")


def as_gzipped_tsv(folder: Path) -> Path:
    text = "\n".join(["Label\tSentence", *(f"{label}\t{text}" for text, label in ROWS)])
    (folder / "t.tsv.gz").write_bytes(gzip.compress(text.encode()))
    return folder / "t.tsv.gz"


def as_json_lines(folder: Path) -> Path:
    lines = [json.dumps({"review": text, "class": label}) for text, label in ROWS]
    (folder / "t.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder / "t.jsonl"


def as_parquet(folder: Path) -> Path:
    import pandas as pd

    pd.DataFrame(ROWS, columns=["tweet", "target"]).to_parquet(folder / "t.parquet")
    return folder / "t.parquet"


def as_folder(folder: Path) -> Path:
    for number, (text, label) in enumerate(ROWS):
        (folder / "t" / label).mkdir(parents=True, exist_ok=True)
        (folder / "t" / label / f"{number}.txt").write_text(text, encoding="utf-8")
    return folder / "t"


@pytest.mark.parametrize("write", [as_csv, as_gzipped_tsv, as_json_lines, as_parquet, as_folder])
def test_every_form_holds_the_same(write: Callable[[Path], Path], tmp_path: Path) -> None:
    expected, found = loaded(as_csv(tmp_path)), loaded(write(tmp_path))
    assert found.classes == ("down", "up")
    assert found.preprocess == expected.preprocess
    for split in ("train", "val", "test"):
        one, other = getattr(found, split), getattr(expected, split)
        assert sorted(one.fingerprints) == sorted(other.fingerprints), "splits are drawn by content"
    assert write is as_folder or any("labels" in note for note in found.notes)


def test_the_tokenizer_may_be_given(tmp_path: Path) -> None:
    from nas.tasks.text.tokenizer import train_tokenizer

    own = train_tokenizer([text for text, _ in sentences(50, 3)], 400)
    (tmp_path / "tokenizer.json").write_text(own.tokenizer, encoding="utf-8")
    data = loaded(as_csv(tmp_path), tokenizer=str(tmp_path))
    assert data.preprocess == own
    assert any("that of" in note for note in data.notes)
    with pytest.raises(UserError, match="--tokenizer is not for classification"):
        TASKS["classification"].load("digits", seed=0, options=DataOptions(tokenizer="file"))


def test_a_text_more_moves_no_other(tmp_path: Path) -> None:
    before = loaded(as_csv(tmp_path))
    with (tmp_path / "t.csv").open("a") as file:
        file.write("\nba du ke lo mi,up")
    after = loaded(tmp_path / "t.csv")
    for split in ("train", "val", "test"):
        assert set(getattr(before, split).contents) <= set(getattr(after, split).contents)


def test_given_splits_are_taken_and_copies_dropped(tmp_path: Path) -> None:
    rows = [
        f"{'train' if n < 200 else 'dev' if n < 220 else 'test'},{label},{text}" for n, (text, label) in enumerate(ROWS)
    ]
    copied = rows[230].replace("test,", "train,", 1)
    (tmp_path / "t.csv").write_text("\n".join(["split,label,text", *rows, copied]), encoding="utf-8")
    data = loaded(tmp_path / "t.csv")
    assert (len(data.train), len(data.val), len(data.test)) == (200, 20, 20)
    assert any("1 training texts that are in another split" in note for note in data.notes)


def test_rare_classes_weigh_and_count_alike(tmp_path: Path) -> None:
    rows = [row for number, row in enumerate(sentences(600, 0)) if row[1] == "up" or number % 10 == 0]
    (tmp_path / "t.csv").write_text("\n".join(["text,label", *(f"{t},{k}" for t, k in rows)]), encoding="utf-8")
    data = loaded(tmp_path / "t.csv")
    assert TASK.metric_of(data) == "macro-F1"
    assert data.class_weights is not None
    assert data.class_weights[0] > data.class_weights[1]
    assert TASK.metric_of(loaded(tmp_path / "t.csv", metric="accuracy")) == "accuracy"
    assert TASK.metric_of(loaded(as_csv(tmp_path), metric="macro-f1")) == "macro-F1"
    assert any("times as many" in note for note in data.notes)


def test_numbers_are_classes_in_their_order(tmp_path: Path) -> None:
    lines = [f"{text},{number % 12}" for number, (text, _) in enumerate(ROWS)]
    (tmp_path / "t.csv").write_text("\n".join(["text,label", *lines]), encoding="utf-8")
    assert loaded(tmp_path / "t.csv").classes == tuple(map(str, range(12)))


SECRET = "zanzibar"
"""A word of a text: no message may hold it."""


def lines(*rows: str, header: str = "text,label") -> bytes:
    usual = [f"{text},{label}" for text, label in ROWS]
    return "\n".join([header, *usual, *rows]).encode()


@pytest.mark.parametrize(
    ("content", "told", "hint"),
    [
        (lines(header=f"{SECRET * 9},{SECRET * 9}"), "has no column of texts", "call it 'text'"),
        (lines(header="text,other"), "has no column of labels: its columns are 'text', 'other'", "call it 'label'"),
        (lines(f"{SECRET},sideways"), "class 'sideways' of data set 't' has fewer than 3 texts", "add texts"),
        (lines(f"{SECRET},"), "row 241 of .* has no label", "label it"),
        (lines(f"{SECRET},nan"), "row 241 of .* has no label", "label it"),
        (lines(*[f"{SECRET} {n},0.{n}" for n in range(9)]), "they are numbers or texts", "names of classes"),
        (lines(f"{SECRET},up,more"), "line 242 of .* has 3 fields, not 2", "quotes"),
        (lines(f'"{SECRET}"x,up'), "line 242 of .* cannot be read", "double the quotes"),
        (lines() + b"\n\xff\xfe,up", "is not text in UTF-8", "save it as UTF-8"),
        (b"text,label\na,up\nb,down", "data set 't' has 2 texts", "give 200 or more"),
        (lines().replace(b",down", b",up"), "has only one class", "at least two classes"),
        (b"text,label" + b"\n ,up\n ,down" * 150, "all texts of data set 't' are empty", "column of texts"),
        (b"", "has no column of texts: its columns are none", "call it 'text'"),
        (b"split," + lines().replace(b"\n", b"\nfirst,"), "row 1 of .* has an unknown split", "call splits train"),
        (b"split," + lines().replace(b"\n", b"\ntest,"), "has no training texts", "call their split 'train'"),
    ],
)  # fmt: skip
def test_bad_tables_are_answered_by_a_sentence(content: bytes, told: str, hint: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(UserError, match=told) as raised:
        loaded(tmp_path / "t.csv")
    assert hint in raised.value.hint
    assert SECRET * 3 not in str(raised.value), "no more of a row than a column's name could be"


def test_other_bad_input(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"text": "a", "label": 1}\n{"text": \n')
    with pytest.raises(UserError, match=r"line 2 of .* is no JSON"):
        loaded(tmp_path / "t.jsonl")
    (tmp_path / "t.jsonl").write_text('{"text": 7, "label": 1}\n' * 300)
    with pytest.raises(UserError, match=r"the text of row 1 of .* is a int"):
        loaded(tmp_path / "t.jsonl")
    (tmp_path / "t.parquet").write_bytes(b"PAR1 and nothing")
    with pytest.raises(UserError, match="is no parquet file"):
        loaded(tmp_path / "t.parquet")
    (tmp_path / "t.png").write_bytes(b"")
    with pytest.raises(UserError, match="is no table of texts"):
        loaded(tmp_path / "t.png")
    with pytest.raises(UserError, match="there is no file or folder"):
        loaded(tmp_path / "absent.csv")
    (tmp_path / "cats").mkdir()
    (tmp_path / "cats" / "1.jpg").write_bytes(b"")
    with pytest.raises(UserError, match=r"there are no \.txt files"):
        loaded(tmp_path)
    with pytest.raises(UserError, match="--metric balanced-accuracy is not for text"):
        loaded(as_csv(tmp_path), metric="balanced-accuracy")
    with pytest.raises(UserError, match="--fit is not for text"):
        loaded(as_csv(tmp_path), fit="crop")
    with pytest.raises(UserError, match="--metric macro-f1 is for texts"):
        TASKS["classification"].load("digits", seed=0, options=DataOptions(metric="macro-f1"))


def test_what_is_searched_follows_the_data(tmp_path: Path) -> None:
    from search_spaces import resolve_space

    data, space = loaded(as_csv(tmp_path)), resolve_space("text")
    found = TASK.searchable(space, data, {}).restrictions
    lengths = (data.train.ids != 0).sum(axis=1)
    assert max(found["tokens"]) >= np.quantile(lengths, 0.99)
    assert found["vocab"] == (1000,), "the data have no more"
    assert TASK.searchable(space, data, {"tokens": [64]}).restrictions["tokens"] == (64,)
    with pytest.raises(UserError, match="--resolution is for images"):
        TASK.searchable(space, data, {"resolution": [224]})
