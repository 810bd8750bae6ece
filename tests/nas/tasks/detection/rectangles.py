"""Detection data that a tiny network learns in seconds: coloured rectangles on noise."""

import numpy as np
import torch
from torch import nn

from nas.data.portable import PADDING
from nas.tasks.detection.data.values import Boxes, DetectionSplit

COLOURS = np.array([[230, 40, 40], [40, 60, 230]])
"""Of the two classes."""


def rectangles(count: int, seed: int, size: int = 64, most: int = 3) -> DetectionSplit:
    """`count` pictures of size x 3/4 size with up to `most` rectangles that do not touch; some have none."""
    rng = np.random.default_rng(seed)
    rows = size * 3 // 4
    images = np.full((count, size, size, 3), PADDING, np.uint8)
    images[:, :rows] = rng.integers(90, 140, (count, rows, size, 3))
    found = []
    for image in images:
        boxes: list[tuple[int, int, int, int]] = []
        classes = []
        for _ in range(rng.integers(0, most + 1)):
            width, height = rng.integers(size // 5, size // 2, 2)
            x, y = rng.integers(0, size - width), rng.integers(0, rows - height)
            if any(x < b[2] + 2 and b[0] < x + width + 2 and y < b[3] + 2 and b[1] < y + height + 2 for b in boxes):
                continue
            label = int(rng.integers(2))
            image[y : y + height, x : x + width] = COLOURS[label]
            boxes.append((x, y, x + width, y + height))
            classes.append(label)
        found.append(
            Boxes(np.array(boxes, np.float32).reshape(-1, 4), np.array(classes, np.int64), np.zeros(len(boxes), bool))
        )
    return DetectionSplit(images, tuple(found), np.tile(np.array([[rows, size]]), (count, 1)))


class TinyDetector(nn.Module):
    """Raw outputs at strides 8, 16 and 32 from seven convolutions; the caller's random state is kept."""

    head_kind = "anchor-free"

    def __init__(self, classes: int = 2, width: int = 24, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.stem = nn.Sequential(_conv(3, width // 2), _conv(width // 2, width))
            self.stages = nn.ModuleList([_conv(width, width) for _ in range(3)])
            heads = [nn.Conv2d(width, 4 + classes, 1) for _ in range(3)]
            for head in heads:
                head.bias.data[4:] = -4.6  # a score of 0.01
            self.heads = nn.ModuleList(heads)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.stem(images)
        raw = []
        for stage, head in zip(self.stages, self.heads, strict=True):
            features = stage(features)
            raw.append(head(features).flatten(2).transpose(1, 2))
        return torch.cat(raw, dim=1)


def _conv(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())
