"""The examples of one training: what a task makes its objective of."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from nas.data.images import SplitName
from nas.errors import UserError
from nas.tasks.task import TaskData, TaskSplit
from search_spaces import TensorSpec
from search_spaces.signature import Size

Split = TypeVar("Split", bound=TaskSplit)
FEW = 8
"""Where at most one of so many examples is asked for, the others are not made."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Examples(Generic[Split]):
    """Training and validation examples as the network takes them, and the facts about them that a training needs.

    Raises:
        UserError: there are too few of them.
    """

    train: Split
    val: Split
    preprocess: Any
    size: Size
    """Size of the answers, see `search_spaces.signature.OutputSpec`."""
    traits: Any = None
    """See `nas.tasks.task.TaskData.traits`."""

    def __post_init__(self) -> None:
        if len(self.train) < 2 or len(self.val) == 0:
            raise UserError(
                f"cannot train on {len(self.train)} and validate on {len(self.val)} examples",
                "give at least 2 training examples and 1 validation example",
            )


def some_for_input(data: TaskData, split: SplitName, input: TensorSpec, count: int, seed: int = 0) -> Any:
    """`count` random examples of a split (all, where there are fewer) as a network with this input takes them.

    The same as those of `data.for_input(split, input).some(count, seed)`, without making the others.
    """
    part = getattr(data, split).some(count, seed)
    return data.with_splits(train=part, val=part, test=part).for_input(split, input)


def examples_of(
    data: TaskData,
    input: TensorSpec,
    *,
    validate_on: SplitName = "val",
    train_images: int | None = None,
    validate_every: int = 1,
    seed: int = 0,
) -> Examples[Any]:
    """The examples of a data set for a network with this input.

    Args:
        data: of any task.
        input: of the network.
        validate_on: the split that plays the part of the validation split.
        train_images: use only so many training examples, drawn at random with `seed`; None: all.
        validate_every: validate on every so many-th validation example.
    """
    if train_images is not None and train_images * FEW <= len(data.train):
        train = some_for_input(data, "train", input, train_images, seed)  # the others need not be made
    else:
        train = data.for_input("train", input)
        if train_images is not None and train_images < len(train):
            train = train.some(train_images, seed)
    val = data.for_input(validate_on, input)
    return Examples(
        train=train,
        val=val if validate_every == 1 else val.take(range(0, len(val), validate_every)),
        preprocess=data.preprocess,
        size=data.output_size,
        traits=data.traits,
    )
