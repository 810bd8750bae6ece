"""The objective of pose estimation: augmented images with poses, the head's loss, OKS-mAP@50:95."""

import torch
from torch import nn

from nas.errors import UserError
from nas.tasks.detection.objective import ObjectObjective
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
from search_spaces.pose import ANCHOR_FREE_POSE


class PoseObjective(ObjectObjective[PoseSplit]):
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
        super().__init__(examples, recipe, device, PoseAugmenter)
        self._loss = PoseLoss(torch.from_numpy(examples.train.skeleton.sigma_array))

    def batch(
        self, indices: torch.Tensor, generator: torch.Generator, progress: float
    ) -> tuple[torch.Tensor, PoseTargets]:
        images, found = self._augmented(indices, generator, progress)
        poses = [of_image for of_image in found if isinstance(of_image, Poses)]
        return images, PoseTargets.of(poses, progress, self._device)

    def loss(self, outputs: torch.Tensor, targets: PoseTargets) -> torch.Tensor:
        return self._loss(outputs, targets, self._examples.train.resolution)

    def distillation_loss(self, outputs: torch.Tensor, teacher_outputs: torch.Tensor) -> torch.Tensor:
        return pose_distillation_loss(outputs, teacher_outputs, self._examples.train.resolution)

    def validate(self, network: nn.Module, precision: Precision) -> Validation:
        val, preprocess = self._examples.val, self._examples.preprocess
        found = figures_of(found_by(network, val, preprocess, device=str(self._device), precision=precision), val)
        return Validation(found.map50_95, {"OKS-mAP@50": found.map50, "box mAP@50": found.box_map50})
