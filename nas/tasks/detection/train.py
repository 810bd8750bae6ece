"""Trainings of detectors: the lesson that `nas.training.loop` teaches them."""

import torch
from torch import nn

from nas.data.images import Preprocess
from nas.errors import UserError
from nas.tasks.detection.augment import BoxAugmenter, augmentation_at
from nas.tasks.detection.data.values import DetectionSplit
from nas.tasks.detection.evaluate import metrics_of
from nas.tasks.detection.heads import HEADS, BoxTargets
from nas.training.config import Precision, TrainConfig, TrainResult
from nas.training.loop import EpochCallback, Validation, teach
from nas.training.precision import autocast, resolve_device


def train(
    network: nn.Module,
    train_split: DetectionSplit,
    val_split: DetectionSplit,
    config: TrainConfig,
    *,
    preprocess: Preprocess,
    callback: EpochCallback | None = None,
    device: str = "auto",
) -> TrainResult:
    """Train a detector in place and measure it on `val_split` after each epoch, as `nas.training.loop.teach` says.

    Both splits have the resolution to train at (`DetectionData.at`). The result's accuracy is the mAP@50, a fraction;
    `details` has "mAP@50:95".

    Args:
        network: its `head_kind` says how it is taught (`nas.tasks.detection.heads.HEADS`).

    Raises:
        UserError: too few images, or none with an object.
    """
    for name, split in (("training", train_split), ("validation", val_split)):
        if len(split) and all(boxes.crowd.all() for boxes in split.boxes):
            raise UserError(
                f"none of the {len(split)} {name} images has an object", f"give {name} images with at least one box"
            )
    lesson = DetectionLesson(network, train_split, val_split, config, preprocess, resolve_device(device))
    return teach(network, lesson, config, callback=callback, device=device)


class DetectionLesson:
    """Batches of augmented images with boxes, the head's loss, mAP@50."""

    def __init__(
        self,
        network: nn.Module,
        train_split: DetectionSplit,
        val_split: DetectionSplit,
        config: TrainConfig,
        preprocess: Preprocess,
        device: torch.device,
    ) -> None:
        self.head = HEADS[str(network.head_kind)]
        self.augmenter = BoxAugmenter(train_split, flip=config.flip)
        self.config, self.preprocess, self.device = config, preprocess, device
        self.val_split = val_split
        self.input = train_split.input
        self.resolution = train_split.resolution
        self.train_images, self.val_images = len(train_split), len(val_split)
        self.first_loss: float | None = None

    def loss(
        self, model: nn.Module, indices: torch.Tensor, generator: torch.Generator, progress: float, precision: Precision
    ) -> torch.Tensor:
        recipe = augmentation_at(self.config.augment, progress)
        images, boxes = self.augmenter.batch(indices, generator, recipe)
        with autocast(self.device, precision):
            raw = model(self.preprocess.tensor(images.to(self.device)))
        targets = [BoxTargets.of(of_image).to(self.device) for of_image in boxes]
        loss = self.head.loss(raw, targets, self.resolution)
        if self.first_loss is None:
            self.first_loss = float(loss.detach())
        return loss

    def guessing_loss(self) -> float:
        # Unlike cross-entropy it depends on the head and on how many objects there are.
        return self.first_loss or 0.0

    def validate(self, model: nn.Module, precision: Precision) -> Validation:
        found = metrics_of(model, self.val_split, self.preprocess, device=str(self.device), precision=precision)
        return Validation(found.map50, {"mAP@50:95": found.map50_95})
