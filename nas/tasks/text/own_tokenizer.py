"""A tokenizer that a user brings: of an earlier run, or a byte-level byte-pair encoding that others trained."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nas.errors import UserError
from nas.tasks.text.tokenizer import LARGEST, SPECIAL, TextPreprocess, canonical, read_tokenizer

TOKENIZER = "tokenizer.json"
LARGEST_FILE = 64_000_000
"""Bytes of a file that is read at most: a vocabulary of 250,000 tokens takes 17 MB."""
_HINT = "give the tokenizer.json of a run of this program, or of a byte-level byte-pair encoding (GPT-2, RoBERTa)"


def load_tokenizer(name: str) -> TextPreprocess:
    """The tokenizer in a `tokenizer.json` or its folder.

    One of this program is taken as it is. Of another byte-level encoding the bytes and the first merges are taken, as
    many as vocabularies of networks have entries, behind the special tokens that networks here know.

    Raises:
        UserError: it cannot be read, or is of another kind.
    """
    path = Path(name).expanduser()
    path = path / TOKENIZER if path.is_dir() else path
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise UserError(f"'{path}' is larger than {LARGEST_FILE / 1e6:.0f} MB: that is no tokenizer", _HINT)
        text = path.read_text(encoding="utf-8")
        document = json.loads(text)
    except OSError as error:
        raise UserError(f"cannot read the tokenizer '{path}': {error.strerror}", _HINT) from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"'{path}' is no JSON in UTF-8", _HINT) from error
    model = document.get("model") if isinstance(document, Mapping) else None
    if not isinstance(model, Mapping) or not isinstance(model.get("vocab"), Mapping):
        raise UserError(f"'{path}' is no tokenizer with byte-pair encoding", _HINT)
    if all(model["vocab"].get(token) == at for at, token in enumerate(SPECIAL)):
        return read_tokenizer(text, str(path))
    return read_tokenizer(canonical(adopted(document, str(path))), str(path))


def adopted(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A foreign byte-level encoding's document with our special tokens first, then the bytes, then its first merges.

    Raises `UserError` where it is of another kind.
    """
    from tokenizers import pre_tokenizers

    model = document["model"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    marked = model.get("end_of_word_suffix") or model.get("continuing_subword_prefix")
    if model.get("type", "BPE") != "BPE" or marked or not set(alphabet) <= set(model["vocab"]):
        raise UserError(f"the tokenizer '{name}' is no byte-level byte-pair encoding", _HINT)
    entries = [*SPECIAL, *alphabet]
    known, merges = set(alphabet), []
    for pair in _pairs(model.get("merges")):
        merged = "".join(pair)
        # Of several merges with one result the first is kept, and parts come before what is made of them.
        if len(entries) < LARGEST and merged not in known and known.issuperset(pair):
            known.add(merged)
            entries.append(merged)
            merges.append(list(pair))
    vocabulary = {token: at for at, token in enumerate(entries)}
    own = {**model, "vocab": vocabulary, "merges": merges, "unk_token": None, "ignore_merges": False}
    rest: dict[str, Any] = {"added_tokens": [], "post_processor": None, "truncation": None, "padding": None}
    return {**document, **rest, "model": own}


def _pairs(merges: Any) -> Iterator[tuple[str, str]]:
    """Merges as pairs; older files write them in one string."""
    for merge in merges if isinstance(merges, list) else ():
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(part, str) for part in pair):
            yield pair[0], pair[1]
