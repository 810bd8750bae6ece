"""ResNet-10: the published ResNet (He et al. 2016) with one basic block per stage, at any width."""

import torch
from torch import nn
from torchvision.models.resnet import BasicBlock


class ResNet10(nn.Module):
    """(b, 3, h, w) -> (b, num_classes); stages of 64, 128, 256 and 512 channels times `width`.

    Total stride 32, or 8 with `small_input` (3x3 stem of stride 1, no pooling).
    """

    def __init__(self, num_classes: int, width: float = 1.0, small_input: bool = False) -> None:
        super().__init__()
        channels = [round(base * width) for base in (64, 128, 256, 512)]
        stem_conv = (
            nn.Conv2d(3, channels[0], 3, padding=1, bias=False)
            if small_input
            else nn.Conv2d(3, channels[0], 7, stride=2, padding=3, bias=False)
        )
        pool = nn.Identity() if small_input else nn.MaxPool2d(3, stride=2, padding=1)
        self.stem = nn.Sequential(stem_conv, nn.BatchNorm2d(channels[0]), nn.ReLU(inplace=True), pool)
        self.stages = nn.Sequential(_stage(channels[0], channels[0], 1), *map(_stage, channels[:-1], channels[1:]))
        self.fc = nn.Linear(channels[-1], num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = self.stages(self.stem(x))
        logits: torch.Tensor = self.fc(features.mean((2, 3)))
        return logits


def _stage(inputs: int, outputs: int, stride: int = 2) -> nn.Module:
    shortcut = (
        None
        if inputs == outputs and stride == 1
        else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs))
    )
    block: nn.Module = BasicBlock(inputs, outputs, stride, shortcut)
    return block
