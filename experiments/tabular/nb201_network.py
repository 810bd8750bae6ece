"""The network around a NAS-Bench-201 cell."""

from collections.abc import Sequence

from torch import Tensor, nn

from experiments.tabular.nb201 import CELLS_PER_STAGE, CHANNELS, CONV1, CONV3, EDGES, NONE, POOL, SKIP
from search_spaces.modules import PooledLinear


class Zero(nn.Module):
    """No signal and no gradient, of the input's shape."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mul(0.0)


def relu_conv_norm(in_channels: int, out_channels: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """ReLU, convolution, batch norm. The ReLU is not in place: the node it reads feeds other edges too."""
    return nn.Sequential(
        nn.ReLU(),
        nn.Conv2d(in_channels, out_channels, kernel, stride, kernel // 2, bias=False),
        nn.BatchNorm2d(out_channels),
    )


def operation(op: int, channels: int) -> nn.Module:
    """The module of an operation id."""
    if op == NONE:
        return Zero()
    if op == SKIP:
        return nn.Identity()
    if op == POOL:
        return nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False)
    return relu_conv_norm(channels, channels, {CONV1: 1, CONV3: 3}[op])


class Cell(nn.Module):
    """Four nodes, each the sum of what arrives on its edges; the last one is the output."""

    def __init__(self, ops: Sequence[int], channels: int) -> None:
        super().__init__()
        self.edges = nn.ModuleList(operation(op, channels) for op in ops)

    def forward(self, x: Tensor) -> Tensor:
        nodes = [x]
        for node in (1, 2, 3):
            arriving = [edge(nodes[tail]) for edge, (tail, head) in zip(self.edges, EDGES, strict=True) if head == node]
            total: Tensor = arriving[0]
            for part in arriving[1:]:
                total = total + part
            nodes.append(total)
        return nodes[-1]


class Reduction(nn.Module):
    """Residual block that halves the resolution: two 3x3 convolutions beside an average pool and a 1x1 convolution."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            relu_conv_norm(in_channels, out_channels, 3, stride=2), relu_conv_norm(out_channels, out_channels, 3)
        )
        self.shortcut = nn.Sequential(nn.AvgPool2d(2), nn.Conv2d(in_channels, out_channels, 1, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x) + self.shortcut(x)
        return out


class CellNetwork(nn.Module):
    """Stem, three stages of cells with reductions between them, head: `(b, 3, 32, 32)` -> logits `(b, classes)`.

    Any input of 4 px or more works; the benchmark uses 32 (CIFAR) and 16 (ImageNet-16).
    """

    def __init__(self, ops: Sequence[int], num_classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, CHANNELS[0], 3, padding=1, bias=False), nn.BatchNorm2d(CHANNELS[0]))
        stages: list[nn.Module] = []
        before = CHANNELS[0]
        for channels in CHANNELS:
            cells: list[nn.Module] = [Cell(ops, channels) for _ in range(CELLS_PER_STAGE)]
            if channels != before:
                cells.insert(0, Reduction(before, channels))
            stages.append(nn.Sequential(*cells))
            before = channels
        self.stages = nn.ModuleList(stages)
        self.head = nn.Sequential(nn.BatchNorm2d(before), nn.ReLU(), PooledLinear(before, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        logits: Tensor = self.head(x)
        return logits
