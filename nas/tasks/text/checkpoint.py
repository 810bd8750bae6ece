"""Classifiers of the library `transformers` as teachers: a folder with config.json, safetensors and a tokenizer.

Nothing is downloaded, no code of the folder runs and nothing is unpickled.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from nas.errors import UserError
from nas.files.writing import sha256_of

if TYPE_CHECKING:
    from torch import nn

LONGEST = 512
"""Tokens of a text at most."""
_HINT = "give a folder that AutoModelForSequenceClassification.save_pretrained and the tokenizer's wrote"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Checkpoint:
    """A trained classifier with its own tokenizer."""

    network: "nn.Module"
    tokenizer: Any
    order: tuple[int, ...]
    """For each class of the data its place among the network's outputs."""
    sha256: str
    """Of its weights, tokenizer and order of classes."""
    remark: str
    """Empty, or how its classes were understood."""

    def logits(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(n, c) of n texts, classes in the order of the data."""
        longest = min(LONGEST, int(self.tokenizer.model_max_length))
        some = [text if text.strip() else "." for text in texts]  # a text without tokens has no answer
        encoded = self.tokenizer(some, padding=True, truncation=True, max_length=longest, return_tensors="pt")
        with torch.inference_mode():
            found: NDArray[np.float32] = self.network(**encoded).logits.float().numpy()
        return found[:, list(self.order)]


def is_checkpoint(text: str) -> bool:
    """True for a folder whose config.json says what kind of model of `transformers` it holds."""
    try:
        document = json.loads((Path(text).expanduser() / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(document, dict) and isinstance(document.get("model_type"), str)


def load_checkpoint(text: str, classes: Sequence[str]) -> Checkpoint:
    """The classifier in the folder `text`, for data with these classes.

    Its classes are matched by name; where the names are others but as many, by their order, and the remark says so.

    Raises:
        UserError: transformers is not installed, the folder lacks a file or holds a pickle, its model needs code of its
            own, or it has another number of classes.
    """
    folder = Path(text).expanduser()
    weights = sorted(folder.glob("model*.safetensors"))
    if not weights:
        raise UserError(f"the teacher '{text}' has no model.safetensors", _HINT)
    try:
        from transformers import AutoModelForSequenceClassification, AutoTokenizer
        from transformers.utils.logging import disable_progress_bar
    except ImportError as error:
        raise UserError(
            f"the teacher '{text}' needs the package transformers", "pip install 'hardware-nas[teacher]'"
        ) from error
    disable_progress_bar()
    try:
        network: Any = AutoModelForSequenceClassification.from_pretrained(
            str(folder), local_files_only=True, use_safetensors=True, trust_remote_code=False
        )
        tokenizer: Any = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise UserError(f"the teacher '{text}' cannot be loaded: {reason or type(error).__name__}", _HINT) from error
    if tokenizer.pad_token is None:  # of models that were trained to go on with a text
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
        network.config.pad_token_id = tokenizer.pad_token_id
    names = [str(network.config.id2label[at]) for at in range(network.config.num_labels)]
    order, remark = matched(text, names, classes)
    network.requires_grad_(False).eval()
    sums = [sha256_of(path) for path in (*weights, *sorted(folder.glob("tokenizer*.json")), folder / "config.json")]
    checksum = hashlib.sha256(" ".join([*sums, *map(str, order)]).encode()).hexdigest()
    return Checkpoint(network=network, tokenizer=tokenizer, order=order, sha256=checksum, remark=remark)


def matched(text: str, names: Sequence[str], classes: Sequence[str]) -> tuple[tuple[int, ...], str]:
    """For each class its place among a teacher's `names`, and a remark where these say nothing.

    Raises `UserError` where there are more or fewer names than classes.
    """
    if len(names) != len(classes):
        raise UserError(
            f"the teacher '{text}' knows {len(names)} classes, the data have {len(classes)}",
            "give a teacher that was trained for these classes",
        )
    places = {name.strip().lower(): at for at, name in enumerate(names)}
    wanted = [label.strip().lower() for label in classes]
    if set(wanted) == set(places) and len(places) == len(names):
        return tuple(places[label] for label in wanted), ""
    pairs = ", ".join(f"{label} is its {name}" for label, name in list(zip(classes, names, strict=True))[:4])
    return tuple(range(len(names))), f"the teacher's classes have other names, and were taken in their order: {pairs}"
