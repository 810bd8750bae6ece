"""Made-up texts of two or more classes, each with words that it uses more often."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nas.data_options import USUAL, DataOptions
from nas.tasks.text.data import TextData
from nas.tasks.text.data.load import load_texts

_SYLLABLES = ("ba", "du", "ke", "lo", "mi", "nu", "ra", "sel", "tor", "vin", "wex", "yon")
CLASSES = ("down", "up")


def words(count: int = 60) -> list[str]:
    """Different made-up words."""
    rng = np.random.default_rng(7)
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(rng.choice(_SYLLABLES, rng.integers(2, 4)))] = None
    return list(found)


def sentences(count: int, seed: int, classes: Sequence[str] = CLASSES) -> list[tuple[str, str]]:
    """Texts with their labels, classes in turn: a class uses its own share of the vocabulary three times as often."""
    rng, known = np.random.default_rng(seed), words()
    own = np.array_split(np.arange(len(known)), len(classes))
    found = []
    for number in range(count):
        label = number % len(classes)
        weights = np.ones(len(known))
        weights[own[label]] = 3.0
        drawn = rng.choice(len(known), rng.integers(4, 16), p=weights / weights.sum())
        found.append((" ".join(known[at] for at in drawn), classes[label]))
    return found


def write_csv(path: Path, count: int = 240, seed: int = 0, classes: Sequence[str] = CLASSES) -> Path:
    """A table of such texts."""
    lines = [f"{text},{label}" for text, label in sentences(count, seed, classes)]
    path.write_text("\n".join(["text,label", *lines]), encoding="utf-8")
    return path


def text_data(count: int = 240, options: DataOptions = USUAL) -> TextData:
    """Data of such texts, as they are read."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return load_texts(str(write_csv(Path(folder) / "made-up.csv", count)), seed=0, options=options)
