"""From a text to token ids and from logits to an answer with numpy and `tokenizers` alone: in `run.py`, and here."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

MAX_CHARACTERS = 20_000
"""What comes behind them cannot be among the tokens of any network, and would only take time."""
PAD, CLS, MASK = 0, 2, 3
"""Ids: what texts are filled up with, what each begins with, and what stands for a token that is not told."""


def cut(document: Mapping[str, Any], vocabulary: int) -> dict[str, Any]:
    """The `tokenizer.json` of the first `vocabulary` entries: what was merged into a later one stays apart."""
    model = document["model"]
    known = {token: number for token, number in model["vocab"].items() if number < vocabulary}
    merges = [pair for pair in model.get("merges", ()) if "".join(pair) in known]
    return {**document, "model": {**model, "vocab": known, "merges": merges}}


def token_ids(tokenizer: Tokenizer, text: str, tokens: int) -> NDArray[np.int64]:
    """(1, tokens) ids of a text: `CLS`, its first tokens, and `PAD` as often as needed."""
    known = text[:MAX_CHARACTERS].encode("utf-8", "replace").decode("utf-8")
    found = [CLS, *tokenizer.encode(known, add_special_tokens=False).ids][:tokens]
    return np.array([found + [PAD] * (tokens - len(found))], dtype=np.int64)


def postprocess(output: NDArray[np.float32], labels: Sequence[str]) -> list[dict[str, Any]]:
    """Every class with its probability, the most probable first, of logits (c,); of equal ones the first, as accuracies
    count them: the answers of an int8 network have few values."""
    shares = np.exp(output - output.max())
    shares = shares / shares.sum()
    order = np.argsort(-output, kind="stable")
    return [
        {"label": labels[at], "score": score} for at, score in zip(order.tolist(), shares[order].tolist(), strict=True)
    ]
