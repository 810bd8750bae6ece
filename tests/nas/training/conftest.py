"""A small learnable data set and a small network."""

import numpy as np
import pytest
import torch
from torch import nn

from nas.data import ImageData, ImageSplit, RawImages
from nas.data.splits import complete


def small_network(classes: int = 3, seed: int = 0) -> nn.Module:
    """Three strided convolutions with batch norm, dropout and a linear head; the caller's random state is kept."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers: list[nn.Module] = []
        for inputs, outputs in ((3, 8), (8, 16), (16, 32)):
            layers += [nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(32, classes))


def blobs(per_class: int, seed: int, size: int = 32) -> ImageSplit:
    """Noise whose colour is the class: red, green or blue."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(3), per_class))
    images = rng.integers(0, 160, (len(labels), size, size, 3))
    images[np.arange(len(labels)), :, :, labels] += 60
    return ImageSplit(images.astype(np.uint8), labels.astype(np.int64))


@pytest.fixture(scope="session")
def data() -> ImageData:
    """120 training images of three classes at 32 px, 60 to validate."""
    return complete("blobs", RawImages(("r", "g", "b"), blobs(40, 0), blobs(20, 1), blobs(20, 2)), seed=0)
