"""What a worker process and the one that started it say to each other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nas.errors import UserError
from nas.scoring.rows import Row
from nas.scoring.scorer import TOP, Item


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Everything that a worker has to know before its first task."""

    bundle: Path
    check: bool = True
    """Compare the bundle's files with their checksums first."""
    top: int = TOP
    decoders: int = 2
    """Threads that decode: one reads while another one computes."""
    cores: tuple[int, ...] = ()
    """The only ones it may use; empty: wherever it is let."""
    heartbeat: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Images to score."""

    number: int
    """The caller's."""
    items: Sequence[Item]
    part: Path | None = None
    """File for the rows; None: they are sent back."""
    alone: bool = False
    """Decode one image at a time, so that the heartbeat names the one that ends this process."""
    given_up: Mapping[int, str] = field(default_factory=dict)
    """See `nas.scoring.scorer.score`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A task that is done."""

    number: int
    count: int
    bad: int
    """Images without an answer."""
    rows: Sequence[Row] | None
    """None where they are in the task's file."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A `UserError` or an `OSError`, on its way to the parent."""

    message: str
    hint: str | None = None
    errno: int | None = None
    filename: str | None = None

    def error(self) -> Exception:
        if self.errno is not None:
            return OSError(self.errno, self.message, self.filename)
        return UserError(self.message, self.hint or "")
