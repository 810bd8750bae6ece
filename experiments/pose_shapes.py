"""The shapes of published pose networks, rebuilt from their published tables: to be timed, never trained or delivered.

YOLOv8n-pose (Jocher et al. 2023, https://docs.ultralytics.com/models/yolov8: 3.3 M parameters, 9.2 GFLOPs at 640 px):
width 0.25, depth 0.33. YOLO-NAS-Pose-N (Aharon et al. 2023, https://github.com/Deci-AI/super-gradients, its published
architecture parameters): as it is deployed, its three-branch blocks folded into one convolution each. Decoding (a
softmax over distances) is left out of both, so that times are a lower bound of their own.
"""

import torch
from torch import Tensor, nn

WIDTHS = (16, 32, 64, 128, 256)
POINTS = 17


class Conv(nn.Sequential):
    """Convolution, batch norm, activation."""

    activation: type[nn.Module] = nn.SiLU

    def __init__(self, given: int, out: int, kernel: int = 1, stride: int = 1) -> None:
        conv = nn.Conv2d(given, out, kernel, stride, kernel // 2, bias=False)
        super().__init__(conv, nn.BatchNorm2d(out), self.activation())


class ReluConv(Conv):
    """Convolution, batch norm, ReLU."""

    activation = nn.ReLU


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


class TwoWays(nn.Module):
    """Two 1x1 convolutions of the same map, one of them followed by residual pairs of 3x3 convolutions, then joined."""

    def __init__(self, given: int, hidden: int, out: int, pairs: int) -> None:
        super().__init__()
        self.long, self.short = ReluConv(given, hidden), ReluConv(given, hidden)
        self.pairs = nn.ModuleList(
            nn.Sequential(ReluConv(hidden, hidden, 3), ReluConv(hidden, hidden, 3)) for _ in range(pairs)
        )
        self.last = ReluConv(2 * hidden, out)

    def forward(self, x: Tensor) -> Tensor:
        long = self.long(x)
        for pair in self.pairs:
            long = long + pair(long)
        out: Tensor = self.last(torch.cat([long, self.short(x)], dim=1))
        return out


class ManyPools(nn.Module):
    """Max-poolings of 5, 9 and 13 pixels of the same map, joined with it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.last = ReluConv(channels, channels // 2), ReluConv(2 * channels, channels)
        self.pools = nn.ModuleList(nn.MaxPool2d(size, 1, size // 2) for size in (5, 9, 13))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        out: Tensor = self.last(torch.cat([x, *(pool(x) for pool in self.pools)], dim=1))
        return out


class UpJoin(nn.Module):
    """A coarse map doubled in size, joined with the map of that size and the halved one of twice that size."""

    def __init__(self, given: int, same: int, finer: int, out: int, hidden: int) -> None:
        super().__init__()
        self.narrow, self.same, self.finer = ReluConv(given, out), ReluConv(same, out), ReluConv(finer, out)
        self.up, self.down = nn.ConvTranspose2d(out, out, 2, 2), ReluConv(out, out, 3, 2)
        self.join, self.blocks = ReluConv(3 * out, out), TwoWays(out, hidden, out, 2)

    def forward(self, coarse: Tensor, same: Tensor, finer: Tensor) -> tuple[Tensor, Tensor]:
        narrow = self.narrow(coarse)
        parts = [self.up(narrow), self.same(same), self.down(self.finer(finer))]
        return narrow, self.blocks(self.join(torch.cat(parts, dim=1)))


class DownJoin(nn.Module):
    """A fine map halved in size, joined with the map of that size."""

    def __init__(self, given: int, same: int, out: int, hidden: int) -> None:
        super().__init__()
        self.down, self.blocks = ReluConv(given, out // 2, 3, 2), TwoWays(out // 2 + same, hidden, out, 2)

    def forward(self, fine: Tensor, same: Tensor) -> Tensor:
        out: Tensor = self.blocks(torch.cat([self.down(fine), same], dim=1))
        return out


class PoseTowers(nn.Module):
    """Boxes and scores from one map, points from another: `(b, 68 + 18 + 34, h, w)`."""

    def __init__(self, given: int, wide: int, points_wide: int, depth: int) -> None:
        super().__init__()
        self.stem, self.points_stem = ReluConv(given, wide), ReluConv(given, points_wide)
        self.boxes = nn.Sequential(ReluConv(wide, wide, 3), nn.Conv2d(wide, 4 * 17, 1))
        self.scores = nn.Sequential(ReluConv(wide, wide, 3), nn.Conv2d(wide, 1 + POINTS, 1))
        tower = [ReluConv(points_wide, points_wide, 3) for _ in range(depth)]
        self.points = nn.Sequential(*tower, nn.Conv2d(points_wide, 2 * POINTS, 1))

    def forward(self, x: Tensor) -> Tensor:
        given = self.stem(x)
        return torch.cat([self.boxes(given), self.scores(given), self.points(self.points_stem(x))], dim=1)


class YoloNasPoseNShape(nn.Module):
    """float32 `(b, 3, r, r)` -> raw `(b, cells, 68 + 18 + 34)` of strides 8, 16 and 32."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = ReluConv(3, 32, 3, 2)
        self.stages = nn.ModuleList(
            nn.Sequential(ReluConv(given, out, 3, 2), TwoWays(out, hidden, out, pairs))
            for given, out, hidden, pairs in ((32, 64, 32, 2), (64, 128, 48, 3), (128, 256, 64, 4), (256, 512, 128, 2))
        )
        self.pools = ManyPools(512)
        self.ups = nn.ModuleList((UpJoin(512, 256, 128, 128, 48), UpJoin(128, 128, 64, 64, 32)))
        self.downs = nn.ModuleList((DownJoin(64, 64, 128, 48), DownJoin(128, 128, 256, 48)))
        # A third of 128, 256 and 512 channels, in multiples of 8.
        self.towers = nn.ModuleList(
            PoseTowers(given, wide, points_wide, depth)
            for given, wide, points_wide, depth in ((64, 48, 48, 2), (128, 88, 168, 2), (256, 168, 168, 3))
        )

    def forward(self, x: Tensor) -> Tensor:
        levels = []
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
            levels.append(x)
        finest, fine, middle, _ = levels
        narrow, up = self.ups[0](self.pools(x), middle, fine)
        narrower, fine = self.ups[1](up, fine, finest)
        middle = self.downs[0](fine, narrower)
        coarse = self.downs[1](middle, narrow)
        maps = [tower(level) for tower, level in zip(self.towers, (fine, middle, coarse), strict=True)]
        return torch.cat([m.reshape(*m.shape[:2], -1).transpose(1, 2) for m in maps], dim=1)
