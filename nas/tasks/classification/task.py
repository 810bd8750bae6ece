"""Image classification as a `nas.tasks.task.Task`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nas.data.images import ImageData, ImageSplit, Preprocess
from nas.data_options import BALANCED_ACCURACY, MACRO, USUAL, DataOptions, refuse
from nas.errors import UserError
from nas.tasks.baseline import BaselineNetwork
from nas.tasks.classification import top1_agreement
from nas.tasks.classification.artifacts import ClassificationArtifacts
from nas.tasks.classification.baselines import BASELINES
from nas.tasks.classification.data.labels import require_labels
from nas.tasks.classification.mirroring import mirrored_where_it_may
from nas.tasks.classification.recipe import check_recipe
from nas.tasks.floor import Floor
from nas.tasks.images import USUAL_PREPROCESS, at_fitting_resolutions, side_label, teacher_images
from nas.tasks.task import Run, TrainingShape
from nas.training.precision import Precision
from search_spaces import SearchSpace, Signature, TensorSpec
from search_spaces.architecture import Option

if TYPE_CHECKING:
    import torch
    from torch import nn

    from nas.tasks.examples import Examples
    from nas.training.distill import Teacher
    from nas.training.objective import Objective
    from nas.training.recipe import Recipe


SHAPE = TrainingShape(
    short_epochs=(2, 4), min_short_images=512, final_epochs=(5, 400), enough_examples=250_000
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Classification:
    """One class per image, top-1 accuracy."""

    name: str = "classification"
    metric: str = "accuracy"
    examples: str = "images"
    default_space: str = "compact"
    fallback_space: str = "mixed"
    default_data: str | None = "digits"
    default_recipe: str = "classification-fast"
    shape: TrainingShape = SHAPE
    proxies: tuple[str, ...] = ("grad_norm", "synflow", "naswot")
    estimators: tuple[str, ...] = ("zero-cost", "short", "supernet", "predictor")

    @property
    def baselines(self) -> Mapping[str, BaselineNetwork]:
        return BASELINES

    @property
    def artifacts(self) -> ClassificationArtifacts:
        return ClassificationArtifacts()

    def load(self, name_or_path: str, *, seed: int, options: DataOptions = USUAL) -> ImageData:
        from nas.tasks.classification.data.registry import load_dataset

        if options.metric == MACRO:
            raise UserError("--metric macro-f1 is for texts", "give --metric balanced-accuracy")
        refuse(options, self.name, "tokenizer")
        data = load_dataset(name_or_path, seed=seed, options=options)
        return data if options.flip_anyway else mirrored_where_it_may(data)

    def metric_of(self, data: ImageData) -> str:
        return BALANCED_ACCURACY if data.val.balanced else self.metric

    def check(self, data: ImageData) -> None:
        for split in (data.train, data.val):
            require_labels(split.labels, data.num_classes)

    def proxy_labels(self, split: ImageSplit) -> NDArray[np.int64]:
        return split.labels

    def searchable(self, space: SearchSpace, data: ImageData, allowed: Mapping[str, Sequence[Option]]) -> SearchSpace:
        return at_fitting_resolutions(space, data.native_resolution, allowed)

    def input_label(self, input: TensorSpec) -> str:
        return side_label(input)

    def arrays(self, split: ImageSplit) -> dict[str, Any]:
        flag = {"balanced": np.ones(1, np.bool_)} if split.balanced else {}
        sources = {} if split.sources is None else {"sources": split.sources}
        return {"images": split.images, "labels": split.labels, **sources, **flag}

    def split_of(self, arrays: Mapping[str, Any]) -> ImageSplit:
        sources = arrays.get("sources")
        return ImageSplit(arrays["images"], arrays["labels"], sources=sources, balanced="balanced" in arrays)

    @property
    def recipes(self) -> Mapping[str, str]:
        from nas.training.recipe_files import yaml_recipes

        return yaml_recipes("nas.tasks.classification")

    def check_recipe(self, recipe: "Recipe") -> None:
        check_recipe(recipe)

    def recipe(self, **settings: Any) -> "Recipe":
        from nas.training.recipe_files import load_recipe, shared_recipes

        return load_recipe("classification-search", bundled=shared_recipes() | dict(self.recipes)).changed(**settings)

    def objective(
        self,
        network: "nn.Module",
        examples: "Examples[ImageSplit]",
        recipe: "Recipe",
        *,
        device: "torch.device",
        teacher: "Teacher | None" = None,
    ) -> "Objective":
        from nas.tasks.classification.objective import ClassificationObjective

        return ClassificationObjective(network, examples, recipe, device)

    def teacher_view(
        self, input: TensorSpec, own: TensorSpec, given: Preprocess, wanted: Preprocess | None
    ) -> "Callable[[torch.Tensor], torch.Tensor] | None":
        return teacher_images(input, own, given, wanted)

    @property
    def teaching(self) -> None:
        return None

    def accuracy(
        self,
        network: "nn.Module",
        split: ImageSplit,
        preprocess: Preprocess,
        *,
        precision: Precision = "fp32",
        device: str = "auto",
    ) -> float:
        from nas.tasks.classification.evaluate import evaluate_accuracy

        return evaluate_accuracy(network, split, preprocess, precision=precision, device=device)

    def accuracy_in_runtime(
        self, run: Run, split: ImageSplit, preprocess: Preprocess, signature: Signature, *, batch: int = 1
    ) -> float:
        from nas.tasks.classification.evaluate import accuracy_of, hits_in_runtime

        return accuracy_of(hits_in_runtime(run, split, preprocess, batch=batch), split)

    def figures_in_runtime(
        self,
        run: Run,
        split: ImageSplit,
        preprocess: Preprocess,
        signature: Signature,
        *,
        classes: Sequence[str],
        batch: int = 1,
    ) -> dict[str, float]:
        """Accuracy and balanced accuracy, the one that networks are compared by first."""
        from nas.tasks.classification import balanced_accuracy
        from nas.tasks.classification.evaluate import hits_in_runtime

        hits = hits_in_runtime(run, split, preprocess, batch=batch)
        found = {self.metric: int(hits.sum()) / len(split), BALANCED_ACCURACY: balanced_accuracy(hits, split.labels)}
        return dict(reversed(found.items())) if split.balanced else found

    def agreement(self, got: NDArray[np.float32], expected: NDArray[np.float32], signature: Signature) -> float:
        return top1_agreement(got, expected)

    def hits(self, outputs: NDArray[np.float32], split: ImageSplit, signature: Signature) -> NDArray[np.bool_] | None:
        from nas.tasks.classification.evaluate import right_answers

        return right_answers(outputs, split.labels)

    def usual_preprocess(self, data: ImageData) -> Mapping[str, Any]:
        usual = {name: replace(known, framing=data.preprocess.framing) for name, known in USUAL_PREPROCESS.items()}
        return {"the data's own": data.preprocess, **usual}

    def mirrored(self, network: "nn.Module", data: ImageData) -> "nn.Module | None":
        from nas.tasks.classification.views import MirroredViews

        return MirroredViews(network) if data.flip_ok else None

    def floors(self, data: ImageData, seed: int) -> tuple[Floor, ...]:
        from nas.tasks.classification.floors import classification_floors

        return classification_floors(data, seed)

    def standard_error(self, accuracy: float, split: ImageSplit) -> float | None:
        return counting_std(accuracy, balanced_images(split.labels) if split.balanced else len(split))


def balanced_images(labels: NDArray[np.int64]) -> float:
    """Images of evenly frequent classes whose accuracy is as sure as the balanced one of images with `labels` (n,)."""
    counts = np.bincount(labels)
    counts = counts[counts > 0]
    return float(len(counts) ** 2 / (1 / counts).sum())


def counting_std(accuracy: float, images: float) -> float:
    """Standard deviation of an accuracy (fraction) because it was counted on `images` images; never zero."""
    p = (accuracy * images + 1) / (images + 2)
    return float(np.sqrt(p * (1 - p) / images))
