"""Answers of a network on texts, in torch and in any runtime, and how right they are."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from nas.errors import UserError
from nas.tasks.text import answers, macro_f1
from nas.tasks.text.data import TextSplit
from nas.training.precision import Precision, autocast, resolve_device

_BATCH = 256


def logits_of(
    network: nn.Module, split: TextSplit, *, device: str = "auto", precision: Precision = "fp32"
) -> NDArray[np.float32]:
    """Logits (n, c) of a network on `device`, which is left in evaluation mode. Raises `UserError` without texts."""
    _require_texts(split)
    where = resolve_device(device)
    network.eval()
    found = []
    with torch.inference_mode(), autocast(where, precision):
        for start in range(0, len(split), _BATCH):
            ids = torch.from_numpy(split.ids[start : start + _BATCH].astype(np.int64)).to(where)
            found.append(network(ids).float().cpu().numpy())
    return np.concatenate(found)


def logits_in_runtime(
    run: Callable[[NDArray[np.int64]], NDArray[np.float32]], split: TextSplit, *, batch: int = 1
) -> NDArray[np.float32]:
    """Logits (n, c) of an exported network; `run` always gets exactly `batch` texts, the last ones filled up with
    copies that do not count. Raises `UserError` without texts."""
    _require_texts(split)
    found = []
    for start in range(0, len(split), batch):
        ids = split.ids[start : start + batch].astype(np.int64)
        filled = np.concatenate([ids, np.repeat(ids[-1:], batch - len(ids), axis=0)])
        found.append(np.array(run(filled)[: len(ids)]))
    return np.concatenate(found)


def accuracy(found: NDArray[np.int64], split: TextSplit) -> float:
    """Share of right answers among `found` (n,), -1 for none."""
    return float((found == split.labels).mean())


def merit(found: NDArray[np.int64], split: TextSplit) -> float:
    """The figure that networks are compared by: accuracy of the answers (n,), or macro-F1 where classes are
    unbalanced."""
    return macro_f1(found, split.labels) if split.unbalanced else accuracy(found, split)


def merit_of(logits: NDArray[np.float32], split: TextSplit) -> float:
    """`merit` of the answers that logits (n, c) are."""
    return merit(answers(logits), split)


def _require_texts(split: TextSplit) -> None:
    if len(split) == 0:
        raise UserError("there are no texts to measure accuracy on", "give a split with at least one text")
