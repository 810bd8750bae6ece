"""The objective of detection: augmented images with boxes, the head's loss, mAP@50."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import nn

from nas.errors import UserError
from nas.tasks.detection.augment import BoxAugmenter, augmentation_at
from nas.tasks.detection.data.values import Boxes, DetectionSplit
from nas.tasks.detection.distill import box_distillation_loss
from nas.tasks.detection.evaluate import metrics_of
from nas.tasks.detection.heads import HEADS, BoxTargets
from nas.tasks.detection.recipe import check_recipe
from nas.tasks.examples import Examples
from nas.tasks.objectives import ImagesObjective
from nas.training.distill import Teacher
from nas.training.objective import Validation
from nas.training.precision import Precision
from nas.training.recipe import Recipe

Split = TypeVar("Split", bound=DetectionSplit)


class ObjectObjective(ImagesObjective[Split]):
    """What objectives on images with objects share, whatever is told of each object.

    Args:
        examples: letterboxed images.
        recipe: how they are augmented.
        device: that trains.
        augmenter: makes batches of the training images, mirrored or not.
    """

    def __init__(
        self,
        examples: Examples[Split],
        recipe: Recipe,
        device: torch.device,
        augmenter: Callable[..., BoxAugmenter] = BoxAugmenter,
    ) -> None:
        settings = recipe.augmentation
        flip = examples.traits.flip_ok if settings.flip == "auto" else settings.flip
        super().__init__(examples, device)
        self._crop = settings.crop
        self._augmenter = augmenter(examples.train, flip=flip)

    def guessing_loss(self, first_loss: float) -> float:
        # Unlike cross-entropy it depends on the head and on how many objects there are.
        return first_loss

    def _augmented(
        self, indices: torch.Tensor, generator: torch.Generator, progress: float
    ) -> tuple[torch.Tensor, Sequence[Boxes]]:
        """Normalised images (n, 3, side, side), and the objects of each."""
        images, objects = self._augmenter.batch(indices, generator, augmentation_at(self._crop, progress))
        return self._examples.preprocess.tensor(images.to(self._device)), objects


class DetectionObjective(ObjectObjective[DetectionSplit]):
    """Images with boxes; see `nas.training.objective.Objective`.

    The accuracy is the mAP@50, a fraction; the details of a validation have "mAP@50:95".

    Args:
        network: its `head_kind` says which loss it learns by (`nas.tasks.detection.heads.HEADS`).

    Raises:
        UserError: the recipe has settings of another task, no image has an object, or the teacher's output cannot be
            compared with the network's.
    """

    def __init__(
        self,
        network: nn.Module,
        examples: Examples[DetectionSplit],
        recipe: Recipe,
        device: torch.device,
        teacher: Teacher | None,
    ) -> None:
        check_recipe(recipe)
        for name, split in (("training", examples.train), ("validation", examples.val)):
            if all(boxes.crowd.all() for boxes in split.boxes):
                raise UserError(
                    f"none of the {len(split)} {name} images has an object", f"give {name} images with at least one box"
                )
        kind = str(network.head_kind)
        if teacher is not None and (kind, str(teacher.network.head_kind)) != ("anchor-free",) * 2:
            raise UserError(
                f"the teacher {teacher.name!r} ({teacher.network.head_kind}) cannot teach this network ({kind})",
                "both have to be networks of the space detect",
            )
        super().__init__(examples, recipe, device)
        self._head = HEADS[kind]

    def batch(
        self, indices: torch.Tensor, generator: torch.Generator, progress: float
    ) -> tuple[torch.Tensor, list[BoxTargets]]:
        images, boxes = self._augmented(indices, generator, progress)
        return images, [BoxTargets.of(of_image).to(self._device) for of_image in boxes]

    def loss(self, outputs: torch.Tensor, targets: list[BoxTargets]) -> torch.Tensor:
        return self._head.loss(outputs, targets, self._examples.train.resolution)

    def distillation_loss(self, outputs: torch.Tensor, teacher_outputs: torch.Tensor) -> torch.Tensor:
        return box_distillation_loss(outputs, teacher_outputs, self._examples.train.resolution)

    def validate(self, network: nn.Module, precision: Precision) -> Validation:
        val, preprocess = self._examples.val, self._examples.preprocess
        found = metrics_of(network, val, preprocess, device=str(self._device), precision=precision)
        return Validation(found.map50, {"mAP@50:95": found.map50_95})
