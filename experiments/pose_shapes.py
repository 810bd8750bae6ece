"""The shape of a published pose network, rebuilt from its published table: to be timed, never trained or delivered.

YOLOv8n-pose (Jocher et al. 2023, https://docs.ultralytics.com/models/yolov8: 3.3 M parameters, 9.2 GFLOPs at 640 px):
width 0.25, depth 0.33. Its decoding (a softmax over distances) is left out, so that times are a lower bound of its own.
"""

import torch
from torch import Tensor, nn

WIDTHS = (16, 32, 64, 128, 256)
POINTS = 17


class Conv(nn.Sequential):
    """Convolution, batch norm, SiLU."""

    def __init__(self, given: int, out: int, kernel: int = 1, stride: int = 1) -> None:
        super().__init__(nn.Conv2d(given, out, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(out), nn.SiLU())


class Bottleneck(nn.Module):
    """Two 3x3 convolutions, with or without the input added."""

    def __init__(self, channels: int, *, added: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(Conv(channels, channels, 3), Conv(channels, channels, 3))
        self.added = added

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x)
        return x + out if self.added else out


class Split(nn.Module):
    """A map in two halves, one of which goes through bottlenecks; all of them are joined at the end."""

    def __init__(self, given: int, out: int, depth: int, *, added: bool) -> None:
        super().__init__()
        half = out // 2
        self.first = Conv(given, out)
        self.blocks = nn.ModuleList(Bottleneck(half, added=added) for _ in range(depth))
        self.last = Conv((2 + depth) * half, out)

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.first(x).chunk(2, dim=1))
        for block in self.blocks:
            parts.append(block(parts[-1]))
        out: Tensor = self.last(torch.cat(parts, dim=1))
        return out


class Pools(nn.Module):
    """Three max-poolings one after the other, joined."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.last = Conv(channels, channels // 2), Conv(2 * channels, channels)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.first(x)]
        for _ in range(3):
            parts.append(self.pool(parts[-1]))
        out: Tensor = self.last(torch.cat(parts, dim=1))
        return out


class YoloV8nPoseShape(nn.Module):
    """float32 `(b, 3, r, r)` -> raw `(b, cells, 64 + 1 + 51)` of strides 8, 16 and 32."""

    def __init__(self) -> None:
        super().__init__()
        a, b, c, d, e = WIDTHS
        self.stem = Conv(3, a, 3, 2)
        self.stages = nn.ModuleList(
            nn.Sequential(Conv(given, out, 3, 2), Split(out, out, depth, added=True))
            for given, out, depth in ((a, b, 1), (b, c, 2), (c, d, 2), (d, e, 1))
        )
        self.pools = Pools(e)
        self.up = nn.Upsample(scale_factor=2.0)
        self.ups = nn.ModuleList((Split(e + d, d, 1, added=False), Split(d + c, c, 1, added=False)))
        self.downs = nn.ModuleList((Conv(c, c, 3, 2), Conv(d, d, 3, 2)))
        self.bottoms = nn.ModuleList((Split(c + d, d, 1, added=False), Split(d + e, e, 1, added=False)))
        ends = ((c, 64), (c, 1), (3 * POINTS, 3 * POINTS))  # width and channels of boxes, scores and points
        self.towers = nn.ModuleList(
            nn.Sequential(Conv(given, wide, 3), Conv(wide, wide, 3), nn.Conv2d(wide, out, 1))
            for given in (c, d, e)
            for wide, out in ends
        )

    def forward(self, x: Tensor) -> Tensor:
        levels = []
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
            levels.append(x)
        _, fine, middle, _ = levels
        coarse = self.pools(x)
        middle = self.ups[0](torch.cat([self.up(coarse), middle], dim=1))
        fine = self.ups[1](torch.cat([self.up(middle), fine], dim=1))
        middle = self.bottoms[0](torch.cat([self.downs[0](fine), middle], dim=1))
        coarse = self.bottoms[1](torch.cat([self.downs[1](middle), coarse], dim=1))
        rows = []
        for number, level in enumerate((fine, middle, coarse)):
            maps = torch.cat([tower(level) for tower in self.towers[3 * number : 3 * number + 3]], dim=1)
            rows.append(maps.reshape(*maps.shape[:2], -1).transpose(1, 2))
        return torch.cat(rows, dim=1)
