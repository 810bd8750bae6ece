"""The value at the centre of everything: one architecture of one search space."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from search_spaces.errors import UserError

Option = int | float | str


@dataclass(frozen=True, slots=True)
class Decision:
    """One named choice among a fixed, ordered list of options."""

    name: str
    options: tuple[Option, ...]

    def __post_init__(self) -> None:
        if not self.options or len(set(self.options)) != len(self.options):
            raise ValueError(f"decision {self.name!r} needs distinct options, got {self.options}")

    def index(self, option: object) -> int:
        """Position of `option`; raises `UserError` naming the decision if it is none of the options."""
        for position, known in enumerate(self.options):
            if known == option and isinstance(known, str) == isinstance(option, str):
                return position
        options = ", ".join(map(str, self.options))
        raise UserError(f"{option!r} is not an option of {self.name!r}", f"choose one of: {options}")


@dataclass(frozen=True, slots=True, order=True)
class Architecture:
    """One point of a search space: a value, never a network.

    `choices[i]` indexes the options of the space's decision `i`. Architectures come from a space
    (`SearchSpace.architecture`), which makes them canonical: equal networks have equal keys.
    """

    space: str
    """Reference of the space, see `search_spaces.reference`."""
    choices: tuple[int, ...]
    document: str | None = field(default=None, compare=False, repr=False)
    """JSON text of the space's table, where the space is nothing but that: any process can make the space of it."""

    @property
    def key(self) -> str:
        """Identity in caches and result files; unlike `hash()`, the same in every process."""
        return f"{self.space}:{'-'.join(map(str, self.choices))}"


def parse_architecture_json(document: object) -> tuple[str, Mapping[str, object], object]:
    """Reference of the space, named options, and the space's table (None where the reference says all) of an
    architecture document; raises `UserError` if it is none."""
    if not isinstance(document, Mapping) or not isinstance(document.get("space"), str):
        raise UserError(
            "this is not an architecture document: it has no 'space'", "write it with `SearchSpace.to_json`"
        )
    decisions = document.get("decisions")
    if not isinstance(decisions, Mapping):
        raise UserError(
            "this is not an architecture document: it has no 'decisions'", "write it with `SearchSpace.to_json`"
        )
    return document["space"], decisions, document.get("table")
