"""How data are read: what a user says of them beside their name and the seed of their splits.

Whoever goes on from a network (export, fine-tuning, a receipt's check) reads its data with the same options. Importing
this is cheap: the command line does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, Self, get_args

Fit = Literal["crop", "letterbox"]
"""From a picture of any aspect to a square: `crop` takes the middle of it, `letterbox` all of it between grey bars."""
FITS: tuple[Fit, ...] = get_args(Fit)
Metric = Literal["accuracy", "balanced-accuracy", "macro-f1"]
METRICS: tuple[Metric, ...] = get_args(Metric)
BALANCED: Metric = "balanced-accuracy"
"""The mean over the classes of the share of their examples that are answered right."""
BALANCED_ACCURACY = "balanced accuracy"
"""Its name for people."""
MACRO: Metric = "macro-f1"
"""The mean over the classes of their F1 scores: of texts."""
MACRO_F1 = "macro-F1"
"""Its name for people."""
SMALLEST = 32
"""Pixels: every search space has networks for it, few have any for less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOptions:
    """Options of reading data; None leaves a thing to the task. The names are those of `nas search`'s options.

    Raises:
        UserError: a value that makes no sense.
    """

    flip: bool = True
    """False: a mirrored image is another thing than the image (text, traffic signs), whatever the data say."""
    flip_anyway: bool = False
    """True: nobody looks whether mirrored images still show their classes."""
    fit: Fit | None = None
    max_resolution: int | None = None
    """Rows and columns that images are stored at, at most."""
    metric: Metric | None = None
    """What networks are compared by."""
    class_weights: bool = False
    """True: in the loss an example of a rare class weighs more, in proportion to how rare it is."""
    tokenizer: str | None = None
    """File or folder of the tokenizer of texts; None: one is learnt from the training texts."""

    def __post_init__(self) -> None:
        flags, size = (self.flip, self.flip_anyway, self.class_weights), self.max_resolution
        if not all(isinstance(flag, bool) for flag in flags) or not isinstance(size, int | None):
            raise _wrong(f"options of data of a wrong type: {flags}, {size!r}", "give yes or no, and pixels")
        if not isinstance(self.tokenizer, str | None):
            raise _wrong(f"a tokenizer of a wrong type: {self.tokenizer!r:.60}", "give the name of a file")
        if size is not None and size < SMALLEST:
            raise _wrong(f"--max-resolution {size} is too small", f"give {SMALLEST} or more pixels")
        for name, value, known in (("--fit", self.fit, FITS), ("--metric", self.metric, METRICS)):
            if value is not None and value not in known:
                from nas.errors import UnknownNameError

                raise UnknownNameError(name, str(value), known)

    def cap(self, usual: int) -> int:
        """Rows and columns that images are stored at, at most; `usual` where nothing was said."""
        return usual if self.max_resolution is None else self.max_resolution

    @property
    def balanced(self) -> bool:
        """True if networks are compared by balanced accuracy."""
        return self.metric == BALANCED

    def metric_name(self, usual: str) -> str:
        """Name that people give what networks are compared by; `usual`: that of the task's own metric."""
        return {BALANCED: BALANCED_ACCURACY, MACRO: MACRO_F1}.get(self.metric or "accuracy", usual)

    def to_json(self) -> dict[str, Any]:
        """Those that were given."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """The options in a document that may hold other things, or none of them; raises as the class does, and where it
        is no table."""
        if not isinstance(document, Mapping):
            raise _wrong(f"how data are read is no table: {document!r:.60}", "restore the file, or begin anew")
        return cls(**{f.name: document[f.name] for f in fields(cls) if f.name in document})


USUAL = DataOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSource:
    """Description by which data can be found again."""

    source: str
    """A name or path as the task's `load` takes it."""
    seed: int
    """Seed of the splits that were held out."""
    options: DataOptions = USUAL
    """How they are read."""

    def to_json(self) -> dict[str, Any]:
        """A document for `of`."""
        return {"source": self.source, "seed": self.seed, "options": self.options.to_json()}

    @classmethod
    def of(cls, document: object) -> Self | None:
        """Inverse of `to_json`; None for a document that names no data. Raises as `DataOptions.of` does."""
        if not isinstance(document, Mapping) or not isinstance(document.get("source"), str):
            return None
        options = DataOptions.of(document.get("options", {}))
        return cls(source=document["source"], seed=int(document.get("seed", 0)), options=options)


def refuse(options: DataOptions, task: str, *names: str) -> None:
    """Raises `UserError` where one of the options `names`, which mean nothing to `task`, was given."""
    given = next((name for name in names if name in options.to_json()), None)
    if given is not None:
        raise _wrong(f"--{given.replace('_', '-')} is not for {task}", "leave it out")


def _wrong(what: str, hint: str) -> Exception:
    from nas.errors import UserError

    return UserError(what, hint)
