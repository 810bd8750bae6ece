"""Operations that all search spaces share; a concrete space adds at least signature, blocks and `build`."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from search_spaces.architecture import Architecture, Decision, Option, parse_architecture_json
from search_spaces.blocks import BlockFamily, BlockSpec, Ints
from search_spaces.errors import UnknownNameError, UserError
from search_spaces.families import FAMILIES
from search_spaces.signature import Signature, Size, TensorSpec
from search_spaces.slots import BlockSlots, slots_of_blocks

if TYPE_CHECKING:
    from torch import nn

_LOGARITHMS = ("macs", "params", "activations", "layers")
"""Costs that are features."""
Choices = NDArray[np.int64]
"""Integer array (n, decisions): row = architecture, entry = index of the chosen option."""


class Trial(Protocol):
    """The part of `optuna.Trial` that a space needs; keeps this package free of Optuna."""

    @property
    def suggest_categorical(self) -> Callable[[str, list[Option]], Any]: ...


class SearchSpace(ABC):
    """A table of named decisions, and the networks they stand for.

    Everything that touches many architectures works on an integer array `(n, decisions)`, so that a
    million candidates are sampled, varied and encoded in seconds. Arrays returned are canonical:
    decisions without influence on the network hold one fixed value.

    `allowed` restricts a space (say, to the resolutions a data set supports) without changing its
    decisions, so keys of a restricted space stay valid in the whole one.
    """

    name: str
    """Reference by which any process finds the space, see `search_spaces.reference`."""
    document: str | None = None
    """JSON text of the space's table, where the space is nothing but that."""

    def __init__(
        self, name: str, decisions: Sequence[Decision], allowed: Sequence[Sequence[int]] | None = None
    ) -> None:
        self.name = name
        self.decisions = tuple(decisions)
        self.allowed: tuple[tuple[int, ...], ...] = (
            tuple(tuple(range(len(d.options))) for d in self.decisions)
            if allowed is None
            else tuple(tuple(a) for a in allowed)
        )

    # -- to be given by the concrete space ---------------------------------------------------

    @abstractmethod
    def signature(self, arch: Architecture, size: Size) -> Signature:
        """Input and output of the network whose answer has `size`."""

    @abstractmethod
    def blocks(self, arch: Architecture, size: Size) -> tuple[BlockSpec, ...]:
        """The blocks that the deployed network consists of, first to last: costs and latencies are of them."""

    @abstractmethod
    def build(self, arch: Architecture, size: Size) -> "nn.Module":
        """A fresh network that takes and gives what `signature` says, batch first."""

    # -- where a concrete space knows better ---------------------------------------------------

    task: str = "classification"
    """Reference of the task that its networks are for."""
    usual_size: Size = (1000,)
    """Size of the answers of the networks whose costs are features."""
    families: Mapping[str, BlockFamily] = FAMILIES
    """All that its blocks may be of, by name."""

    def canonical(self, choices: Choices) -> Choices:
        """The same networks with each inactive decision at its one canonical value. Shape kept."""
        return choices.copy()

    @property
    def size(self) -> int:
        """Exact number of distinct (canonical) architectures. A space whose decisions may be inactive counts itself."""
        return prod(len(a) for a in self.allowed)

    def inputs_of(self, choices: Choices) -> tuple[tuple[TensorSpec, ...], Ints]:
        """The different inputs of the networks in `choices` (n, decisions), and for each network the place of its own
        among them, (n,)."""
        specs = [self.signature(self.architecture(row), self.usual_size).input for row in choices]
        places = {spec: place for place, spec in enumerate(dict.fromkeys(specs))}
        return tuple(places), np.array([places[spec] for spec in specs], dtype=np.int64)

    def slots(self, choices: Choices, size: Size) -> BlockSlots:
        """The blocks of all rows of `choices` at once; costs and the features that predict latency are made of them.

        Here of `blocks`, one row after the other, which is slow: large spaces do better.
        """
        return slots_of_blocks([self.blocks(self.architecture(row), size) for row in choices], self.families)

    @property
    def slot_decisions(self) -> Sequence[Sequence[int]] | None:
        """For each slot, the columns of the decisions its block depends on (all but how often it occurs).

        None: slots are those of the networks at hand, and all that is known of blocks is found out for each network.
        """
        return None

    def slot_counts(self, choices: Choices) -> Ints:
        """Occurrences of each slot's block, (n, slots): `slots(choices).count` without the rest."""
        return self.slots(choices, self.usual_size).count

    def slot_places(self, arch: Architecture) -> tuple[tuple[str, ...], ...] | None:
        """For each slot, the names in the built network of the modules that are its block, as many as its count.

        None: the times that a runtime's profiler tells of operators belong to no blocks.
        """
        return None

    def costs(self, choices: Choices, size: Size) -> dict[str, NDArray[np.float64]]:
        """Totals of the deployed networks, each (n,): `macs`, `params`, `activations`, `depthwise_macs`, `layers`."""
        slots = self.slots(choices, size)
        return {name: (value * slots.count).sum(axis=1) for name, value in slots.totals().items()}

    def features(self, choices: Choices) -> NDArray[np.float64]:
        """Sizes and costs (n, features) for learned predictors, on log scales where they span decades."""
        costs = self.costs(choices, self.usual_size)
        logs = [np.log1p(costs[name]) for name in _LOGARITHMS]
        return np.concatenate([np.stack(logs, axis=1), choices.astype(np.float64)], axis=1)

    @property
    def feature_names(self) -> tuple[str, ...]:
        return (*(f"log_{name}" for name in _LOGARITHMS), *(decision.name for decision in self.decisions))

    @property
    def anchors(self) -> tuple[Architecture, ...]:
        """Well-known designs that lie in the space: what a search evaluates first. May be empty."""
        return ()

    @property
    def designs(self) -> tuple[tuple[Architecture, ...], ...]:
        """`anchors` by design: those that differ in nothing but their input lie together, the largest input first."""
        return tuple((anchor,) for anchor in self.anchors)

    # -- the same for all spaces ---------------------------------------------------------------

    @cached_property
    def _index(self) -> Mapping[str, int]:
        return {decision.name: i for i, decision in enumerate(self.decisions)}

    def column(self, name: str) -> int:
        """Position of the decision `name`; raises `UnknownNameError`."""
        if name not in self._index:
            raise UnknownNameError("decision", name, self._index)
        return self._index[name]

    def architecture(self, choices: Sequence[int] | Choices) -> Architecture:
        """The canonical architecture of one row of choices; raises `UserError` naming a wrong decision."""
        row = np.asarray(choices, dtype=np.int64).reshape(-1)
        if len(row) != len(self.decisions):
            raise UserError(
                f"space {self.name!r} has {len(self.decisions)} decisions, got {len(row)} choices",
                "was this architecture made for another version of the space?",
            )
        for decision, value in zip(self.decisions, row, strict=True):
            if not 0 <= value < len(decision.options):
                raise UserError(
                    f"choice {value} of {decision.name!r} is out of range", f"use 0 to {len(decision.options) - 1}"
                )
        return Architecture(self.name, tuple(int(c) for c in self.canonical(row[None])[0]), self.document)

    def choices(self, archs: Sequence[Architecture]) -> Choices:
        """Integer array (n, decisions) of some architectures of this space."""
        for arch in archs:
            if arch.space != self.name:
                raise UserError(f"architecture {arch.key} does not belong to space {self.name!r}", "load its own space")
        return np.array([a.choices for a in archs], dtype=np.int64).reshape(len(archs), len(self.decisions))

    def sample(self, n: int, rng: np.random.Generator) -> Choices:
        """`n` random architectures (n, decisions).

        Uniform over the allowed options of every decision, then made canonical; so networks that many
        option lists stand for are likelier than others.
        """
        columns = [rng.choice(np.array(a, dtype=np.int64), size=n) for a in self.allowed]
        return self.canonical(np.stack(columns, axis=1))

    def mutate(self, choices: Choices, rng: np.random.Generator, rate: float = 0.1) -> Choices:
        """Each row with every decision redrawn with probability `rate`, at least one of them per row."""
        n, d = choices.shape
        redrawn = rng.random((n, d)) < rate
        redrawn[np.arange(n), rng.integers(d, size=n)] = True
        fresh = np.stack([rng.choice(np.array(a, dtype=np.int64), size=n) for a in self.allowed], axis=1)
        return self.canonical(np.where(redrawn, fresh, choices))

    def crossover(self, a: Choices, b: Choices, rng: np.random.Generator) -> Choices:
        """Uniform crossover of the rows of `a` and `b` (both (n, decisions))."""
        return self.canonical(np.where(rng.random(a.shape) < 0.5, a, b))

    def encode(self, choices: Choices) -> NDArray[np.float32]:
        """One-hot encoding (n, total number of options)."""
        widths = [len(d.options) for d in self.decisions]
        offsets = np.concatenate([[0], np.cumsum(widths)[:-1]])
        encoded = np.zeros((len(choices), int(sum(widths))), dtype=np.float32)
        np.put_along_axis(encoded, choices + offsets[None], 1.0, axis=1)
        return encoded

    def restrict(self, name: str, options: Sequence[Option]) -> Self:
        """The subspace in which decision `name` takes one of `options`."""
        column = self.column(name)
        indices = tuple(sorted({self.decisions[column].index(o) for o in options}))
        if not indices:
            raise UserError(f"decision {name!r} was left without an option", "allow at least one")
        return self._changed(allowed=tuple(indices if i == column else a for i, a in enumerate(self.allowed)))

    def named(self, name: str, document: str | None = None) -> Self:
        """The same space by another reference; `document`: the JSON text of its table, where that is all it is."""
        return self._changed(name=name, document=document)

    def _changed(self, **attributes: object) -> Self:
        """A copy with other attributes; what was computed once for this space is computed anew."""
        changed = copy(self)
        for kind in type(self).__mro__:
            for name, member in vars(kind).items():
                if isinstance(member, cached_property):
                    changed.__dict__.pop(name, None)
        changed.__dict__.update(attributes)
        return changed

    def restricted(self, allowed: Mapping[str, Sequence[Option]]) -> Self:
        """The subspace in which each decision named in `allowed` takes one of those options."""
        space = self
        for name, options in allowed.items():
            space = space.restrict(name, options)
        return space

    @property
    def restrictions(self) -> dict[str, tuple[Option, ...]]:
        """Decision -> the options it may take, for those that may not take all of them."""
        both = zip(self.decisions, self.allowed, strict=True)
        return {d.name: tuple(d.options[i] for i in a) for d, a in both if len(a) < len(d.options)}

    def replace(self, arch: Architecture, **options: Option) -> Architecture:
        """`arch` with some decisions changed, given by name (`.` written as `__`)."""
        row = list(arch.choices)
        for name, option in options.items():
            column = self.column(name.replace("__", "."))
            row[column] = self.decisions[column].index(option)
        return self.architecture(row)

    def suggest(self, trial: Trial) -> Architecture:
        """The architecture an Optuna trial proposes: one categorical parameter per decision."""
        row = [
            d.index(trial.suggest_categorical(d.name, [d.options[i] for i in a]))
            for d, a in zip(self.decisions, self.allowed, strict=True)
        ]
        return self.architecture(row)

    def parameters(self, arch: Architecture) -> dict[str, Option]:
        """Decision name -> chosen option: what `suggest` reads and what a JSON document holds."""
        return {d.name: d.options[c] for d, c in zip(self.decisions, arch.choices, strict=True)}

    def to_json(self, arch: Architecture) -> dict[str, object]:
        """A document for `from_json`: options by name, so it can be read by people and survives reordering.

        It holds the table of a space that is nothing but a table, so that the document alone tells the network.
        """
        table = {} if self.document is None else {"table": json.loads(self.document)}
        return {"space": self.name, "decisions": self.parameters(arch), **table}

    def from_json(self, document: object) -> Architecture:
        """Inverse of `to_json`; raises `UserError` naming what is wrong."""
        name, options, _ = parse_architecture_json(document)
        if name != self.name:
            raise UserError(f"this architecture is of space {name!r}, not {self.name!r}", f"load space {name!r}")
        missing = [d.name for d in self.decisions if d.name not in options]
        if missing:
            raise UserError(
                f"the architecture does not say {missing[0]!r}", "every decision of the space must be given"
            )
        for given in options:
            self.column(given)
        return self.architecture([d.index(options[d.name]) for d in self.decisions])
