"""The objective of text classification: texts with hidden tokens, cross-entropy, accuracy or macro-F1."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from nas.tasks import classification
from nas.tasks.classification.objective import soft_label_loss, soft_label_losses
from nas.tasks.examples import Examples
from nas.tasks.objectives import ExamplesObjective
from nas.tasks.text.data import TextSplit
from nas.tasks.text.evaluate import logits_of, merit_of
from nas.tasks.text.linear_model import begin_wide
from nas.tasks.text.portable import MASK
from nas.tasks.text.recipe import check_recipe
from nas.tasks.text.tokenizer import SPECIAL
from nas.training.objective import LOSS, Validation
from nas.training.precision import Precision
from nas.training.recipe import Recipe
from search_spaces.signature import class_count


class TextObjective(ExamplesObjective[TextSplit]):
    """Labelled texts; see `nas.training.objective.Objective`.

    Raises:
        UserError: the recipe has settings of another task.
    """

    def __init__(self, network: nn.Module, examples: Examples[TextSplit], recipe: Recipe, device: torch.device) -> None:
        """The wide path of a network that has learnt nothing yet is begun here, from the training texts."""
        check_recipe(recipe)
        super().__init__(examples, device)
        self._recipe = recipe
        self._classes = class_count(examples.size)
        ids = examples.train.ids.astype(np.int64)
        weights = examples.traits.class_weights
        begin_wide(network, examples.preprocess, ids, examples.train.labels, self._classes, weights=weights)
        self._ids, self._labels = torch.from_numpy(ids), torch.tensor(examples.train.labels, device=device)
        self._class_weights = None if weights is None else torch.tensor(weights, device=device)
        taught, given = examples.train.taught, examples.train.given
        self._taught = None if taught is None else torch.tensor(taught, device=device)
        self._given = torch.ones_like(self._labels) if given is None else torch.tensor(given, device=device)

    def inputs(self, indices: torch.Tensor) -> torch.Tensor:
        return self._ids.index_select(0, indices).to(self._device)

    def batch(
        self, indices: torch.Tensor, generator: torch.Generator, progress: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Of each text some tokens are hidden (Iyyer et al. 2015, "Deep unordered composition rivals syntactic
        methods"). Targets are the places of the texts, (b,) int64."""
        ids = self._ids.index_select(0, indices)
        hidden = torch.rand(ids.shape, generator=generator) < self._recipe.augmentation.erasing_probability
        ids = torch.where(hidden & (ids >= len(SPECIAL)), MASK, ids)
        return ids.to(self._device), indices.to(self._device)

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Cross-entropy with the labels; where a teacher answered, mixed with the distance from its answers as
        `recipe.distillation` says, and of texts without a given label that distance alone."""
        labels = self._labels[targets]
        if self._taught is None:
            return classification.loss(outputs, labels, self._recipe.label_smoothing, self._class_weights)
        settings, given = self._recipe.distillation, self._given[targets].float()
        apart = soft_label_losses(outputs, self._taught[targets], settings.temperature)
        wrong = cross_entropy(outputs.float(), labels, reduction="none", label_smoothing=self._recipe.label_smoothing)
        own = given * (1 - settings.logits_weight)
        weights = torch.ones_like(own) if self._class_weights is None else self._class_weights[labels]
        return (weights * (own * wrong + (1 - own) * apart)).sum() / weights.sum()

    def distillation_loss(self, outputs: torch.Tensor, teacher_outputs: torch.Tensor) -> torch.Tensor:
        return soft_label_loss(outputs, teacher_outputs, self._recipe.distillation.temperature)

    def guessing_loss(self, first_loss: float) -> float:
        return math.log(self._classes)

    def validate(self, network: nn.Module, precision: Precision) -> Validation:
        val = self._examples.val
        logits = logits_of(network, val, device=str(self._device), precision=precision)
        loss = float(classification.loss(torch.from_numpy(logits), torch.from_numpy(np.array(val.labels))))
        return Validation(merit_of(logits, val), {LOSS: loss})
