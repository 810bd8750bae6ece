"""Which paths a step trains: the sandwich rule of Yu & Huang 2019 (https://arxiv.org/abs/1903.05134)."""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from search_spaces import Architecture, Choices, SearchSpace

Admissible = Callable[[Choices], NDArray[np.bool_]]
"""Choices (n, decisions) -> whether each network may be trained at all, say because its training is affordable."""

SIZES = ("width", "depth", "kernel", "expansion", "resolution")
"""Decisions whose options go from small to large; the others say what kind of block a stage has."""
_TRIES = 64


class Sandwich:
    """Draws the paths of a step: a largest, a smallest, and random ones in between.

    There is a largest network for every choice of block families, so its kinds of blocks are drawn at random: over the
    steps the weights of every family are trained at full size.
    """

    def __init__(
        self, space: SearchSpace, random_paths: int = 2, admissible: Admissible | None = None, *, ends: bool = True,
        fair: bool = False,
    ) -> None:  # fmt: skip
        """`admissible` keeps out what nobody will ask for; the smallest paths are drawn all the same.

        Without `ends` all paths are random ones. With `fair` these take turns: in each stage, as many of them have one
        block family as have any other.
        """
        self._fair = fair
        self._families = [at for at, d in enumerate(space.decisions) if d.name.endswith(".family")]
        self._space = space
        self._ends = ends
        self._random_paths = random_paths
        self._admissible = admissible
        self._sized = np.array([d.name.rpartition(".")[2] in SIZES for d in space.decisions])

    def draw(self, rng: np.random.Generator) -> list[Architecture]:
        """The largest path first, the smallest last, where they are drawn."""
        largest = [self._first_admissible(self._shrinking(rng))] if self._ends else []
        turns = self._turns(rng)
        rows = largest + [
            self._first_admissible(self._random(rng, {column: turns[column][path] for column in turns}))
            for path in range(self._random_paths)
        ]
        if self._ends:
            rows.append(self._extremes(self._drawn(1, rng), 0)[0])
        return [self._space.architecture(row) for row in rows]

    @property
    def _tries(self) -> int:
        return 1 if self._admissible is None else _TRIES

    def _turns(self, rng: np.random.Generator) -> dict[int, list[int]]:
        """Family column -> each random path's family, where they take turns."""
        if not self._fair:
            return {}
        rounds = [
            np.concatenate([rng.permutation(options) for _ in range(-(-self._random_paths // len(options)))])
            for options in (self._space.allowed[column] for column in self._families)
        ]
        return {column: drawn.tolist() for column, drawn in zip(self._families, rounds, strict=True)}

    def _random(self, rng: np.random.Generator, families: Mapping[int, int]) -> Choices:
        rows = self._drawn(self._tries, rng)
        for column, family in families.items():
            rows[:, column] = family
        return self._space.canonical(rows)

    def _drawn(self, count: int, rng: np.random.Generator) -> Choices:
        """Rows with every decision drawn, also those that the drawn family does not use: the family may be replaced."""
        return np.stack([rng.choice(np.array(a, dtype=np.int64), size=count) for a in self._space.allowed], axis=1)

    def _shrinking(self, rng: np.random.Generator) -> Choices:
        """Rows of the same kinds of blocks: all sizes at their largest, then ever more of them drawn at random."""
        rows = self._drawn(self._tries, rng)
        kinds = np.repeat(rows[:1], len(rows), axis=0)
        drawn = rng.random(rows.shape) < np.linspace(0.0, 1.0, len(rows))[:, None]
        return self._space.canonical(np.where(self._sized & drawn, rows, self._extremes(kinds, -1)))

    def _extremes(self, rows: Choices, end: int) -> Choices:
        """The rows' kinds of blocks with all sizes at one end."""
        ends = np.array([allowed[end] for allowed in self._space.allowed], dtype=np.int64)
        return self._space.canonical(np.where(self._sized, ends, rows))

    def _first_admissible(self, rows: Choices) -> NDArray[np.int64]:
        """The first row that is admissible; where none is, the one that computes least."""
        if self._admissible is None:
            return np.asarray(rows[0])
        fits = np.flatnonzero(self._admissible(rows))
        at = int(fits[0]) if len(fits) else int(self._space.costs(rows, self._space.usual_size)["macs"].argmin())
        return np.asarray(rows[at])
