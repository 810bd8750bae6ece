"""What a task is to the engine: how its data are loaded, learned, and judged. Importing this is cheap: no torch.

The controller, the predictors, the executors and the measuring know only what is in here. Data say which task they
belong to (`data.task`), and `nas.tasks.task_of` finds it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from nas.data.images import Preprocess, SplitName
from nas.tasks.baseline import BaselineNetwork
from nas.training.config import Precision, TrainConfig, TrainResult
from search_spaces import SearchSpace, Signature, TensorSpec
from search_spaces.architecture import Option
from search_spaces.signature import Size

if TYPE_CHECKING:
    from torch import nn

    from nas.tasks.artifacts import BundleArtifacts
    from nas.training.loop import EpochCallback
    from nas.training.recipe import Recipe

Run = Callable[[NDArray[Any]], NDArray[np.float32]]
"""A loaded network: a batch of what it takes -> its one output, float32, batch first."""


class TaskSplit(Protocol):
    """Examples in memory with what is to be known of them, whatever that is."""

    @property
    def input(self) -> TensorSpec:
        """What networks for these examples take."""
        ...

    def __len__(self) -> int: ...

    def some(self, count: int, seed: int = 0) -> Self:
        """`count` random examples (all, where there are fewer), the same for the same seed."""
        ...

    def take(self, indices: NDArray[np.int64] | Sequence[int]) -> Self:
        """The examples at `indices`, in that order."""
        ...


class TaskData(Protocol):
    """A data set in memory with three splits, as `nas.data.images.ImageData` describes them.

    What implements it is a dataclass with these fields, and a cache `_resized` which may be emptied.
    """

    @property
    def task(self) -> str:
        """Key in `nas.tasks.TASKS`."""
        ...

    @property
    def name(self) -> str: ...
    @property
    def classes(self) -> tuple[str, ...]: ...
    @property
    def output_size(self) -> Size:
        """What a network's answer has to have for these data, such as `(classes,)`."""
        ...

    @property
    def train(self) -> TaskSplit: ...
    @property
    def val(self) -> TaskSplit: ...
    @property
    def test(self) -> TaskSplit: ...
    @property
    def preprocess(self) -> Preprocess: ...
    @property
    def flip_ok(self) -> bool: ...
    @property
    def notes(self) -> tuple[str, ...]: ...
    def for_input(self, split: SplitName, input: TensorSpec) -> TaskSplit:
        """`split` as a network takes it; kept in memory, so that a second call costs nothing."""
        ...

    def inputs(self, split: Any) -> NDArray[Any]:
        """The examples of one of the splits as a network takes them: pre-processed, in one array."""
        ...


Data = TypeVar("Data", bound=TaskData)
Split = TypeVar("Split", bound=TaskSplit)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingShape:
    """How much training the networks of a task need before they can be compared, and before they are handed over."""

    short_epochs: tuple[int, int]
    """Fewest and most epochs of a short training."""
    min_short_images: int
    """Training images (where there are so many) below which a short training says nothing."""
    final_epochs: tuple[int, int]
    """Fewest and most epochs of a finalist."""


