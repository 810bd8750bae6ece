"""An accuracy that can be had without a network: what is delivered has to be worth more than that."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """A simple way to answer, and how right it is."""

    name: str
    """For people, such as `guessing`."""
    accuracy: float
    """Fraction on the validation split, by the task's metric."""
    test: float | None
    """Fraction on the test split; nothing is decided by it. None where it was not looked at."""
    margin: float
    """A network is worth delivering from this many standard errors above `accuracy`; below it where negative."""
    seconds: float
    """Wall-clock time it took."""

    def least(self, standard_error: float | None) -> float:
        """The validation accuracy from which a network is worth delivering; without a standard error `accuracy`."""
        return self.accuracy + self.margin * (standard_error or 0.0)

    def to_json(self) -> dict[str, Any]:
        """A document for people and reports."""
        return asdict(self)


def missed_floor(accuracy: float, floors: Sequence[Floor], standard_error: float | None) -> Floor | None:
    """The highest floor that a network of this validation accuracy is not worth more than; None where it is."""
    missed = [floor for floor in floors if accuracy < floor.least(standard_error)]
    return max(missed, key=lambda floor: floor.accuracy, default=None)
