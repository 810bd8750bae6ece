"""A task as the engine sees it: how its data are loaded, learned, and evaluated. Importing this is cheap: no torch.

The controller, the predictors, the executors and the measuring know only what is in here. Data say which task they
belong to (`data.task`), and `nas.tasks.task_of` finds it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from nas.data.images import SplitName
from nas.data_options import USUAL, DataOptions
from nas.tasks.baseline import BaselineNetwork
from nas.tasks.floor import Floor
from nas.training.precision import Precision
from search_spaces import SearchSpace, Signature, TensorSpec
from search_spaces.architecture import Option
from search_spaces.signature import Size

if TYPE_CHECKING:
    import torch
    from torch import nn

    from nas.tasks.artifacts import BundleArtifacts
    from nas.tasks.examples import Examples
    from nas.tasks.teaching import Teaching
    from nas.training.distill import Teacher
    from nas.training.objective import Objective
    from nas.training.recipe import Recipe

Run = Callable[[NDArray[Any]], NDArray[np.float32]]
"""A loaded network: a batch of what it takes -> its one output, float32, batch first."""


class TaskSplit(Protocol):
    """Examples in memory with what is to be known of them, whatever that is."""

    @property
    def input(self) -> TensorSpec:
        """Input of networks for these examples."""
        ...

    @property
    def fingerprints(self) -> NDArray[np.uint64]:
        """(n,) a hash of each example with its label, the same in every process and version: by them data that changed
        since a run was begun are recognised, see `nas.data.contents`."""
        ...

    def __len__(self) -> int: ...

    def some(self, count: int, seed: int = 0) -> Self:
        """`count` random examples (all, where there are fewer), the same for the same seed."""
        ...

    def take(self, indices: NDArray[np.int64] | Sequence[int]) -> Self:
        """The examples at `indices`, in that order."""
        ...


class TaskData(Protocol):
    """A data set in memory: an immutable value with three splits, which can be pickled.

    - `train`: weights are fitted on it, int8 ranges are calibrated on it.
    - `val`: every decision of a search (proxies, short trainings, early stopping, choice of precision) uses it.
    - `test`: the final number only; nothing may be chosen by it.
    """

    @property
    def task(self) -> str:
        """Reference of its task: a name in `nas.tasks.TASKS`, or `package.module:ATTRIBUTE`."""
        ...

    @property
    def name(self) -> str:
        """Name of the data for people and records."""
        ...

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of what the network tells apart, in the order of its outputs; a bundle carries them."""
        ...

    @property
    def output_size(self) -> Size:
        """Size of a network's answer for these data, such as `(classes,)`."""
        ...

    @property
    def train(self) -> TaskSplit: ...
    @property
    def val(self) -> TaskSplit: ...
    @property
    def test(self) -> TaskSplit: ...
    @property
    def preprocess(self) -> Any:
        """Conversion of an example to a network's input, for training, calibration and deployment alike.

        A value of the task's own, compared by ==; the engine hands it back to the task and looks at nothing in it.
        """
        ...

    @property
    def traits(self) -> Any:
        """Facts beside the examples that a training has to know, such as whether a mirrored image keeps its label.

        A value of the task's own, which can be pickled; None where there is nothing.
        """
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Origin of the splits, for reports."""
        ...

    def with_splits(self, *, train: Any, val: Any, test: Any) -> Self:
        """The same data with other examples."""
        ...

    def with_preprocess(self, preprocess: Any) -> Self:
        """The same data with another `preprocess`: that of a network trained earlier."""
        ...

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
    """Amount of training that the networks of a task need before they can be compared, and before they are handed
    over."""

    short_epochs: tuple[int, int]
    """Fewest and most epochs of a short training."""
    min_short_images: int
    """Training images (where there are so many) below which a short training says nothing."""
    final_epochs: tuple[int, int]
    """Fewest and most epochs of a finalist."""
    enough_epochs: int = 40
    """Epochs of a finalist beyond which a second one is worth more than twice the epochs, and the most where no clock
    ends trainings."""
    enough_examples: int = 0
    """Examples, repeated ones too, that a finalist has to see as well before a second one is worth more: where there
    are few, so many epochs show little."""
    size_promises: bool = True
    """A larger network gains more by a full training; False: who is best after a short one stays best."""

    def for_examples(self, count: int) -> "TrainingShape":
        """The shape where there are so many training examples: `enough_epochs` show `enough_examples`."""
        return replace(self, enough_epochs=max(self.enough_epochs, math.ceil(self.enough_examples / count)))


class Task(Protocol[Data, Split]):
    """One kind of problem. Its figure of merit is called `accuracy` everywhere inside: a fraction, higher is better."""

    @property
    def name(self) -> str:
        """Name for people and the first part of a run folder's name: lower-case letters, digits and hyphens; for a
        bundled task its key in `nas.tasks.TASKS`."""
        ...

    @property
    def metric(self) -> str:
        """Name that people give the fraction: `accuracy`, `mAP@50`."""
        ...

    @property
    def examples(self) -> str:
        """What people call its examples: `images`, `texts`."""
        ...

    @property
    def default_space(self) -> str:
        """Reference of the space that is searched where none was asked for."""
        ...

    @property
    def fallback_space(self) -> str:
        """Reference of the space for targets that are not at hand and whose profiles lack blocks of `default_space`."""
        ...

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
        """Names in `nas.evaluation.estimators.ESTIMATORS` that can evaluate candidates."""
        ...

    @property
    def baselines(self) -> Mapping[str, BaselineNetwork]:
        """Well-known networks to compare winners with; perhaps none.

        Names are unique over all tasks; a task outside `nas.tasks.TASKS` names its own `REFERENCE/NAME`, so that
        `nas.tasks.baseline_named` finds them in any process.
        """
        ...

    @property
    def artifacts(self) -> "BundleArtifacts[Data]":
        """The task's share of a bundle."""
        ...

    # -- data ------------------------------------------------------------------------------------

    def load(self, name_or_path: str, *, seed: int, options: DataOptions = USUAL) -> Data:
        """The data in memory.

        Args:
            name_or_path: as a user names them.
            seed: of splits that are held out.
            options: how they are read.

        Raises:
            UserError: they cannot be used, or an option means nothing to the task.
        """
        ...

    def metric_of(self, data: Data) -> str:
        """Name that people give the fraction on these data: `metric`, unless the data were read with another."""
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
        """Name that people give an input of that kind: `96 px`."""
        ...

    def arrays(self, split: Split) -> dict[str, Any]:
        """Everything in `split` as plain arrays (no objects), or as `StoredImages`, for other processes."""
        ...

    def split_of(self, arrays: Mapping[str, Any]) -> Split:
        """The inverse of `arrays`."""
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

    def recipe(self, **settings: Any) -> "Recipe":
        """Recipe that a search trains candidates and finalists with, some settings changed as by `Recipe.changed`."""
        ...

    def objective(
        self,
        network: "nn.Module",
        examples: "Examples[Split]",
        recipe: "Recipe",
        *,
        device: "torch.device",
        teacher: "Teacher | None" = None,
    ) -> "Objective":
        """Batches, losses and metric of a training of `network` with `recipe` on `device`.

        Raises:
            UserError: the recipe has settings that the task has not, the examples have nothing to learn from, or the
                teacher cannot teach this network.
        """
        ...

    def teacher_view(
        self, input: TensorSpec, own: TensorSpec, given: Any, wanted: Any
    ) -> "Callable[[torch.Tensor], torch.Tensor] | None":
        """Conversion of a batch that was made for a network to one for its teacher; None: it is one already.

        Args:
            input: of the network that is taught.
            own: the input that the teacher was trained with.
            given: the `TaskData.preprocess` by which the batch was made.
            wanted: the one that the teacher was trained with; None: it is not known.
        """
        ...

    @property
    def teaching(self) -> "Teaching[Any] | None":
        """How teachers answer all training examples beforehand; None: they answer batch by batch."""
        ...

    # -- evaluating ------------------------------------------------------------------------------

    def accuracy(
        self,
        network: "nn.Module",
        split: Split,
        preprocess: Any,
        *,
        precision: Precision = "fp32",
        device: str = "auto",
    ) -> float:
        """Accuracy of a torch network on `device` (`auto`: the GPU where there is one), which is left in evaluation
        mode."""
        ...

    def accuracy_in_runtime(
        self, run: Run, split: Split, preprocess: Any, signature: Signature, *, batch: int = 1
    ) -> float:
        """Accuracy of an exported network, which takes and gives what `signature` says; `run` always gets exactly
        `batch` examples, in the order of the split, the last ones filled up with copies that do not count."""
        ...

    def figures_in_runtime(
        self,
        run: Run,
        split: Split,
        preprocess: Any,
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

    def hits(self, outputs: NDArray[np.float32], split: Split, signature: Signature) -> NDArray[np.bool_] | None:
        """(n,) whether each of a network's outputs (n, ...) is the right answer; None where the metric is no share of
        right answers."""
        ...

    def usual_preprocess(self, data: Data) -> Mapping[str, Any]:
        """Values of `TaskData.preprocess` that networks from elsewhere are often trained with, by names for people;
        perhaps none."""
        ...

    def mirrored(self, network: "nn.Module", data: Data) -> "nn.Module | None":
        """`network` asked about an input and about its mirror image, with the mean of both answers, as it is deployed.

        It takes and gives what `network` does. None where a mirror image has another answer than the image, or where
        answers cannot be averaged.
        """
        ...

    def floors(self, data: Data, seed: int) -> tuple[Floor, ...]:
        """Accuracies that can be had without a network within seconds; empty where the task knows none.

        `seed`: of what is drawn.
        """
        ...

    def standard_error(self, accuracy: float, split: Split) -> float | None:
        """Standard deviation of an accuracy because so few images were looked at; None where nothing is known."""
        ...


@runtime_checkable
class OfProducts(Protocol):
    """What a `Task` can say besides, whose networks spend their time in matrix products rather than convolutions."""

    @property
    def dynamic_int8(self) -> bool:
        """True if int8 whose ranges are found in each call is worth a try too."""
        ...


@runtime_checkable
class PartlyFloat(Protocol):
    """What a `Task` can say besides, whose networks lose too much where int8 rounds all of them."""

    @property
    def int8_float_part(self) -> str:
        """The part of a network that int8 leaves in floating point from the start; a key of
        `nas.deploy.float_parts.FLOAT_PARTS`."""
        ...
