"""Texts in tables: csv, tsv, JSON lines (each also gzipped) and parquet. No message ever quotes a row."""

import csv
import gzip
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any, TextIO

from nas.errors import UserError

MAX_ROWS = 2_000_000
"""Rows of a table at most: their ids alone take 1 GB."""
MAX_FIELD = 10_000_000
"""Characters of a field of a csv file at most."""
TEXT_NAMES = ("text", "sentence", "tweet", "review", "comment", "content", "message", "document")
LABEL_NAMES = ("label", "class", "target", "category", "sentiment")
SPLIT_NAMES = ("split", "fold", "subset")
SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
_SHOWN, _SHOWN_CHARACTERS = 8, 20
"""Columns that a message names, and how much of each: where there is no header they are a row."""

Row = tuple[Any, Any, Any]
"""Text, label (None where labels are not asked for), and split (None without such a column), as the file has them."""


def is_table(path: Path) -> bool:
    """True for the name of a file that `read_table` may read."""
    return _kind(path) in SUFFIXES


def read_table(path: Path, *, labels: bool = True) -> tuple[list[Row], str]:
    """All rows of a table, and a sentence that says which columns were taken.

    Args:
        path: the table.
        labels: False where a column of labels is neither needed nor read.

    Raises:
        UserError: the file cannot be read, or has no column of texts or of labels.
    """
    kind = _kind(path)
    try:
        if kind == ".parquet":
            return _of_parquet(path, labels)
        with _opened(path) as file:
            if kind in (".csv", ".tsv"):
                return _of_csv(file, path, "\t" if kind == ".tsv" else ",", labels)
            return _of_json_lines(file, path, labels)
    except UnicodeDecodeError as error:
        raise UserError(f"'{path}' is not text in UTF-8 (byte {error.start})", "save it as UTF-8") from error
    except (OSError, EOFError) as error:
        raise UserError(f"cannot read '{path}': {error}", "give a table of texts and labels") from error


def _kind(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return suffixes[-2] if len(suffixes) > 1 and suffixes[-1] == ".gz" else (suffixes or [""])[-1]


def _opened(path: Path) -> TextIO:
    if path.suffix.lower() == ".gz":
        return io.TextIOWrapper(gzip.open(path, "rb"), encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _of_csv(file: TextIO, path: Path, delimiter: str, labels: bool) -> tuple[list[Row], str]:
    csv.field_size_limit(MAX_FIELD)
    reader = csv.reader(file, delimiter=delimiter, strict=True)
    try:
        header = next(reader, [])
        text, label, split = _columns(header, path, labels)
        rows: list[Row] = []
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                raise UserError(
                    f"line {reader.line_num} of '{path}' has {len(row)} fields, not {len(header)}",
                    "put texts that hold the delimiter into quotes",
                )
            named, part = (None if at is None else row[at] for at in (label, split))
            rows.append((row[text], named, part))
            _check_rows(len(rows), path)
    except csv.Error as error:
        raise UserError(
            f"line {reader.line_num} of '{path}' cannot be read: {error}", "double the quotes inside quoted texts"
        ) from error
    return rows, _taken(header, text, label, split)


def _of_json_lines(file: TextIO, path: Path, labels: bool) -> tuple[list[Row], str]:
    rows: list[Row] = []
    names: list[str] = []
    text = 0
    label: int | None = None
    split: int | None = None
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        try:
            document = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"line {number} of '{path}' is no JSON", 'write {"text": ..., "label": ...}') from error
        if not isinstance(document, dict):
            raise UserError(f"line {number} of '{path}' is no table", 'write {"text": ..., "label": ...}')
        if not names:
            names = list(document)
            text, label, split = _columns(names, path, labels)
        named, part = (_value(document, names, at) for at in (label, split))
        rows.append((document.get(names[text]), named, part))
        _check_rows(len(rows), path)
    if not names:
        raise UserError(f"'{path}' is empty", 'write lines like {"text": ..., "label": ...}')
    return rows, _taken(names, text, label, split)


def _value(document: Mapping[str, Any], names: Sequence[str], column: int | None) -> Any:
    return None if column is None else document.get(names[column])


def _of_parquet(path: Path, labels: bool) -> tuple[list[Row], str]:
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
        _check_rows(file.metadata.num_rows, path)
        names = list(file.schema_arrow.names)
        text, label, split = _columns(names, path, labels)
        table = file.read(columns=[names[at] for at in (text, label, split) if at is not None])
    except (pyarrow.ArrowException, NotImplementedError) as error:
        raise UserError(f"'{path}' is no parquet file: {type(error).__name__}", "write it again") from error
    columns: list[Iterator[Any]] = [
        repeat(None, table.num_rows) if at is None else iter(table.column(names[at]).to_pylist())
        for at in (text, label, split)
    ]
    rows = list(zip(*columns, strict=True))
    return rows, _taken(names, text, label, split)


def _check_rows(count: int, path: Path) -> None:
    if count > MAX_ROWS:
        raise UserError(f"'{path}' has more than {MAX_ROWS:,} rows", "give a sample of them: memory would not suffice")


def _columns(names: Sequence[str], path: Path, labels: bool) -> tuple[int, int | None, int | None]:
    """Positions of the columns of texts, labels (None where these are not asked for) and splits, by their names."""
    places = {str(name).strip().lower(): at for at, name in reversed(list(enumerate(names)))}

    def place(known: Sequence[str]) -> int | None:
        return next((places[name] for name in known if name in places), None)

    text, label, split = place(TEXT_NAMES), place(LABEL_NAMES) if labels else None, place(SPLIT_NAMES)
    for what, found, known in (("texts", text, TEXT_NAMES), ("labels", label, LABEL_NAMES)):
        if found is None and (labels or known is TEXT_NAMES):
            shown = ", ".join(repr(str(name)[:_SHOWN_CHARACTERS]) for name in names[:_SHOWN]) or "none"
            raise UserError(
                f"'{path}' has no column of {what}: its columns are {shown}",
                f"call it {known[0]!r} in the first line (or {', '.join(map(repr, known[1:4]))})",
            )
    assert text is not None
    return text, label, split


def _taken(names: Sequence[str], text: int, label: int | None, split: int | None) -> str:
    more = (("labels", label), ("splits", split))
    parts = (f"{what} {names[at]!r}" for what, at in more if at is not None)
    return ", ".join([f"texts are the column {names[text]!r}", *parts])
