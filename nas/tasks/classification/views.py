"""Two views of one image: a network asked about the image and about its mirror image answers better than about one."""

import torch
from torch import Tensor, nn


class MirroredViews(nn.Module):
    """The mean of what `network` answers to an image and to its mirror image: twice the work, for fewer errors.

    Both views go through in one batch. Training of mirrored images is left as it is, so any classifier can be wrapped
    once it is trained (test-time augmentation, for instance Krizhevsky et al. 2012, section 4.1).
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """(n, channels, rows, columns) -> logits (n, classes)."""
        answers: Tensor = self.network(torch.cat([images, images.flip(-1)]))
        first, second = answers.chunk(2)
        return (first + second) / 2
