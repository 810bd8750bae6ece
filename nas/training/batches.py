"""Training batches: their order and their augmentation, each a function of the seed and the step alone.

Nothing has to be remembered to go on after an interruption: the random state is set anew before every step. All work
is done on whole batches, in the training process: the loop makes the next batch while it computes gradients, and worker
processes would only copy it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torchvision.transforms import v2

from nas.training.augment import augment
from nas.training.recipe import AugmentationSettings

_GROUP = 8
"""Images that share their RandAugment operations: torchvision applies one to a whole tensor."""


def seed_step(*numbers: int) -> torch.Generator:
    """Seed torch's global random state by `numbers`, and return a generator of its own from the same seed."""
    seed = int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.manual_seed(seed)
    else:
        # torch.manual_seed would put off the seeds of GPUs, with the caller's stack written out, at every step.
        torch.default_generator.manual_seed(seed)
    return torch.Generator().manual_seed(seed)


class Augmenter:
    """A recipe's augmentation; draws from torch's global state and the generator it is given."""

    def __init__(self, settings: AugmentationSettings, num_classes: int, *, flip_ok: bool) -> None:
        self.settings = settings
        self.flip = flip_ok if settings.flip == "auto" else settings.flip
        ops = settings.randaugment_ops
        self.randaugment = v2.RandAugment(num_ops=ops, magnitude=settings.randaugment_magnitude) if ops else None
        mixers = ((v2.MixUp, settings.mixup_alpha), (v2.CutMix, settings.cutmix_alpha))
        self.mixers = [mixer(alpha=alpha, num_classes=num_classes) for mixer, alpha in mixers if alpha > 0]

    def images(self, images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """(n, h, h, 3) uint8 -> the same shape, uint8 or float32 in 0..255."""
        if self.randaugment is not None:
            groups = images.permute(0, 3, 1, 2).split(_GROUP)  # type: ignore[no-untyped-call]
            images = torch.cat([self.randaugment(group) for group in groups]).permute(0, 2, 3, 1)
        if self.settings.crop == "light":
            images = augment(images, generator, flip=self.flip)
        elif self.flip:
            mirrored = (torch.rand(len(images), generator=generator) < 0.5).to(images.device)
            images = torch.where(mirrored[:, None, None, None], images.flip(2), images)
        return images

    def mixed(
        self, images: torch.Tensor, targets: torch.Tensor, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Boxes erased and images mixed: (n, 3, h, w) normalised -> the same, with targets (n,) or (n, c)."""
        if self.settings.erasing_probability:
            images = erased(images, self.settings.erasing_probability, generator)
        if self.mixers and float(torch.rand((), generator=generator)) < self.settings.mix_probability:
            mixer = self.mixers[int(torch.randint(len(self.mixers), (), generator=generator))]
            images, targets = mixer(images, targets)
        return images, targets


def erased(images: torch.Tensor, probability: float, generator: torch.Generator) -> torch.Tensor:
    """Some of the images with a random box of zeros (the mean), 2-33 % of the area (Zhong et al. 2017).

    (n, c, h, w) normalised. For all images at once; timm's has a loop and draws from Python's global random state.
    """
    n, _, height, width = images.shape
    draws = torch.rand(5, n, generator=generator)
    area = 0.02 + draws[0] * (1 / 3 - 0.02)
    ratio = torch.exp((2 * draws[1] - 1) * np.log(1 / 0.3))
    box_height, box_width = (area * ratio).sqrt().clamp(max=1) * height, (area / ratio).sqrt().clamp(max=1) * width
    top, left = draws[2] * (height - box_height), draws[3] * (width - box_width)
    rows, columns = torch.arange(height), torch.arange(width)
    inside_rows = (rows >= top[:, None]) & (rows < (top + box_height)[:, None])
    inside_columns = (columns >= left[:, None]) & (columns < (left + box_width)[:, None])
    box = inside_rows[:, :, None] & inside_columns[:, None, :] & (draws[4] < probability)[:, None, None]
    return images.masked_fill(box[:, None].to(images.device), 0.0)


@dataclass(frozen=True)
class Batches:
    """The batches of a training, of nearly equal size: a small last one would disturb batch norm."""

    count: int
    """Training images."""
    batch_size: int
    """Over all processes together."""
    seed: int
    rank: int = 0
    world: int = 1

    @property
    def per_epoch(self) -> int:
        return max(1, min(round(self.count / self.batch_size), self.count // (2 * self.world)))

    def epoch(self, epoch: int) -> Iterator[torch.Tensor]:
        """Indices of this process's part of each batch of an epoch, in its random order."""
        generator = torch.Generator().manual_seed(int(np.random.SeedSequence((self.seed, epoch)).generate_state(1)[0]))
        order = torch.randperm(self.count, generator=generator)
        for indices in order.tensor_split(self.per_epoch):
            yield indices.tensor_split(self.world)[self.rank]
