"""Output of the readers of annotation formats: pictures with boxes as they were written down, nothing mended yet."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from nas.data.decode import Reader
from nas.data.images import SplitName


@dataclass(frozen=True, slots=True, eq=False)
class Annotated:
    """One picture and its k boxes, in the annotation's own units."""

    name: str
    """Path below the data set, for messages."""
    read: Reader
    xyxy: NDArray[np.float64]
    """(k, 4) float64, x0 y0 x1 y1; a box that could not be read is nan, and none has to lie inside the picture."""
    classes: NDArray[np.int64]
    """(k,) int64, indices into the classes."""
    crowd: NDArray[np.bool_]
    """(k,)"""
    relative: bool = False
    """Boxes are fractions of the upright picture, not pixels."""
    size: tuple[int, int] | None = None
    """(width, height) of the picture by the annotation, where it says so."""
    content: int = 0
    """Content of the picture's file, see `nas.data.contents`; the readers of formats leave it at 0."""

    @property
    def readable(self) -> NDArray[np.bool_]:
        """(k,) whether all four numbers are finite."""
        return np.asarray(np.isfinite(self.xyxy).all(axis=1), np.bool_)

    @property
    def objects(self) -> NDArray[np.int64]:
        """(j,) int64: classes of the boxes that can be read and are no crowd."""
        return self.classes[~self.crowd & self.readable]


@dataclass(frozen=True, slots=True, eq=False)
class Annotations:
    """A data set as a format's reader found it."""

    form: str
    """Name of the format."""
    classes: tuple[str, ...]
    splits: Mapping[SplitName, Sequence[Annotated]]
    """Always with "train"; sorted by name."""
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Mended:
    """Counts what was mended or left out, with the first example of each."""

    _found: dict[str, tuple[int, str]] = field(default_factory=dict)

    def add(self, what: str, example: str, count: int = 1) -> None:
        """`what` is a plural ("boxes without area are left out"); `example` names one."""
        if count:
            before, first = self._found.get(what, (0, example))
            self._found[what] = (before + count, first)

    def add_all(self, what: str, examples: Sequence[str]) -> None:
        """One for each of `examples`."""
        if examples:
            self.add(what, examples[0], len(examples))

    def extend(self, others: Iterable[tuple[str, str, int]]) -> None:
        """Arguments of `add`, many times."""
        for other in others:
            self.add(*other)

    def notes(self) -> tuple[str, ...]:
        """One sentence for each kind."""
        return tuple(f"{what}: {count} (first: {example})" for what, (count, example) in self._found.items())


def boxes_array(rows: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    """(k, 4) float64, also where k is 0."""
    return np.array(rows, np.float64).reshape(len(rows), 4)


def numbers(values: Sequence[object]) -> list[float]:
    """`values` as floats; nan for what is no number."""
    found = []
    for value in values:
        try:
            found.append(float(value))  # type: ignore[arg-type]  # whatever the file holds
        except (TypeError, ValueError, OverflowError):
            found.append(float("nan"))
    return found


def repeated(names: Iterable[str]) -> str | None:
    """The first of `names` that occurred before."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
