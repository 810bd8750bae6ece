"""Text classification as a `nas.tasks.task.Task`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nas.data_options import MACRO_F1, USUAL, DataOptions
from nas.errors import UserError
from nas.tasks.baseline import BaselineNetwork
from nas.tasks.classification import top1_agreement
from nas.tasks.floor import Floor
from nas.tasks.task import Run, TrainingShape
from nas.training.precision import Precision
from search_spaces import SearchSpace, Signature, TensorSpec
from search_spaces.architecture import Option

if TYPE_CHECKING:
    import torch
    from torch import nn

    from nas.tasks.examples import Examples
    from nas.tasks.text.artifacts import TextArtifacts
    from nas.tasks.text.data import TextData, TextSplit
    from nas.tasks.text.teaching import TextTeaching
    from nas.tasks.text.tokenizer import TextPreprocess
    from nas.training.distill import Teacher
    from nas.training.objective import Objective
    from nas.training.recipe import Recipe

SHAPE = TrainingShape(
    short_epochs=(2, 4), min_short_images=512, final_epochs=(3, 8), enough_epochs=8, size_promises=False
)
"""Longer trainings fit the few texts by heart: of SST-2, 20 epochs ended a point below 8 (docs/text.md). Nor do larger
networks gain by them: a search that chose finalists by their size ended below its best short training."""
USUAL_LENGTHS = (0.75, 0.99)
"""Shares of the training texts that fit into the fewest and the most tokens that are searched."""

TAUGHT = ("taught", "given")
"""What a split has of a teacher."""


@dataclass(frozen=True, slots=True)
class TextClassification:
    """One class per text; accuracy, or macro-F1 where classes are unbalanced."""

    name: str = "text"
    metric: str = "accuracy"
    examples: str = "texts"
    default_space: str = "text"
    fallback_space: str = "text"
    default_data: str | None = None
    default_recipe: str = "text"
    shape: TrainingShape = SHAPE
    proxies: tuple[str, ...] = ()
    estimators: tuple[str, ...] = ("short", "predictor")
    dynamic_int8: bool = True
    """See `nas.tasks.task.OfProducts`: attention is."""

    @property
    def baselines(self) -> Mapping[str, BaselineNetwork]:
        return {}

    @property
    def artifacts(self) -> "TextArtifacts":
        from nas.tasks.text.artifacts import TextArtifacts

        return TextArtifacts()

    def load(self, name_or_path: str, *, seed: int, options: DataOptions = USUAL) -> "TextData":
        from nas.tasks.text.data.load import load_texts

        return load_texts(name_or_path, seed=seed, options=options)

    def metric_of(self, data: "TextData") -> str:
        return MACRO_F1 if data.val.unbalanced else self.metric

    def check(self, data: "TextData") -> None:
        classes = len(data.classes)
        for split in (data.train, data.val):
            if len(split) and not (split.labels.min() >= 0 and split.labels.max() < classes):
                raise UserError(f"labels are not all in 0 to {classes - 1}", "count classes from 0")

    def proxy_labels(self, split: "TextSplit") -> NDArray[np.int64]:
        return split.labels

    def searchable(self, space: SearchSpace, data: "TextData", allowed: Mapping[str, Sequence[Option]]) -> SearchSpace:
        """Where a user has not said otherwise: vocabularies that the data have, and numbers of tokens that most texts
        fit into."""
        if "resolution" in allowed:
            raise UserError("--resolution is for images", "say how many tokens of a text are read: --tokens")
        named = {decision.name: decision.options for decision in space.decisions}
        limits = dict(allowed)
        for name, fitting in (("vocab", _vocabularies), ("tokens", _lengths)):
            if name in named and name not in limits:
                limits[name] = fitting(data, [int(option) for option in named[name]])
        return space.restricted(limits)

    def input_label(self, input: TensorSpec) -> str:
        return f"{input.shape[0]} tokens"

    def arrays(self, split: "TextSplit") -> dict[str, NDArray[Any]]:
        found: dict[str, NDArray[Any]] = {
            "ids": split.ids,
            "labels": split.labels,
            "contents": split.contents,
            "vocabulary": np.array([split.vocabulary], np.int64),
        }
        if split.unbalanced:
            found["unbalanced"] = np.ones(1, np.bool_)
        return found | {name: value for name in TAUGHT if (value := getattr(split, name)) is not None}

    def split_of(self, arrays: Mapping[str, NDArray[Any]]) -> "TextSplit":
        from nas.tasks.text.data import TextSplit

        return TextSplit(
            arrays["ids"],
            arrays["labels"],
            arrays["contents"],
            int(arrays["vocabulary"][0]),
            "unbalanced" in arrays,
            **{name: arrays[name] for name in TAUGHT if name in arrays},
        )

    @property
    def recipes(self) -> Mapping[str, str]:
        from nas.training.recipe_files import yaml_recipes

        return yaml_recipes("nas.tasks.text")

    def check_recipe(self, recipe: "Recipe") -> None:
        from nas.tasks.text.recipe import check_recipe

        check_recipe(recipe)

    def recipe(self, **settings: Any) -> "Recipe":
        from nas.training.recipe_files import load_recipe, shared_recipes

        return load_recipe("text-search", bundled=shared_recipes() | dict(self.recipes)).changed(**settings)

    def objective(
        self,
        network: "nn.Module",
        examples: "Examples[TextSplit]",
        recipe: "Recipe",
        *,
        device: "torch.device",
        teacher: "Teacher | None" = None,
    ) -> "Objective":
        from nas.tasks.text.objective import TextObjective

        return TextObjective(network, examples, recipe, device)

    def teacher_view(
        self, input: TensorSpec, own: TensorSpec, given: "TextPreprocess", wanted: "TextPreprocess | None"
    ) -> "Callable[[torch.Tensor], torch.Tensor] | None":
        if input != own or (wanted is not None and wanted != given):
            raise UserError(
                f"a teacher that takes {self.input_label(own)} cannot read what was made for a network that takes "
                f"{self.input_label(input)}, or by another tokenizer",
                "teach with a network of the same tokens, vocabulary and training texts",
            )
        return None

    @property
    def teaching(self) -> "TextTeaching":
        from nas.tasks.text.teaching import TextTeaching

        return TextTeaching()

    def accuracy(
        self,
        network: "nn.Module",
        split: "TextSplit",
        preprocess: "TextPreprocess",
        *,
        precision: Precision = "fp32",
        device: str = "auto",
    ) -> float:
        from nas.tasks.text.evaluate import logits_of, merit_of

        return merit_of(logits_of(network, split, device=device, precision=precision), split)

    def accuracy_in_runtime(
        self, run: Run, split: "TextSplit", preprocess: "TextPreprocess", signature: Signature, *, batch: int = 1
    ) -> float:
        from nas.tasks.text.evaluate import logits_in_runtime, merit_of

        return merit_of(logits_in_runtime(run, split, batch=batch), split)

    def figures_in_runtime(
        self,
        run: Run,
        split: "TextSplit",
        preprocess: "TextPreprocess",
        signature: Signature,
        *,
        classes: Sequence[str],
        batch: int = 1,
    ) -> dict[str, float]:
        """Accuracy and macro-F1, the one that networks are compared by first."""
        from nas.tasks.text import answers, macro_f1
        from nas.tasks.text.evaluate import accuracy, logits_in_runtime

        found = answers(logits_in_runtime(run, split, batch=batch))
        figures = {self.metric: accuracy(found, split), MACRO_F1: macro_f1(found, split.labels)}
        return dict(reversed(figures.items())) if split.unbalanced else figures

    def agreement(self, got: NDArray[np.float32], expected: NDArray[np.float32], signature: Signature) -> float:
        return top1_agreement(got, expected)

    def hits(self, outputs: NDArray[np.float32], split: "TextSplit", signature: Signature) -> NDArray[np.bool_] | None:
        from nas.tasks.text import answers

        return None if split.unbalanced else np.asarray(answers(outputs) == split.labels)

    def usual_preprocess(self, data: "TextData") -> Mapping[str, Any]:
        return {}

    def mirrored(self, network: "nn.Module", data: "TextData") -> "nn.Module | None":
        return None

    def floors(self, data: "TextData", seed: int) -> tuple[Floor, ...]:
        from nas.tasks.text.floors import text_floors

        return text_floors(data, seed)

    def standard_error(self, accuracy: float, split: "TextSplit") -> float | None:
        """Of a count; of macro-F1 as if the scores of classes were counted apart."""
        from nas.tasks.classification.task import balanced_images, counting_std

        return counting_std(accuracy, balanced_images(split.labels) if split.unbalanced else len(split))


def _vocabularies(data: "TextData", options: Sequence[int]) -> list[int]:
    """Vocabularies no larger than the data's own; the smallest one where that is smaller still."""
    return [size for size in options if size <= data.preprocess.size] or [min(options)]


def _lengths(data: "TextData", options: Sequence[int]) -> list[int]:
    """Numbers of tokens between those that three quarters and nearly all of the training texts fit into."""
    from nas.tasks.text.portable import PAD

    lengths = (data.train.ids != PAD).sum(axis=1)
    fewest, most = (
        min((size for size in options if size >= np.quantile(lengths, share)), default=max(options))
        for share in USUAL_LENGTHS
    )
    return [size for size in options if fewest <= size <= most]
