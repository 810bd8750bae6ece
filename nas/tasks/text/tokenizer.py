"""Byte-level byte-pair encoding, trained on the training texts: deterministic, and its vocabularies are nested.

A merge makes one token of two earlier ones (Sennrich et al. 2016, https://arxiv.org/abs/1508.07909), here of bytes
(Radford et al. 2019), so that every text has tokens and none is unknown. The tokenizer with `v` entries does what the
one with more entries does before it uses the others: tokens of a large vocabulary are taken apart into those of a
smaller one, without looking at texts again.
"""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nas.errors import UserError
from nas.tasks.text.portable import CLS, MAX_CHARACTERS, PAD

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # it warns, or hangs, in processes that are forked

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[MASK]")
"""The first ids; no text is ever encoded to them, whatever it says."""
BYTES = 256
"""Tokens that are one byte; they come next."""
LARGEST = 8000
"""Entries of a trained vocabulary at most."""
LONGEST = 128
"""Tokens that are kept of a text at most: as many as any network takes."""
_HINT = "give a tokenizer.json that the library `tokenizers` of this version reads, with byte-pair encoding"

Ids = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class TextPreprocess:
    """How a text becomes token ids: a `tokenizer.json`, compared by its text."""

    tokenizer: str = field(repr=False)
    """The JSON document as `canonical` writes it."""

    def document(self) -> dict[str, Any]:
        """The document as values."""
        found: dict[str, Any] = json.loads(self.tokenizer)
        return found

    @property
    def size(self) -> int:
        """Entries of the vocabulary."""
        return len(_loaded(self.tokenizer)[1])

    def encode(self, texts: Sequence[str]) -> Ids:
        """(n, `LONGEST`) ids of texts in the whole vocabulary: `CLS`, the first tokens, `PAD`."""
        tokenizer, _ = _loaded(self.tokenizer)
        known = [text[:MAX_CHARACTERS].encode("utf-8", "replace").decode("utf-8") for text in texts]
        found = np.full((len(texts), LONGEST), PAD, np.int32)
        for row, encoded in zip(found, tokenizer.encode_batch(known, add_special_tokens=False), strict=True):
            ids = encoded.ids[: LONGEST - 1]
            row[0], row[1 : 1 + len(ids)] = CLS, ids
        return found

    def decode(self, ids: Ids) -> list[str]:
        """The texts (in lower case, and no longer than `LONGEST` tokens) that (n, tokens) ids stand for."""
        tokenizer, _ = _loaded(self.tokenizer)
        special = len(SPECIAL)
        return [tokenizer.decode([int(i) for i in row if i >= special]).strip() for row in ids]

    def members(self, vocabulary: int) -> list[tuple[int, ...]]:
        """For each of the first `vocabulary` tokens, itself and all tokens longer than a byte that it was merged of."""
        pairs, single = _pairs(self.tokenizer), len(SPECIAL) + BYTES
        found: list[tuple[int, ...]] = []
        for token in range(min(vocabulary, self.size)):
            inside = {part for half in pairs.get(token, ()) for part in found[half] if part >= single}
            found.append((token, *sorted(inside)))
        return found

    def smaller(self, ids: Ids, tokens: int, vocabulary: int) -> Ids:
        """(n, tokens) ids in the first `vocabulary` entries, from (n, t) ids in the whole one.

        Raises:
            ValueError: more tokens are asked for than `ids` have.
        """
        if tokens > ids.shape[1]:
            raise ValueError(f"{ids.shape[1]} tokens of each text are kept, {tokens} were asked for")
        if vocabulary >= self.size:
            return np.ascontiguousarray(ids[:, :tokens])
        flat, starts = _parts(self.tokenizer, vocabulary)
        lengths = np.diff(starts)[ids] * (ids != PAD)
        ends = lengths.cumsum(axis=1)
        found = np.full((len(ids), tokens), PAD, np.int32)
        # For each place of the shorter form: which token it is a part of, and which part.
        for place in range(tokens):
            which = (ends <= place).sum(axis=1)
            there = which < ids.shape[1]
            at = np.minimum(which, ids.shape[1] - 1)[:, None]
            first = np.take_along_axis(ends - lengths, at, 1)[:, 0]
            token = np.take_along_axis(ids, at, 1)[:, 0]
            found[there, place] = flat[(starts[token] + place - first)[there]]
        return found


def train_tokenizer(texts: Iterable[str], size: int = LARGEST) -> TextPreprocess:
    """The tokenizer of at most `size` entries that is learnt from `texts`; the same for the same texts in any order.

    Texts are brought to NFKC and lower case. Of several merges with one result only the first is kept, which makes
    every token a pair of earlier ones in one way alone.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    known = (text[:MAX_CHARACTERS].encode("utf-8", "replace").decode("utf-8") for text in texts)
    tokenizer.train_from_iterator(known, trainer)
    document = json.loads(tokenizer.to_str())
    document["added_tokens"] = []  # or a text that says "[PAD]" would be encoded to it
    first: dict[str, list[str]] = {}
    for pair in document["model"]["merges"]:
        first.setdefault("".join(pair), pair)
    document["model"]["merges"] = list(first.values())
    return TextPreprocess(canonical(document))


def read_tokenizer(text: str, name: str) -> TextPreprocess:
    """The tokenizer of a `tokenizer.json`; raises `UserError` where it is none that networks of ours can use."""
    try:
        document = json.loads(text)
        found = TextPreprocess(canonical(document))
        _, names = _loaded(found.tokenizer)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UserError(f"'{name}' is no tokenizer: {type(error).__name__}", _HINT) from error
    if document["model"].get("type") != "BPE" or any(names.get(token) != at for at, token in enumerate(SPECIAL)):
        raise UserError(f"the vocabulary of '{name}' does not begin with {', '.join(SPECIAL)}", _HINT)
    return found


def canonical(document: Any) -> str:
    """The one way to write a tokenizer's document."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


@lru_cache(maxsize=8)
def _loaded(text: str) -> tuple[Any, dict[str, int]]:
    """The tokenizer of a document and its vocabulary; raises `ValueError` where it is none."""
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_str(text)
    except Exception as error:
        raise ValueError(str(error)) from error
    names = tokenizer.get_vocab(with_added_tokens=False)
    if sorted(names.values()) != list(range(len(names))):
        raise ValueError("ids that are not counted from 0")
    return tokenizer, names


@lru_cache(maxsize=8)
def _parts(text: str, vocabulary: int) -> tuple[Ids, NDArray[np.int64]]:
    """The tokens below `vocabulary` that a token consists of: of token i those are `flat[starts[i]:starts[i + 1]]`."""
    pairs = _pairs(text)
    parts: list[tuple[int, ...]] = []
    for token in range(len(_loaded(text)[1])):
        if token < vocabulary:
            parts.append((token,))
        else:
            left, right = pairs[token]
            parts.append(parts[left] + parts[right])
    starts = np.cumsum([0, *map(len, parts)])
    return np.array([i for part in parts for i in part], dtype=np.int32), starts


@lru_cache(maxsize=8)
def _pairs(text: str) -> dict[int, tuple[int, int]]:
    """The two tokens that each merged token is made of."""
    model = json.loads(text)["model"]
    names = model["vocab"]
    return {names["".join(pair)]: (names[pair[0]], names[pair[1]]) for pair in model["merges"]}
