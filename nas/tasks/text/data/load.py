"""From a file or folder of texts to data with three splits and a tokenizer."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nas.data.contents import content_of, hold_out
from nas.data.images import SPLITS, SplitName
from nas.data.splits import HOLDOUT_FRACTION, class_weights
from nas.data_options import MACRO, MACRO_F1, USUAL, DataOptions, refuse
from nas.errors import UserError
from nas.tasks.text.data.tables import SUFFIXES, is_table, read_table
from nas.tasks.text.data.values import TextData, TextSplit
from nas.tasks.text.own_tokenizer import load_tokenizer
from nas.tasks.text.tokenizer import TextPreprocess, train_tokenizer

UNBALANCED = 3.0
"""Texts of the most frequent class by those of the rarest one, from which classes weigh and count alike."""
LEAST_TEXTS, LEAST_OF_CLASS = 200, 3
MOST_CLASSES = 1000
"""Labels of more kinds are numbers to be predicted, not classes."""
_SPLIT_NAMES: Mapping[str, SplitName] = {
    "train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "dev": "val",
    "test": "test", "testing": "test",
}  # fmt: skip
_FORMS = "give a csv, tsv, jsonl or parquet file with texts and labels, or a folder with a sub-folder of .txt per class"


@dataclass(slots=True)
class _Texts:
    """Texts of one split while they are read."""

    texts: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)


def load_texts(name_or_path: str, *, seed: int, options: DataOptions = USUAL) -> TextData:
    """The data of a table (see `nas.tasks.text.data.tables`), or of a folder with a sub-folder of `.txt` files for each
    class, or with `train/`, `val/` and `test/` of that form.

    Splits that the source lacks are held out of its training texts, by content and `seed`, as those of images are.

    Raises:
        UserError: it cannot be read, or nothing can be learnt from it.
    """
    refuse(options, "text", "flip", "flip_anyway", "fit", "max_resolution")
    if options.balanced:
        raise UserError("--metric balanced-accuracy is not for text", "give --metric accuracy or macro-f1, or neither")
    path = Path(name_or_path).expanduser()
    if path.is_dir():
        found, notes = _of_folder(path), []
    elif path.is_file() and is_table(path):
        found, taken = _of_table(path)
        notes = [taken]
    elif path.exists():
        raise UserError(f"'{path}' is no table of texts: its name ends in none of {', '.join(SUFFIXES)}", _FORMS)
    else:
        raise UserError(f"there is no file or folder '{path}'", _FORMS)
    return complete(path.name.partition(".")[0] or path.name, found, notes, seed, options)


def complete(
    name: str, found: Mapping[SplitName, _Texts], notes: Sequence[str], seed: int, options: DataOptions
) -> TextData:
    """The data of texts by split: checked, split, and encoded."""
    classes = _classes(name, found)
    notes = [*notes, *_about_texts(name, found)]
    number = {label: at for at, label in enumerate(classes)}
    parts = {
        split: (texts.texts, np.array([number[label] for label in texts.labels], dtype=np.int64), _contents(texts))
        for split, texts in found.items()
        if texts.texts
    }
    if "train" not in parts:
        raise UserError(f"data set {name!r} has no training texts", "call their split 'train', or give no split column")
    if "test" not in parts and "val" in parts:
        parts["test"] = parts.pop("val")
        notes.append("the given val texts are the test split (final numbers only)")
    notes += _without_copies(parts)
    for split, keep in (("test", 2), ("val", 1)):
        if split not in parts:
            texts, labels, contents = parts["train"]
            kept, held = hold_out(labels, contents, HOLDOUT_FRACTION, f"{split} {seed}", keep=keep)
            for part, at in ((split, held), ("train", kept)):
                parts[part] = ([texts[i] for i in at], labels[at], contents[at])  # type: ignore[index]
            notes.append(f"{split}: {len(held)} texts held out of train (by content, seed {seed})")
    counts = np.bincount(parts["train"][1], minlength=len(classes))
    if counts.min() == 0:
        raise UserError(
            f"class {classes[int(counts.argmin())]!r} of data set {name!r} has no training texts", "add texts of it"
        )
    skewed = counts.max() > UNBALANCED * counts.min()
    macro = options.metric == MACRO or (options.metric is None and bool(skewed))
    weighted = options.class_weights or bool(skewed)
    if skewed:
        ratio = counts.max() / counts.min()
        notes.append(
            f"the most frequent class has {ratio:.0f} times as many training texts as the rarest one: rare classes "
            f"weigh more in the loss" + (f", and the metric is {MACRO_F1}" if macro else "")
        )
    if options.tokenizer is None:
        preprocess = train_tokenizer(parts["train"][0])
        notes.append(
            f"a vocabulary of {preprocess.size} tokens was learnt from the training texts; tokenizer.json holds "
            "frequent parts of them"
        )
    else:
        preprocess = load_tokenizer(options.tokenizer)
        notes.append(f"the tokenizer of {preprocess.size} tokens is that of '{options.tokenizer}'")
    splits = {split: _encoded(parts[split], preprocess, macro) for split in SPLITS}
    return TextData(
        name=name,
        classes=classes,
        train=splits["train"],
        val=splits["val"],
        test=splits["test"],
        preprocess=preprocess,
        class_weights=softened(class_weights(splits["train"].labels, len(classes))) if weighted else None,
        notes=tuple(notes),
    )


def softened(weights: Sequence[float]) -> tuple[float, ...]:
    """The roots of the classes' weights: with these themselves a network calls too many texts rare (docs/text.md)."""
    return tuple(float(weight) ** 0.5 for weight in weights)


