"""The objective of classification: augmented images, cross-entropy, top-1 accuracy."""

import math

import torch
from torch import nn
from torch.nn.functional import kl_div, log_softmax

from nas.data.images import ImageSplit
from nas.tasks import classification
from nas.tasks.classification.augment import Augmenter, side_at
from nas.tasks.classification.evaluate import accuracy_and_loss
from nas.tasks.classification.recipe import check_recipe
from nas.tasks.examples import Examples
from nas.tasks.objectives import ImagesObjective
from nas.training.objective import LOSS, Validation
from nas.training.precision import Precision
from nas.training.recipe import Recipe
from search_spaces.signature import class_count


class ClassificationObjective(ImagesObjective[ImageSplit]):
    """Labelled images; see `nas.training.objective.Objective`.

    Args:
        network: that is trained: whether images are mixed depends on its size.

    Raises:
        UserError: the recipe has settings of another task.
    """

    def __init__(
        self, network: nn.Module, examples: Examples[ImageSplit], recipe: Recipe, device: torch.device
    ) -> None:
        check_recipe(recipe)
        settings, count = recipe.augmentation, sum(parameter.numel() for parameter in network.parameters())
        super().__init__(examples, device)
        self._recipe = recipe
        self._labels = torch.from_numpy(examples.train.labels)
        weights = examples.traits.class_weights
        self._class_weights = None if weights is None else torch.tensor(weights, device=device)
        self._augmenter = Augmenter(
            settings, class_count(examples.size), flip_ok=examples.traits.flip_ok,
            mixes=settings.mixes(recipe.epochs, count / len(examples.train)),
        )  # fmt: skip

    def batch(
        self, indices: torch.Tensor, generator: torch.Generator, progress: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        images = self.pixels(indices)
        labels = self._labels.index_select(0, indices).to(self._device)
        side = side_at(self._recipe.growing_size, progress, images.shape[1])
        pixels = self._examples.preprocess.tensor(self._augmenter.images(images, generator, side))
        return self._augmenter.mixed(pixels, labels, generator, progress)

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return classification.loss(outputs, targets, self._recipe.label_smoothing, self._class_weights)

    def distillation_loss(self, outputs: torch.Tensor, teacher_outputs: torch.Tensor) -> torch.Tensor:
        return soft_label_loss(outputs, teacher_outputs, self._recipe.distillation.temperature)

    def guessing_loss(self, first_loss: float) -> float:
        return math.log(class_count(self._examples.size))

    def validate(self, network: nn.Module, precision: Precision) -> Validation:
        val, preprocess = self._examples.val, self._examples.preprocess
        accuracy, loss = accuracy_and_loss(network, val, preprocess, device=str(self._device), precision=precision)
        return Validation(accuracy, {LOSS: loss})


def soft_label_loss(logits: torch.Tensor, teacher_logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """Divergence of the classes' probabilities, from logits (n, c) of network and teacher; a float32 scalar."""
    return soft_label_losses(logits, teacher_logits, temperature).mean()


def soft_label_losses(logits: torch.Tensor, teacher_logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """(n,) float32 divergence of the classes' probabilities of each example, see `soft_label_loss`."""
    student, teacher = (log_softmax(each.float() / temperature, dim=1) for each in (logits, teacher_logits))
    # t^2 keeps the gradients' size (Hinton et al. 2015, section 2).
    return kl_div(student, teacher, log_target=True, reduction="none").sum(dim=1) * temperature * temperature