class Task(Protocol[Data, Split]):
    """One kind of problem. Its figure of merit is called `accuracy` everywhere inside: a fraction, higher is better."""

    @property
    def name(self) -> str:
        """Key in `nas.tasks.TASKS`, and the first part of a run folder's name."""
        ...

    @property
    def metric(self) -> str:
        """What people call the fraction: `accuracy`, `mAP@50`."""
        ...

    @property
    def default_space(self) -> str: ...

    @property
    def default_data(self) -> str | None:
        """None: data have to be given."""
        ...

    @property
    def shape(self) -> TrainingShape: ...

    @property
    def proxies(self) -> tuple[str, ...]:
        """Names in `nas.evaluation.zero_cost.PROXIES` that a search computes of its candidates."""
        ...

    @property
    def estimators(self) -> tuple[str, ...]:
        """Names in `nas.evaluation.estimators.ESTIMATORS` that can judge candidates."""
        ...

    @property
    def baselines(self) -> Mapping[str, BaselineNetwork]:
        """Well-known networks to compare winners with; perhaps none.

        Names are unique over all tasks; a task outside `nas.tasks.TASKS` names its own `REFERENCE/NAME`, so that
        `nas.tasks.find_baseline` finds them in any process.
        """
        ...

    @property
    def artifacts(self) -> "BundleArtifacts[Data]":
        """The task's share of a bundle."""
        ...

    # -- data ------------------------------------------------------------------------------------

    def load(self, name_or_path: str, *, seed: int) -> Data:
        """The data in memory; raises `UserError` for what cannot be used. `seed`: of splits that are held out."""
        ...

    def check(self, data: Data) -> None:
        """Raises `UserError` for data that no network can learn from, such as labels that are no class."""
        ...

    def proxy_labels(self, split: Split) -> NDArray[np.int64]:
        """(n,) what is given to zero-cost proxies as class labels; zeros where `proxies` look at none."""
        ...

    def searchable(self, space: SearchSpace, data: Data, allowed: Mapping[str, Sequence[Option]]) -> SearchSpace:
        """The part of `space` that is searched on `data`: with the `allowed` options where the user has named them.

        What is up to the data (the resolution of images) the task decides where the user has not. Raises `UserError`
        for options that the space does not have.
        """
        ...

    def input_label(self, input: TensorSpec) -> str:
        """What people call an input of that kind: `96 px`."""
        ...

    def arrays(self, split: Split) -> dict[str, NDArray[Any]]:
        """Everything in `split` as plain arrays (no objects), for other processes."""
        ...

    def split_of(self, arrays: Mapping[str, NDArray[Any]]) -> Split:
        """The inverse of `arrays`."""
        ...

    def facts(self, data: Data) -> dict[str, Any]:
        """Everything in `data` but its splits and notes, as picklable values, for other processes."""
        ...

    def data_of(self, **fields: Any) -> Data:
        """Data from its splits and the result of `facts`."""
        ...

    # -- learning --------------------------------------------------------------------------------

    @property
    def recipes(self) -> Mapping[str, str]:
        """Name -> YAML text of the task's recipes for `nas finetune`, see `nas.training.recipe_files`.

        Names are unique over all tasks.
        """
        ...

    @property
    def default_recipe(self) -> str:
        """The key of `recipes` that `nas finetune` takes where none is named."""
        ...

    def check_recipe(self, recipe: "Recipe") -> None:
        """Raises `UserError` for settings that make no sense for this task."""
        ...

    def recipe(self, **settings: Any) -> TrainConfig:
        """The task's default recipe with some settings changed; with all of `asdict(recipe)`, that recipe again."""
        ...

    def train(
        self,
        network: "nn.Module",
        train_split: Split,
        val_split: Split,
        config: TrainConfig,
        *,
        preprocess: Preprocess,
        callback: "EpochCallback | None" = None,
    ) -> TrainResult:
        """As `nas.training.loop.train`: in place, measured on `val_split` after each epoch."""
        ...

    # -- judging ---------------------------------------------------------------------------------

    def accuracy(
        self, network: "nn.Module", split: Split, preprocess: Preprocess, *, precision: Precision = "fp32"
    ) -> float:
        """Of a torch network, which is left in evaluation mode."""
        ...

    def accuracy_in_runtime(
        self, run: Run, split: Split, preprocess: Preprocess, signature: Signature, *, batch: int = 1
    ) -> float:
        """Of an exported network, which takes and gives what `signature` says; `run` always gets exactly `batch`
        examples."""
        ...

    def figures_in_runtime(
        self,
        run: Run,
        split: Split,
        preprocess: Preprocess,
        signature: Signature,
        *,
        classes: Sequence[str],
        batch: int = 1,
    ) -> dict[str, float]:
        """All there is to tell of an exported network: fractions by name, `metric` first.

        `classes` are the names of the data's classes; the rest is as in `accuracy_in_runtime`.
        """
        ...

    def agreement(self, got: NDArray[np.float32], expected: NDArray[np.float32], signature: Signature) -> float:
        """Fraction of examples (axis 0) for which two outputs of one network mean the same answer."""
        ...

    def standard_error(self, accuracy: float, split: Split) -> float | None:
        """Standard deviation of an accuracy because so few images were looked at; None where nothing is known."""
        ...