_Part = tuple[list[str], NDArray[np.int64], NDArray[np.uint64]]


def _encoded(part: _Part, preprocess: TextPreprocess, macro: bool) -> TextSplit:
    texts, labels, contents = part
    return TextSplit(preprocess.encode(texts), labels, contents, preprocess.size, macro)


def _contents(texts: _Texts) -> NDArray[np.uint64]:
    found = (content_of(text.encode("utf-8", "replace")) for text in texts.texts)
    return np.fromiter(found, np.uint64, len(texts.texts))


def _without_copies(parts: dict[SplitName, _Part]) -> list[str]:
    """Drop training texts that are in another split too; a remark where there are any."""
    judged = [parts[split][2] for split in ("val", "test") if split in parts]
    texts, labels, contents = parts["train"]
    fresh = ~np.isin(contents, np.concatenate([np.empty(0, np.uint64), *judged]))
    if fresh.all():
        return []
    parts["train"] = ([t for t, keep in zip(texts, fresh, strict=True) if keep], labels[fresh], contents[fresh])
    return [f"{int((~fresh).sum())} training texts that are in another split too were left out"]


def _classes(name: str, found: Mapping[SplitName, _Texts]) -> tuple[str, ...]:
    """Names of the classes: numbers in their order, other names by the alphabet."""
    counts = Counter(label for texts in found.values() for label in texts.labels)
    total = sum(counts.values())
    if total < LEAST_TEXTS:
        raise UserError(f"data set {name!r} has {total} texts", f"give {LEAST_TEXTS} or more: nothing is learnt of few")
    if len(counts) < 2:
        raise UserError(f"data set {name!r} has only one class", "classification needs at least two classes")
    few = [label for label, count in counts.items() if count < LEAST_OF_CLASS]
    # Where most are rare they are texts, perhaps, which no message may quote.
    if len(counts) > MOST_CLASSES or 2 * len(few) > len(counts) or _is_measure(counts):
        raise UserError(
            f"the labels of data set {name!r} are of {len(counts)} kinds: they are numbers or texts, not classes",
            f"give one of at most {MOST_CLASSES} names of classes for each text",
        )
    if few:
        raise UserError(
            f"class {few[0]!r:.40} of data set {name!r} has fewer than {LEAST_OF_CLASS} texts",
            "add texts of it, or remove the class",
        )
    return tuple(sorted(counts, key=lambda label: (0, int(label), "") if label.isdecimal() else (1, 0, label)))


def _is_measure(counts: Counter[str]) -> bool:
    """True for labels that are numbers with fractions."""

    def fraction(label: str) -> bool:
        try:
            return not float(label).is_integer()
        except (ValueError, OverflowError):
            return False

    return any(map(fraction, counts))


def _about_texts(name: str, found: Mapping[SplitName, _Texts]) -> list[str]:
    every = [text for texts in found.values() for text in texts.texts]
    empty = sum(not text.strip() for text in every)
    if empty == len(every):
        raise UserError(f"all texts of data set {name!r} are empty", "is that the column of texts?")
    return [f"{empty} of {len(every)} texts are empty"] if empty else []


def _of_table(path: Path) -> tuple[dict[SplitName, _Texts], str]:
    rows, taken = read_table(path)
    found: dict[SplitName, _Texts] = {}
    for number, (text, label, split) in enumerate(rows, start=1):
        part = found.setdefault(_split(split, number, path), _Texts())
        if text is not None and not isinstance(text, str):
            raise UserError(f"the text of row {number} of '{path}' is a {type(text).__name__}", "give texts as strings")
        part.texts.append(text or "")
        part.labels.append(_label(label, number, path))
    return found, taken


def _split(value: Any, number: int, path: Path) -> SplitName:
    if value is None:
        return "train"
    known = _SPLIT_NAMES.get(str(value).strip().lower())
    if known is None:
        raise UserError(f"row {number} of '{path}' has an unknown split", "call splits train, val and test")
    return known


def _label(value: Any, number: int, path: Path) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    label = "" if value is None else str(value).strip()
    if not label or label.lower() == "nan":
        raise UserError(f"row {number} of '{path}' has no label", "label it, or leave the row out")
    return label


def _of_folder(path: Path) -> dict[SplitName, _Texts]:
    folders = sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    named = {entry: _SPLIT_NAMES.get(entry.name.lower()) for entry in folders}
    if any(split == "train" for split in named.values()):
        found = {split: _of_classes(entry) for entry, split in named.items() if split is not None}
    else:
        found = {"train": _of_classes(path)}
    if not any(texts.texts for texts in found.values()):
        raise UserError(f"there are no .txt files in sub-folders of '{path}'", _FORMS)
    return found


def _of_classes(path: Path) -> _Texts:
    found = _Texts()
    for folder in sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith(".")):
        for file in sorted(folder.glob("*.txt")):
            try:
                found.texts.append(file.read_text(encoding="utf-8-sig"))
            except (OSError, UnicodeDecodeError) as error:
                reason = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else error.strerror
                raise UserError(f"cannot read '{file}': {reason}", "save it as text in UTF-8") from error
            found.labels.append(folder.name)
    return found
