"""Learning from a teacher's logits and, if wanted, from its last features (Hinton et al. 2015)."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import cosine_similarity, interpolate

from nas.data.images import Preprocess
from nas.errors import UserError
from nas.training.recipe import DistillationSettings
from search_spaces import TensorSpec

Rescale = tuple[torch.Tensor, torch.Tensor]
"""Factor and summand of each channel, (3, 1, 1) float32."""


def rescaling(given: Preprocess, wanted: Preprocess) -> Rescale | None:
    """What makes images that were normalised by `given` those that `wanted` makes; None where both are the same."""
    if given == wanted:
        return None
    (mean, std), (own_mean, own_std) = (
        (torch.tensor(p.mean)[:, None, None], torch.tensor(p.std)[:, None, None]) for p in (given, wanted)
    )
    return std / own_std, (mean - own_mean) / own_std


@dataclass(frozen=True, slots=True, eq=False)
class Teacher:
    """A trained network whose outputs another one learns from."""

    network: nn.Module
    """In evaluation mode."""
    input: TensorSpec
    """What it takes; images of another size are resized for it."""
    name: str
    rescale: Rescale | None = None
    """From the student's normalisation to its own; None: they are the same."""

    @torch.no_grad()
    def __call__(self, images: torch.Tensor, *, features: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Logits (n, c) and, if wanted, last features (n, f) of images (n, 3, h, h), normalised for the student."""
        if images.shape[1:] != self.input.shape:
            images = interpolate(images, size=self.input.shape[1:], mode="bilinear", antialias=True)
        if self.rescale is not None:
            images = images * self.rescale[0] + self.rescale[1]
        if features:
            return with_features(self.network, images)
        return self.network(images), None


class Learner(nn.Module):
    """The network to be trained, and the linear map from its features to the teacher's where those are compared."""

    def __init__(self, network: nn.Module, teacher: Teacher | None, settings: DistillationSettings) -> None:
        super().__init__()
        self.network = network
        self.adapter: nn.Linear | None = None
        if teacher is not None and settings.features_weight:
            inputs, outputs = last_linear(network).in_features, last_linear(teacher.network).in_features
            self.adapter = nn.Linear(inputs, outputs)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """(n, 3, h, h) -> logits (n, c), and mapped features (n, f) where there is a map."""
        if self.adapter is None:
            return self.network(images), None
        logits, features = with_features(self.network, images)
        return logits, self.adapter(features)


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


def with_features(network: nn.Module, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits, and what the last linear layer gets."""
    seen: list[torch.Tensor] = []
    handle = last_linear(network).register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    try:
        logits = network(images)
    finally:
        handle.remove()
    return logits, seen[0]


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
