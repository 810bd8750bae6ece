"""What the loop does not know of a task: its batches, its loss, the distance to a teacher, its metric."""

from typing import Any, Protocol

import torch
from torch import nn

from nas.data.images import ImageSplit, Preprocess
from nas.errors import UserError
from nas.finetune.images import Images
from nas.tasks import classification, task_named
from nas.tasks.classification.evaluate import evaluate_accuracy
from nas.tasks.detection.augment import BoxAugmenter, augmentation_at
from nas.tasks.detection.data.values import DetectionSplit
from nas.tasks.detection.distill import box_likeness
from nas.tasks.detection.evaluate import metrics_of
from nas.tasks.detection.heads import HEADS, BoxTargets
from nas.training.batches import Augmenter
from nas.training.config import Precision
from nas.training.distill import Teacher, soft_labels
from nas.training.recipe import Recipe
from search_spaces.signature import class_count


class Lesson(Protocol):
    """One task over the images of one training, on one device."""

    def batch(self, indices: torch.Tensor, generator: torch.Generator, progress: float) -> tuple[torch.Tensor, Any]:
        """Augmented, normalised training images (b, 3, h, h), and targets for `loss`.

        Args:
            indices: (b,) int64.
            generator: of what is drawn, beside torch's global one; both hang on the step alone.
            progress: share of the training that is done, in [0, 1).
        """

    def loss(self, outputs: torch.Tensor, targets: Any) -> torch.Tensor:
        """A float32 scalar."""

    def likeness(self, learnt: torch.Tensor, taught: torch.Tensor) -> torch.Tensor:
        """How much the outputs of network and teacher differ, a float32 scalar."""


def lesson_of(
    images: Images, recipe: Recipe, network: nn.Module, teacher: Teacher | None, device: torch.device
) -> Lesson:
    """The lesson of the task that the images belong to.

    Raises:
        UserError: the recipe has settings of another task, or the teacher cannot teach this network.
    """
    if isinstance(images.train, DetectionSplit):
        task_named("detection").check_recipe(recipe)
        return DetectionLesson(images, recipe, network, teacher, device)
    task_named("classification").check_recipe(recipe)
    return ClassificationLesson(images, recipe, device)


class ClassificationLesson:
    """Labelled images, cross-entropy, top-1 accuracy."""

    def __init__(self, images: Images, recipe: Recipe, device: torch.device) -> None:
        assert isinstance(images.train, ImageSplit)
        self.images, self.recipe, self.device = images, recipe, device
        self.train = images.train
        self.augmenter = Augmenter(recipe.augmentation, class_count(images.size), flip_ok=images.flip_ok)

    def batch(
        self, indices: torch.Tensor, generator: torch.Generator, progress: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        # index_select copies whole images; an index goes through them byte by byte.
        images = torch.from_numpy(self.train.images).index_select(0, indices).to(self.device)
        labels = torch.from_numpy(self.train.labels).index_select(0, indices).to(self.device)
        pixels = self.images.preprocess.tensor(self.augmenter.images(images, generator))
        return self.augmenter.mixed(pixels, labels, generator)

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return classification.loss(outputs, targets, self.recipe.label_smoothing)

    def likeness(self, learnt: torch.Tensor, taught: torch.Tensor) -> torch.Tensor:
        return soft_labels(learnt, taught, self.recipe.distillation.temperature)


class DetectionLesson:
    """Images with boxes, the head's loss, mAP@50."""

    def __init__(
        self, images: Images, recipe: Recipe, network: nn.Module, teacher: Teacher | None, device: torch.device
    ) -> None:
        assert isinstance(images.train, DetectionSplit)
        kind = str(network.head_kind)
        if teacher is not None and (kind, str(teacher.network.head_kind)) != ("anchor-free",) * 2:
            raise UserError(
                f"the teacher {teacher.name!r} ({teacher.network.head_kind}) cannot teach this network ({kind})",
                "both have to be networks of the space detect",
            )
        self.images, self.device = images, device
        self.head, self.resolution = HEADS[kind], images.train.resolution
        settings = recipe.augmentation
        self.crop = settings.crop
        self.augmenter = BoxAugmenter(images.train, flip=images.flip_ok if settings.flip == "auto" else settings.flip)

    def batch(
        self, indices: torch.Tensor, generator: torch.Generator, progress: float
    ) -> tuple[torch.Tensor, list[BoxTargets]]:
        images, boxes = self.augmenter.batch(indices, generator, augmentation_at(self.crop, progress))
        targets = [BoxTargets.of(of_image).to(self.device) for of_image in boxes]
        return self.images.preprocess.tensor(images.to(self.device)), targets

    def loss(self, outputs: torch.Tensor, targets: list[BoxTargets]) -> torch.Tensor:
        return self.head.loss(outputs, targets, self.resolution)

    def likeness(self, learnt: torch.Tensor, taught: torch.Tensor) -> torch.Tensor:
        return box_likeness(learnt, taught, self.resolution)


def accuracy_of(
    network: nn.Module,
    split: ImageSplit | DetectionSplit,
    preprocess: Preprocess,
    *,
    device: torch.device,
    precision: Precision = "fp32",
) -> float:
    """The task's metric, a fraction. The network must be on `device`; it is left in evaluation mode."""
    if isinstance(split, DetectionSplit):
        return metrics_of(network, split, preprocess, device=str(device), precision=precision).map50
    return evaluate_accuracy(network, split, preprocess, device=str(device), precision=precision)
