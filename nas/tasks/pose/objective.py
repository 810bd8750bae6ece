"""The objective of pose estimation: augmented images with poses, the head's loss, OKS-mAP@50:95."""

import torch
from torch import nn

from nas.errors import UserError
from nas.tasks.detection.augment import augmentation_at
from nas.tasks.detection.recipe import check_recipe
from nas.tasks.examples import Examples
from nas.tasks.pose.augment import PoseAugmenter
from nas.tasks.pose.data.values import Poses, PoseSplit
from nas.tasks.pose.distill import pose_distillation_loss
from nas.tasks.pose.evaluate import figures_of, found_by
from nas.tasks.pose.loss import PoseLoss, PoseTargets
from nas.training.distill import Teacher
from nas.training.objective import Validation
from nas.training.precision import Precision
from nas.training.recipe import Recipe
from search_spaces import TensorSpec
from search_spaces.pose import ANCHOR_FREE_POSE


class PoseObjective:
    """Images with poses; see `nas.training.objective.Objective`.

    The accuracy is the OKS-mAP@50:95, a fraction; the details of a validation have "OKS-mAP@50" and "box mAP@50".

    Raises:
        UserError: the recipe has settings of another task, no image has a pose, or the network or its teacher is of
            another kind.
    """

    def __init__(
        self,
        network: nn.Module,
        examples: Examples[PoseSplit],
        recipe: Recipe,
        device: torch.device,
        teacher: Teacher | None,
    ) -> None:
        check_recipe(recipe)
        for name, split in (("training", examples.train), ("validation", examples.val)):
            if not any(poses.labelled.any() for poses in split.boxes):
                raise UserError(
                    f"none of the {len(split)} {name} images has an object with labelled points",
                    f"give {name} images with at least one pose",
                )
        for who, other in (("this network", network), ("the teacher", teacher and teacher.network)):
            if other is not None and str(getattr(other, "head_kind", "none")) != ANCHOR_FREE_POSE:
                raise UserError(f"{who} finds no poses", "take a network of the space pose")
        self._examples, self._device = examples, device
        self._loss = PoseLoss(torch.from_numpy(examples.train.skeleton.sigma_array))
        settings = recipe.augmentation
        self._crop = settings.crop
        flip = examples.traits.flip_ok if settings.flip == "auto" else settings.flip
        self._augmenter = PoseAugmenter(examples.train, flip=flip)
        self._images = torch.from_numpy(examples.train.images)

    @property
    def input(self) -> TensorSpec:
        return self._examples.train.input

    @property
    def train_examples(self) -> int:
        return len(self._examples.train)

    @property
    def val_examples(self) -> int:
        return len(self._examples.val)

    def inputs(self, indices: torch.Tensor) -> torch.Tensor:
        images = self._images.index_select(0, indices).to(self._device)
        prepared: torch.Tensor = self._examples.preprocess.tensor(images)
        return prepared

    def batch(
        self, indices: torch.Tensor, generator: torch.Generator, progress: float
    ) -> tuple[torch.Tensor, PoseTargets]:
        images, boxes = self._augmenter.batch(indices, generator, augmentation_at(self._crop, progress))
        poses = [of_image for of_image in boxes if isinstance(of_image, Poses)]
        targets = PoseTargets.of(poses, progress, self._device)
        return self._examples.preprocess.tensor(images.to(self._device)), targets

    def loss(self, outputs: torch.Tensor, targets: PoseTargets) -> torch.Tensor:
        return self._loss(outputs, targets, self._examples.train.resolution)

    def distillation_loss(self, outputs: torch.Tensor, teacher_outputs: torch.Tensor) -> torch.Tensor:
        return pose_distillation_loss(outputs, teacher_outputs, self._examples.train.resolution)

    def guessing_loss(self, first_loss: float) -> float:
        return first_loss

    def validate(self, network: nn.Module, precision: Precision) -> Validation:
        val, preprocess = self._examples.val, self._examples.preprocess
        found = figures_of(found_by(network, val, preprocess, device=str(self._device), precision=precision), val)
        return Validation(found.map50_95, {"OKS-mAP@50": found.map50, "box mAP@50": found.box_map50})
