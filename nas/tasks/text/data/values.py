"""The values of text classification data. Texts themselves are never kept: only their token ids are.

Dimensions in docstrings: n texts, t tokens, c classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from nas.data.contents import Contents, labelled
from nas.data.images import SplitName
from nas.data.memo import Memo
from nas.tasks.text.tokenizer import Ids, TextPreprocess
from search_spaces.signature import Size, TensorSpec


@dataclass(frozen=True, slots=True, eq=False)
class TextSplit:
    """Labelled texts in memory, as token ids."""

    ids: Ids
    """(n, t) int32, filled up with 0."""
    labels: NDArray[np.int64]
    """(n,) int64, indices into the data set's `classes`."""
    contents: Contents
    """(n,) a hash of each text, see `nas.data.contents`."""
    vocabulary: int
    """Ids lie in `[0, vocabulary)`."""
    unbalanced: bool = False
    """True if networks are compared by macro-F1 on these texts instead of by accuracy."""
    taught: NDArray[np.float32] | None = None
    """(n, c) what a teacher answered for each text, as logits; None: there is no teacher."""
    given: NDArray[np.bool_] | None = None
    """(n,) False where the label is the teacher's answer alone; None: all labels were given."""

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def fingerprints(self) -> Contents:
        """(given labels,) of each text with its label: by them data that changed are recognised."""
        own = self.labelled
        return labelled(own.contents, [label.tobytes() for label in own.labels])

    @property
    def labelled(self) -> "TextSplit":
        """The texts whose labels were given."""
        return self if self.given is None else self.take(np.flatnonzero(self.given))

    @property
    def input(self) -> TensorSpec:
        """Input of networks for these texts."""
        return TensorSpec((self.ids.shape[1],), "int64", self.vocabulary)

    def some(self, count: int, seed: int = 0) -> "TextSplit":
        """`count` random texts (all, where there are fewer), the same for the same seed."""
        return self.take(np.sort(np.random.default_rng(seed).permutation(len(self))[:count]))

    def take(self, indices: NDArray[np.int64] | Sequence[int]) -> "TextSplit":
        """The texts at `indices`, in that order."""
        at = np.asarray(indices, dtype=np.int64)
        return replace(
            self,
            ids=self.ids[at],
            labels=self.labels[at],
            contents=self.contents[at],
            taught=None if self.taught is None else self.taught[at],
            given=None if self.given is None else self.given[at],
        )


@dataclass(frozen=True, slots=True)
class TextTraits:
    """Facts beside the texts that a training has to know of them."""

    class_weights: tuple[float, ...] | None = None
    """Weight of each class in the loss; None: all the same."""


@dataclass(frozen=True, slots=True, eq=False)
class TextData:
    """A data set of texts, see `nas.tasks.task.TaskData`. Its splits have the longest texts in the whole vocabulary;
    `for_input` makes them shorter, and takes tokens apart for a smaller vocabulary."""

    name: str
    classes: tuple[str, ...]
    train: TextSplit
    val: TextSplit
    test: TextSplit
    preprocess: TextPreprocess
    class_weights: tuple[float, ...] | None = None
    """Weight of each class in the loss; None: all the same."""
    notes: tuple[str, ...] = ()
    """Origin of the splits, for reports."""
    _memo: Memo = field(default_factory=Memo, init=False, repr=False)
    """`for_input` by its arguments."""

    @property
    def traits(self) -> TextTraits:
        """Facts beside the texts that a training has to know."""
        return TextTraits(self.class_weights)

    @property
    def task(self) -> Literal["text"]:
        """Key in `nas.tasks.TASKS`."""
        return "text"

    @property
    def output_size(self) -> Size:
        """Size of a network's answer for these data: `(classes,)`."""
        return (len(self.classes),)

    def with_splits(self, *, train: TextSplit, val: TextSplit, test: TextSplit) -> "TextData":
        """The same data with other examples."""
        return replace(self, train=train, val=val, test=test)

    def with_preprocess(self, preprocess: TextPreprocess) -> "TextData":
        """The same data by another tokenizer: what tokens say is encoded anew."""
        if preprocess == self.preprocess:
            return replace(self)

        def anew(split: TextSplit) -> TextSplit:
            texts = self.preprocess.decode(split.ids)
            return replace(split, ids=preprocess.encode(texts), vocabulary=preprocess.size)

        train, val, test = (anew(split) for split in (self.train, self.val, self.test))
        return replace(self, preprocess=preprocess, train=train, val=val, test=test)

    def for_input(self, split: SplitName, input: TensorSpec) -> TextSplit:
        """`split` as a network takes it; kept in memory, so that a second call costs nothing.

        Raises:
            ValueError: the network takes no token ids.
        """
        original: TextSplit = getattr(self, split)
        if input == original.input:
            return original
        if len(input.shape) != 1 or input.values is None:
            raise ValueError(f"this network takes no token ids: {input}")
        if (split, input) not in self._memo:
            # Fewer entries than the network knows are no harm: the other rows of its tables are never asked for.
            ids = self.preprocess.smaller(original.ids, input.shape[0], input.values)
            self._memo[split, input] = replace(original, ids=ids, vocabulary=input.values)
        found: TextSplit = self._memo[split, input]
        return found

    def inputs(self, split: TextSplit) -> NDArray[np.int64]:
        """The texts of `split` as a network takes them, (n, t) int64."""
        return split.ids.astype(np.int64)
