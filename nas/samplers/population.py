"""Growing a large population of candidates towards a score, with moves on whole arrays."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nas.samplers.base import Feasible, RowIds, distinct, only_feasible, row_ids, untried
from search_spaces import Choices, SearchSpace

Score = Callable[[Choices], NDArray[np.float64]]
"""(n, decisions) -> (n,), higher is better."""

_LOCAL = 8
"""So many of the best candidates get all their neighbours looked at in each generation."""


@dataclass(frozen=True, slots=True)
class Population:
    """Distinct candidates with their scores, best first."""

    choices: Choices
    scores: NDArray[np.float64]

    @classmethod
    def of(cls, choices: Choices, scores: NDArray[np.float64]) -> "Population":
        order = np.argsort(-scores, kind="stable")
        return cls(choices[order], scores[order])


@dataclass(frozen=True, slots=True)
class Distant:
    """A `Feasible` that admits candidates which differ from each of some others in enough decisions.

    Attributes:
        others: (m, decisions).
        least: decisions in which a candidate differs from each of them.
        feasible: what it has to keep besides; None: nothing.
    """

    others: Choices
    least: int
    feasible: Feasible | None = None

    def __call__(self, choices: Choices) -> NDArray[np.bool_]:
        differ = np.array([(choices != other).sum(axis=1) for other in self.others])
        admitted = np.asarray((differ >= self.least).all(axis=0), dtype=np.bool_)
        if self.feasible is not None and admitted.any():
            admitted[admitted] = self.feasible(choices[admitted])
        return admitted


@dataclass(frozen=True, slots=True)
class Evolution:
    """A population that grows by crossover, mutation and local moves.

    Attributes:
        space: gives the moves.
        feasible: only candidates that it admits are scored; None: all are.
        tried: identities of architectures that must not be proposed again; they still serve as parents.
        size: newcomers and parents per generation.
        generations: rounds of selection, crossover, mutation and local moves.
    """

    space: SearchSpace
    feasible: Feasible | None
    tried: RowIds
    size: int
    generations: int

    def grow(self, incumbents: Choices, score: Score, rng: np.random.Generator) -> Population:
        """All candidates that were scored, best first; none where the space has no untried feasible one left.

        Starts from random ones and the surroundings of `incumbents` (k, decisions), best first.
        """
        near = self.space.mutate(incumbents[rng.integers(len(incumbents), size=self.size // 2)], rng, 0.08)
        start = [near, self.space.sample(self.size, rng), neighbours(self.space, incumbents[:_LOCAL])]
        population = self._scored(np.concatenate(start), score, self.tried)
        for _ in range(self.generations):
            elite = population.choices[: max(_LOCAL, self.size // 4)]
            parents = np.concatenate([elite, incumbents])
            mothers, fathers = (parents[rng.integers(len(parents), size=self.size // 2)] for _ in range(2))
            children = [
                self.space.crossover(mothers, fathers, rng),
                self.space.mutate(mothers, rng, 0.06),
                neighbours(self.space, elite[:_LOCAL]),
            ]
            seen = np.concatenate([self.tried, row_ids(population.choices)])
            born = self._scored(np.concatenate(children), score, seen)
            population = Population.of(
                np.concatenate([population.choices, born.choices]), np.concatenate([population.scores, born.scores])
            )
        return population

    def _scored(self, choices: Choices, score: Score, seen: RowIds) -> Population:
        new = only_feasible(untried(distinct(choices), seen), self.feasible)
        return Population.of(new, score(new) if len(new) else np.zeros(0))


def neighbours(space: SearchSpace, choices: Choices) -> Choices:
    """All distinct architectures that differ in one decision from a row of `choices` (n, decisions)."""
    changed = []
    for column, allowed in enumerate(space.allowed):
        for option in allowed:
            rows = choices.copy()
            rows[:, column] = option
            changed.append(rows)
    return untried(distinct(space.canonical(np.concatenate(changed))), row_ids(choices))
