"""A teacher's answers to texts, asked for once and kept; see `nas.tasks.teaching`.

Teachers read what the data's tokenizer keeps of a text (in lower case, at most 127 tokens), as the texts themselves are
kept nowhere.
"""

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from nas.data.contents import content_of
from nas.errors import UserError
from nas.files.cache import user_cache
from nas.files.tensors import load_tensors, save_tensors
from nas.progress import Progress
from nas.tasks.floor import guessing
from nas.tasks.teaching import OwnTeacher
from nas.tasks.text.checkpoint import is_checkpoint, load_checkpoint
from nas.tasks.text.data import TextData, TextSplit
from nas.tasks.text.data.unlabelled import read_unlabelled
from nas.tasks.text.evaluate import merit, merit_of
from nas.tasks.text.tokenizer import TextPreprocess
from nas.text import duration, percent

Logits = NDArray[np.float32]
AT_ONCE = 64
"""Texts between two looks at the clock."""
SAVED_EACH_S = 30.0
"""Seconds of answering that are lost at most where the process is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """A teacher that can be asked about texts."""

    name: str
    key: str
    """Another one for every teacher that may answer otherwise; a file's name."""
    answer: Callable[[Sequence[str]], Logits]
    """Logits (n, c) of n texts, classes in the order of the data."""
    remark: str = ""
    """What a reader of the result should know of it."""


class TextTeaching:
    """See `nas.tasks.teaching.Teaching`."""

    def foreign(self, text: str) -> bool:
        return is_checkpoint(text)

    def taught(
        self, data: TextData, teacher: OwnTeacher | str, *, unlabelled: str | None, within_s: float, progress: Progress
    ) -> TextData:
        if isinstance(teacher, str):
            checkpoint = load_checkpoint(teacher, data.classes)
            asked = Answering(
                name=teacher, key=checkpoint.sha256, answer=checkpoint.logits, remark=checkpoint.remark
            )  # fmt: skip
        else:
            asked = of_network(teacher, data.preprocess)
        more, notes = (None, []) if unlabelled is None else further_texts(data, unlabelled)
        splits = [data.train, data.val, *([more] if more is not None else [])]
        texts = [text for split in splits for text in data.preprocess.decode(split.ids)]
        logits = answers(asked, texts, len(data.classes), within_s=within_s, progress=progress)
        own, val, others = np.split(logits, [len(data.train), len(data.train) + len(data.val)])
        notes = [require_knowledge(asked.name, val, data), *notes]
        notes += [asked.remark] if asked.remark else []
        return replace(data, train=with_answers(data.train, own, more, others), notes=(*data.notes, *notes))


def of_network(teacher: OwnTeacher, own: TextPreprocess) -> Answering:
    """A text classifier of this program; `own` is the data's tokenizer, for one that brings none."""
    preprocess: TextPreprocess = teacher.preprocess or own
    tokens, vocabulary = teacher.input.shape[0], teacher.input.values
    if vocabulary is None:
        raise UserError(f"the teacher {teacher.name!r} takes no token ids", "give a network for texts")

    def answer(texts: Sequence[str]) -> Logits:
        ids = preprocess.smaller(preprocess.encode(texts), tokens, vocabulary)
        with torch.inference_mode():
            found: Logits = teacher.network(torch.from_numpy(ids.astype(np.int64))).float().numpy()
        return found

    tokenizer = hashlib.sha256(preprocess.tokenizer.encode()).hexdigest()
    key = hashlib.sha256(f"{teacher.sha256} {tokenizer} {teacher.input}".encode()).hexdigest()
    return Answering(name=teacher.name, key=key, answer=answer)


