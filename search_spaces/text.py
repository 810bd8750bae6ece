"""The space of text classifiers on token ids: an embedding, up to three stages of one family each, a pooled head.

The number of tokens is fixed: latency is linear in it, so it is a decision, and so is the vocabulary, of which a
smaller one is the beginning of a larger one (`nas.tasks.text.tokenizer`). Between stages a text shrinks to half as many
tokens. Without any stage a network is a bag of embeddings (Joulin et al. 2016, https://arxiv.org/abs/1607.01759), and
`wide` puts a linear model of tokens, or of tokens and pairs, beside whatever it is.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from search_spaces.architecture import Architecture, Decision, Option
from search_spaces.blocks import ACTIVATIONS, BlockSpec, Ints
from search_spaces.families.text import MIXING, POOLS, RATIOS, SHRINKS, TEXT_FAMILIES
from search_spaces.signature import LOGITS, OutputSpec, Signature, Size, TensorSpec, class_count
from search_spaces.slots import BlockSlots, SlotColumns
from search_spaces.space import Choices, SearchSpace

if TYPE_CHECKING:
    from torch import nn

TOKENS = (16, 24, 32, 48, 64, 96, 128)
"""Multiples of 8: a text shrinks twice, and rows of 8 fill registers."""
VOCABULARIES = (1000, 2000, 4000, 8000)
STAGES = 3
WIDE = ("none", "words", "pairs")
"""`pairs`: of words and pairs."""
STEMS = (0, 3, 5)
"""Tokens that a convolution before the first stage looks at; 0: none."""
_STAGE_SHARES = (0.1, 0.2, 0.3, 0.4)
"""Probability of each number of stages in a random network: of the larger ones there are many more."""
_STAGE: dict[str, tuple[Option, ...]] = {
    "family": MIXING,
    "width": (64, 96, 128, 192, 256),
    "depth": (1, 2, 3),
    "kernel": (3, 5, 7),
    "expansion": tuple(map(int, RATIOS)),
    "heads": (1, 2, 4),
    "act": ACTIVATIONS,
}
"""Decisions of a stage."""
_FIRST_DEPTHS = (1, 2, 3, 4)

Anchor = dict[str, Option]


def _stages(number: int, **options: Option) -> Anchor:
    """The first `number` stages, all alike."""
    stages = {f"stage{n}.{name}": option for n in range(1, number + 1) for name, option in options.items()}
    return {"stages": number, **stages}


_ANCHORS: tuple[Anchor, ...] = (
    {"embed.width": 64, "stages": 0, "wide": "pairs"},
    {"embed.width": 64, "stages": 0},
    {"embed.width": 128, "pool": "max", "wide": "words", **_stages(1, family="dense1d", width=128)},
    {"embed.width": 128, "wide": "pairs", **_stages(1, family="conv1d", width=128, depth=3, expansion=2)},
    {"embed.width": 128,
     **_stages(1, family="attention", width=128, depth=2, heads=2, expansion=4, act="hardswish")},
    {"embed.width": 192,
     **_stages(1, family="attention", width=256, depth=4, heads=4, expansion=4, act="hardswish")},
)  # fmt: skip
"""fastText with and without a linear model, a text CNN, a convolutional network, and the shapes of BERT-Tiny and
BERT-Mini (Turc et al. 2019, https://arxiv.org/abs/1908.08962); decisions left out take their first option,
but vocabulary and tokens the largest that there may be."""


class TextSpace(SearchSpace):
    """See the module."""

    task = "text"
    usual_size: Size = (2,)
    families = TEXT_FAMILIES

    def __init__(self, name: str = "text", allowed: Sequence[Sequence[int]] | None = None) -> None:
        decisions = [
            Decision("tokens", TOKENS),
            Decision("vocab", VOCABULARIES),
            Decision("embed.width", (32, 64, 96, 128, 192)),
            Decision("stem", STEMS),
            Decision("stages", tuple(range(STAGES + 1))),
            Decision("shrink", SHRINKS),
            Decision("pool", POOLS),
            Decision("wide", WIDE),
        ]
        for stage in range(1, STAGES + 1):
            options = {**_STAGE, "depth": _FIRST_DEPTHS} if stage == 1 else _STAGE
            decisions += [Decision(f"stage{stage}.{short}", values) for short, values in options.items()]
        super().__init__(name, decisions, allowed)

    # -- canonical form and size ---------------------------------------------------------------

    @cached_property
    def _stage_columns(self) -> list[dict[str, int]]:
        """For each stage, a decision's short name -> its column."""
        return [{short: self.column(f"stage{n}.{short}") for short in _STAGE} for n in range(1, STAGES + 1)]

    def _values(self, choices: Choices, name: str) -> Ints:
        """Chosen numbers (n,) of the decision `name`."""
        column = self.column(name)
        return np.array(self.decisions[column].options, dtype=np.int64)[choices[:, column]]

    def canonical(self, choices: Choices) -> Choices:
        choices = choices.copy()
        stages = self._values(choices, "stages")
        choices[:, self.column("shrink")] *= stages > 1
        for number, columns in enumerate(self._stage_columns, start=1):
            family = choices[:, columns["family"]]
            for short in ("kernel", "expansion", "heads"):
                used = np.array([short in TEXT_FAMILIES[name].uses for name in MIXING])
                choices[:, columns[short]] *= used[family]
            choices[:, list(columns.values())] *= (stages >= number)[:, None]
        return choices

    @cached_property
    def size(self) -> int:
        """Counted exactly: the distinct canonical forms of the stages that there are multiply."""
        first = np.array([[a[0] for a in self.allowed]], dtype=np.int64)
        stages = self.column("stages")
        first[0, stages] = STAGES
        forms = []
        for columns in self._stage_columns:
            own = list(columns.values())
            rows = np.array(list(product(*(self.allowed[c] for c in own))), dtype=np.int64)
            whole = np.repeat(first, len(rows), axis=0)
            whole[:, own] = rows
            forms.append(len(np.unique(self.canonical(whole)[:, own], axis=0)))
        shrinks = len(self.allowed[self.column("shrink")])
        bodies = sum(prod(forms[:count]) * (shrinks if count > 1 else 1) for count in self.allowed[stages])
        free = ("tokens", "vocab", "embed.width", "stem", "pool", "wide")
        return bodies * prod(len(self.allowed[self.column(name)]) for name in free)

    def sample(self, n: int, rng: np.random.Generator) -> Choices:
        """As that of any space, but with more stages rather than fewer: so families are found in a few networks."""
        allowed = np.array(self.allowed[self.column("stages")])
        shares = np.array(_STAGE_SHARES)[allowed]
        columns = [rng.choice(np.array(a, dtype=np.int64), size=n) for a in self.allowed]
        choices = np.stack(columns, axis=1)
        choices[:, self.column("stages")] = rng.choice(allowed, size=n, p=shares / shares.sum())
        return self.canonical(choices)

    # -- inputs ----------------------------------------------------------------------------------

    def input(self, arch: Architecture) -> TensorSpec:
        """Ids of a text, int64 `(tokens,)`."""
        row = self.choices([arch])
        return _ids(int(self._values(row, "tokens")[0]), int(self._values(row, "vocab")[0]))

    def signature(self, arch: Architecture, size: Size) -> Signature:
        """Ids of a text, int64 `(tokens,)`; logits of the classes, `size = (classes,)`."""
        return Signature(self.input(arch), OutputSpec(LOGITS, size, (class_count(size),)))

    def inputs_of(self, choices: Choices) -> tuple[tuple[TensorSpec, ...], Ints]:
        both = np.stack([self._values(choices, "tokens"), self._values(choices, "vocab")], axis=1)
        found, places = np.unique(both, axis=0, return_inverse=True)
        return tuple(_ids(int(t), int(v)) for t, v in found), places.reshape(-1).astype(np.int64)

    # -- from choices to blocks ------------------------------------------------------------------

    def slots(self, choices: Choices, size: Size = usual_size) -> BlockSlots:
        """The blocks of all rows of `choices` at once.

        Slots are the embedding, the stem, for each stage what makes the text shorter (not before the first) and
        wider, and its blocks, then the head and the wide path.
        """
        found, counts = SlotColumns(len(choices), self.families), iter(self._counts(choices))
        tokens, width = self._values(choices, "tokens"), self._values(choices, "embed.width")
        vocabulary, stages = self._values(choices, "vocab"), self._values(choices, "stages")

        def add(kind: Any, given: Any, out: Any, **more: Any) -> None:
            found.add(kind, given, out, tokens, width=1, count=next(counts), **more)

        add("embed", vocabulary, width)
        add("dense1d", width, width, kernel=np.maximum(self._values(choices, "stem"), STEMS[1]))
        kinds = np.array([list(self.families).index(name) for name in MIXING], dtype=np.int64)
        for number, columns in enumerate(self._stage_columns, start=1):
            exists = stages >= number
            own = np.where(exists, self._values(choices, f"stage{number}.width"), width)
            if number > 1:
                add("shrink", width, width, kernel=1 + choices[:, self.column("shrink")])
                tokens = np.where(exists, tokens // 2, tokens)
            add("project", width, own)
            family = choices[:, columns["family"]]
            ratios = np.array([TEXT_FAMILIES[name].expansions for name in MIXING])
            add(
                kinds[family], own, own, kernel=self._used(choices, columns, "kernel", f"stage{number}.kernel"),
                ratio=ratios[family, choices[:, columns["expansion"]]],
                groups=self._used(choices, columns, "heads", f"stage{number}.heads"),
                activation=choices[:, columns["act"]],
            )  # fmt: skip
            width = own
        add("texthead", width, class_count(size), kernel=1 + choices[:, self.column("pool")])
        tokens = self._values(choices, "tokens")
        pairs = choices[:, self.column("wide")] == WIDE.index("pairs")
        add("wide", vocabulary, class_count(size), se=pairs)
        return found.slots()

    def _used(self, choices: Choices, columns: dict[str, int], short: str, name: str) -> Ints:
        """Chosen numbers (n,) of a stage's decision; 1 where its family has no use for it."""
        used = np.array([short in TEXT_FAMILIES[family].uses for family in MIXING])
        return np.where(used[choices[:, columns["family"]]], self._values(choices, name), 1)

    @cached_property
    def slot_decisions(self) -> tuple[tuple[int, ...], ...]:
        at = self.column
        tokens, vocab, stages, before = at("tokens"), at("vocab"), at("stages"), at("embed.width")
        found: list[tuple[int, ...]] = [(vocab, before, tokens), (before, at("stem"), tokens)]
        for number, columns in enumerate(self._stage_columns, start=1):
            if number > 1:
                found.append((stages, before, at("shrink"), tokens))
            found.append((stages, before, columns["width"], tokens))
            found.append((stages, *(column for short, column in columns.items() if short != "depth"), tokens))
            before = columns["width"]
        widths = [columns["width"] for columns in self._stage_columns]
        return (*found, (stages, at("embed.width"), *widths, at("pool"), tokens), (vocab, at("wide"), tokens))

    def slot_counts(self, choices: Choices) -> Ints:
        return np.stack(self._counts(choices), axis=1)

    def _counts(self, choices: Choices) -> list[Ints]:
        """`slot_counts`, each (n,)."""
        ones, stages = np.ones(len(choices), dtype=np.int64), self._values(choices, "stages")
        width = self._values(choices, "embed.width")
        found = [ones, (self._values(choices, "stem") > 0).astype(np.int64)]
        for number in range(1, STAGES + 1):
            exists = (stages >= number).astype(np.int64)
            own = self._values(choices, f"stage{number}.width")
            if number > 1:
                found.append(exists)
            found += [exists * (own != width), exists * self._values(choices, f"stage{number}.depth")]
            width = np.where(exists > 0, own, width)
        return [*found, ones, (choices[:, self.column("wide")] > 0).astype(np.int64)]

    def slot_places(self, arch: Architecture) -> tuple[tuple[str, ...], ...]:
        counts = self._counts(self.choices([arch]))
        names = ["embed", "stem"]
        for stage in range(STAGES):
            names += [f"shrinks.{stage - 1}"] * (stage > 0) + [f"projects.{stage}", f"stages.{stage}"]
        names += ["head", "wide"]
        return tuple(
            tuple(f"{name}.{i}" for i in range(int(count[0])))
            if name.startswith("stages.")
            else (name,) * int(count[0])
            for name, count in zip(names, counts, strict=True)
        )

    def blocks(self, arch: Architecture, size: Size = usual_size) -> tuple[BlockSpec, ...]:
        return tuple(self.slots(self.choices([arch]), size).specs(0))

    def build(self, arch: Architecture, size: Size = usual_size) -> "nn.Module":
        from torch import nn

        from search_spaces.text_modules import Shrink, TextNetwork, Wide

        names = [name for places in self.slot_places(arch) for name in places]
        specs = self.blocks(arch, size)
        made = {name: self.families[spec.kind].build(spec) for name, spec in zip(names, specs, strict=True)}
        stages = range(int(self._values(self.choices([arch]), "stages")[0]))
        wide, shrinks = made.get("wide"), [made[f"shrinks.{n - 1}"] for n in stages if n]
        assert wide is None or isinstance(wide, Wide)
        return TextNetwork(
            made["embed"],
            made.get("stem"),
            shrinks=[shrink for shrink in shrinks if isinstance(shrink, Shrink)],
            projects=[made.get(f"projects.{n}", nn.Identity()) for n in stages],
            stages=[[made[name] for name in names if name.startswith(f"stages.{n}.")] for n in stages],
            head=made["head"],
            wide=wide,
        )

    # -- features ----------------------------------------------------------------------------------

    def features(self, choices: Choices) -> NDArray[np.float64]:
        """As of any space; numbers on a log scale (0 where they mean nothing), names as flags."""
        costs = self.costs(choices, self.usual_size)
        columns = [np.log1p(costs[name]) for name in ("macs", "params", "activations", "layers")]
        for at, decision in enumerate(self.decisions):
            active = self._active(choices, decision.name)
            if isinstance(decision.options[0], str):
                columns += [active * (choices[:, at] == option) for option in range(1, len(decision.options))]
            else:
                columns.append(active * np.log2(1 + self._values(choices, decision.name)))
        return np.stack([np.asarray(column, dtype=np.float64) for column in columns], axis=1)

    def _active(self, choices: Choices, name: str) -> NDArray[np.bool_]:
        """(n,) whether a decision changes the networks."""
        stages, (section, _, short) = self._values(choices, "stages"), name.partition(".")
        if name == "shrink":
            return np.asarray(stages > 1)
        if not short or section == "embed":
            return np.ones(len(choices), dtype=np.bool_)
        exists = stages >= int(section.removeprefix("stage"))
        if short in ("kernel", "expansion", "heads"):
            used = np.array([short in TEXT_FAMILIES[family].uses for family in MIXING])
            exists = exists & used[choices[:, self.column(f"{section}.family")]]
        return np.asarray(exists)

    @property
    def feature_names(self) -> tuple[str, ...]:
        names = ["log_macs", "log_params", "log_activations", "log_layers"]
        for decision in self.decisions:
            named = isinstance(decision.options[0], str)
            names += [f"{decision.name}.is_{o}" for o in decision.options[1:]] if named else [decision.name]
        return tuple(names)

    @property
    def anchors(self) -> tuple[Architecture, ...]:
        found: list[Architecture] = []
        for anchor in _ANCHORS:
            row = [d.index(anchor[d.name]) if d.name in anchor else 0 for d in self.decisions]
            for name in ("tokens", "vocab"):
                row[self.column(name)] = max(self.allowed[self.column(name)])
            canonical = self.canonical(np.array([row], dtype=np.int64))[0]
            if all(c in a for c, a in zip(canonical[: len(_FREE)], self.allowed[: len(_FREE)], strict=True)):
                found.append(self.architecture(canonical))
        return tuple(dict.fromkeys(found))


_FREE = ("tokens", "vocab", "embed.width", "stem", "stages", "shrink", "pool", "wide")
"""Decisions of no stage."""


def _ids(tokens: int, vocabulary: int) -> TensorSpec:
    return TensorSpec((tokens,), "int64", vocabulary)
