"""Learning from a teacher's logits and, if wanted, from its last features (Hinton et al. 2015)."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn.functional import cosine_similarity

from nas.errors import UserError
from nas.training.recipe import DistillationSettings

View = Callable[[torch.Tensor], torch.Tensor]
"""Makes of a batch for the student one for the teacher."""
Answers = tuple[torch.Tensor, torch.Tensor | None]
"""A teacher's outputs (n, ...) and, if wanted, last features (n, f) for a batch."""


@dataclass(frozen=True, slots=True, eq=False)
class Teacher:
    """A trained network whose outputs another one learns from."""

    network: nn.Module
    """The network in evaluation mode."""
    name: str
    view: View | None = None
    """Conversion of a batch for the student to one for the teacher; None: both take the same."""
    kept: dict[Hashable, Answers] = field(default_factory=dict)
    """What it said of batches that come again, by what tells them apart; trainings on the same batches may share it."""

    @torch.no_grad()
    def __call__(self, inputs: torch.Tensor, *, features: bool, batch: Hashable = None) -> Answers:
        """What it says of inputs (n, ...) that were made for the student.

        `batch` tells them apart from all others where they come again: their answers are kept. None: they do not.
        """
        key = batch, features
        if key in self.kept:
            return self.kept[key]
        seen = inputs if self.view is None else self.view(inputs)
        answers = with_features(self.network, seen) if features else (self.network(seen), None)
        if batch is not None:
            self.kept[key] = answers
        return answers


class Learner(nn.Module):
    """The network to be trained, and the linear map from its features to the teacher's where those are compared."""

    def __init__(self, network: nn.Module, teacher: Teacher | None, settings: DistillationSettings) -> None:
        super().__init__()
        self.network = network
        self.adapter: nn.Linear | None = None
        if teacher is not None and settings.features_weight:
            inputs, outputs = last_linear(network).in_features, last_linear(teacher.network).in_features
            self.adapter = nn.Linear(inputs, outputs)

    def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """(n, ...) -> outputs (n, ...), and mapped features (n, f) where there is a map."""
        if self.adapter is None:
            return self.network(inputs), None
        outputs, features = with_features(self.network, inputs)
        return outputs, self.adapter(features)


def distilled(
    target_loss: torch.Tensor,
    distillation_loss: torch.Tensor,
    features: torch.Tensor | None,
    teacher_features: torch.Tensor | None,
    settings: DistillationSettings,
) -> torch.Tensor:
    """The whole loss of one batch: by its targets, and by how far network and teacher are apart."""
    loss = (1 - settings.logits_weight) * target_loss + settings.logits_weight * distillation_loss
    if features is not None and teacher_features is not None:
        alike = cosine_similarity(features.float(), teacher_features.float()).mean()
        loss = loss + settings.features_weight * (1 - alike)
    return loss


def with_features(network: nn.Module, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs, and the inputs of the last linear layer."""
    seen: list[torch.Tensor] = []
    handle = last_linear(network).register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    try:
        outputs = network(batch)
    finally:
        handle.remove()
    return outputs, seen[0]


def last_linear(network: nn.Module) -> nn.Linear:
    """The layer that makes the logits.

    Raises:
        UserError: there is none.
    """
    found = [module for module in network.modules() if isinstance(module, nn.Linear)]
    if not found:
        raise UserError(
            "features cannot be compared with those of a network without a linear layer",
            "set distillation.features_weight to 0",
        )
    return found[-1]