def answers(
    teacher: Answering, texts: Sequence[str], classes: int, *, within_s: float, progress: Progress
) -> Logits:  # fmt: skip
    """Logits (n, c) of n texts. What was answered before is read from the user's cache, what is answered now is kept
    there, under hashes of the texts.

    Raises:
        UserError: all of them would take longer than `within_s`.
    """
    path = user_cache() / "answers" / f"{teacher.key[:32]}.safetensors"
    known = _kept(path, classes)
    keys = [content_of(text.encode("utf-8", "replace")) for text in texts]
    by_key = dict(zip(keys, texts, strict=True))
    missing = [key for key in by_key if key not in known]
    begun = saved = time.monotonic()
    if missing:
        with progress.stage(f"answers of {teacher.name}", len(missing)) as stage:
            for start in range(0, len(missing), AT_ONCE):
                part = missing[start : start + AT_ONCE]
                found = teacher.answer([by_key[key] for key in part])
                known.update(zip(part, found, strict=True))
                stage.advance(len(part))
                now = time.monotonic()
                whole_s = (now - begun) * len(missing) / (start + len(part))
                if whole_s > within_s and start == 0:
                    raise UserError(
                        f"the teacher {teacher.name!r} takes about {duration(whole_s)} to answer {len(missing)} texts, "
                        f"and {duration(within_s)} of the budget are for that",
                        "give a longer --budget, a faster teacher, or fewer --unlabelled texts",
                    )
                if now - saved > SAVED_EACH_S:
                    _keep(path, known)
                    saved = now
        _keep(path, known)
    return np.array([known[key] for key in keys], np.float32).reshape(len(keys), classes)


def with_answers(train: TextSplit, own: Logits, more: TextSplit | None, others: Logits) -> TextSplit:
    """Training texts with a teacher's answers (n, c), and `more` ones whose labels are its answers."""
    given = np.ones(len(train), np.bool_)
    if more is None:
        return replace(train, taught=own, given=given)
    return replace(
        train,
        ids=np.concatenate([train.ids, more.ids]),
        labels=np.concatenate([train.labels, others.argmax(axis=1).astype(np.int64)]),
        contents=np.concatenate([train.contents, more.contents]),
        taught=np.concatenate([own, others]),
        given=np.concatenate([given, np.zeros(len(more), np.bool_)]),
    )


def further_texts(data: TextData, name: str) -> tuple[TextSplit | None, list[str]]:
    """Texts without labels as a split whose labels mean nothing (None where all of them are in `data`), and remarks.

    Each is taken once, and none that is in the data: a validation or test text would no longer be new to a network.
    """
    texts = read_unlabelled(name)
    contents = [content_of(text.encode("utf-8", "replace")) for text in texts]
    known = {int(content) for split in (data.train, data.val, data.test) for content in split.contents}
    fresh = {content: text for content, text in zip(contents, texts, strict=True) if content not in known}
    left = len(texts) - len(fresh)
    notes = [f"{len(fresh)} texts without labels were answered by the teacher"]
    notes += [f"{left} texts without labels were left out: they are in the data, or there twice"] if left else []
    if not fresh:
        return None, notes[1:]
    ids = data.preprocess.encode(list(fresh.values()))
    labels = np.zeros(len(fresh), np.int64)
    return TextSplit(ids, labels, np.fromiter(fresh, np.uint64, len(fresh)), data.preprocess.size), notes


def require_knowledge(name: str, logits: Logits, data: TextData) -> str:
    """A remark on how right a teacher's answers (n, c) to the validation texts are; raises `UserError` where they are
    no better than guessing, as those of a teacher with its classes in another order are not."""
    found, guess = merit_of(logits, data.val), guessing(data.train, data.val, data.test, merit)
    if found <= guess.accuracy:
        raise UserError(
            f"the teacher {name!r} is right for {percent(found)} of the validation texts, and guessing for "
            f"{percent(guess.accuracy)}",
            f"give one for these classes, in this order: {', '.join(data.classes[:8])}",
        )
    return f"the teacher {name} answers {percent(found)} of the validation texts right"


def _kept(path: Path, classes: int) -> dict[int, Logits]:
    if not path.is_file():
        return {}
    try:
        tensors, _ = load_tensors(path)
        contents, logits = tensors["contents"].numpy().view(np.uint64), tensors["logits"].numpy()
    except (UserError, KeyError):
        return {}  # it is asked again
    if logits.ndim != 2 or logits.shape != (len(contents), classes):
        return {}
    return dict(zip(contents.tolist(), logits, strict=True))


def _keep(path: Path, known: dict[int, Logits]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    contents = np.fromiter(known, np.uint64, len(known)).view(np.int64)
    logits = np.stack(list(known.values())).astype(np.float32)
    save_tensors(path, {"contents": torch.from_numpy(contents), "logits": torch.from_numpy(logits)}, {})
