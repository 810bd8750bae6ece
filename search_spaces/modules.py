"""The few torch modules that all block families are composed of, and their folding for deployment."""

import copy
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from search_spaces.blocks import squeezed_channels


def activation_module(name: str | None) -> nn.Module:
    """`relu`, `hardswish`, or the identity for None."""
    if name is None:
        return nn.Identity()
    return {"relu": nn.ReLU, "hardswish": nn.Hardswish}[name](inplace=True)


def sequential(*modules: nn.Module | None) -> nn.Sequential:
    return nn.Sequential(*(m for m in modules if m is not None))


class ConvBn(nn.Module):
    """Convolution, batch norm, activation; after folding, convolution with bias and activation.

    With `pool` above 1 the largest of each `pool` x `pool` values goes through the activation. With `copies` it begins
    by copying its input channels as far as they go: a chain without residual connections learns sooner so.
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel: int = 1, stride: int = 1, *, groups: int = 1,
        activation: str | None = None, pool: int = 1, copies: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel, stride, kernel // 2, groups=groups, bias=False)
        self.bn: nn.Module = nn.BatchNorm2d(out_channels)
        self.pool: nn.Module | None = nn.MaxPool2d(pool, ceil_mode=True) if pool > 1 else None
        self.act = activation_module(activation)
        self.copies = copies
        self.depthwise = 1 < groups == in_channels

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.bn(self.convolved(x))
        if self.pool is not None:
            out = self.pool(out)
        activated: Tensor = self.act(out)
        return activated

    def convolved(self, x: Tensor) -> Tensor:
        """The convolution; a depthwise one on a CPU in float32 whatever autocast says.

        The gradients of a depthwise convolution in bfloat16 take up to 20 times as long there (torch 2.15, oneDNN).
        """
        # The device last: a tensor that is only traced (nas.training.rounding) has none.
        if self.depthwise and torch.is_autocast_enabled("cpu") and x.device.type == "cpu":
            with torch.autocast("cpu", enabled=False):
                return cast(Tensor, self.conv(x.float()))
        return cast(Tensor, self.conv(x))

    def fold(self) -> None:
        """Merge the batch norm into the convolution, in place; the module must be in eval mode."""
        if isinstance(self.bn, nn.BatchNorm2d):
            self.conv = fuse_conv_bn_eval(self.conv, self.bn)
            self.bn = nn.Identity()


class SqueezeExcite(nn.Module):
    """Channel attention (Hu et al. 2018, https://arxiv.org/abs/1709.01507) with hard sigmoid gates."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        squeezed = int(squeezed_channels(channels))
        self.reduce = nn.Conv2d(channels, squeezed, 1)
        self.expand = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        pooled = nn.functional.adaptive_avg_pool2d(x, 1)
        gate = nn.functional.hardsigmoid(self.expand(nn.functional.relu(self.reduce(pooled))))
        return x * gate


class Residual(nn.Module):
    """`act(body(x) + shortcut(x))`; the shortcut is the identity where None."""

    def __init__(self, body: nn.Module, shortcut: nn.Module | None = None, activation: str | None = None) -> None:
        super().__init__()
        self.body = body
        self.shortcut = nn.Identity() if shortcut is None else shortcut
        self.act = activation_module(activation)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.act(self.body(x) + self.shortcut(x))
        return out


class RepConv(nn.Module):
    """3x3 + 1x1 + identity branches, each with a batch norm; folds into one 3x3 convolution."""

    def __init__(self, in_channels: int, out_channels: int, stride: int, activation: str) -> None:
        super().__init__()
        self.dense: nn.Module = ConvBn(in_channels, out_channels, 3, stride)
        self.pointwise: nn.Module | None = ConvBn(in_channels, out_channels, 1, stride)
        self.identity: nn.Module | None = (
            nn.BatchNorm2d(in_channels) if stride == 1 and in_channels == out_channels else None
        )
        self.act = activation_module(activation)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.dense(x)
        if self.pointwise is not None:
            out = out + self.pointwise(x)
        if self.identity is not None:
            out = out + self.identity(x)
        activated: Tensor = self.act(out)
        return activated

    def fold(self) -> None:
        """Merge all branches into one convolution, in place; the module must be in eval mode."""
        if self.pointwise is None:
            return
        assert isinstance(self.dense, ConvBn)
        assert isinstance(self.pointwise, ConvBn)
        self.dense.fold()
        self.pointwise.fold()
        conv, point = self.dense.conv, self.pointwise.conv
        assert conv.bias is not None
        assert point.bias is not None
        with torch.no_grad():
            conv.weight[:, :, 1:2, 1:2] += point.weight
            conv.bias += point.bias
            if isinstance(self.identity, nn.BatchNorm2d):
                norm = self.identity
                assert norm.running_mean is not None
                assert norm.running_var is not None
                scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
                channels = torch.arange(len(scale))
                conv.weight[channels, channels, 1, 1] += scale
                conv.bias += norm.bias - norm.running_mean * scale
        self.pointwise = None
        self.identity = None


class PooledLinear(nn.Module):
    """Global average pooling and a linear layer: `(b, c, h, w)` -> `(b, classes)`."""

    def __init__(self, in_channels: int, num_classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(x.mean((2, 3)))
        return out


class Pyramid(nn.Module):
    """Stem and stages of a network, and the feature pyramid that tasks attach to."""

    def __init__(self, stem: nn.Module, stages: Sequence[nn.Module]) -> None:
        super().__init__()
        self.stem = stem
        self.stages = nn.ModuleList(stages)

    def features(self, x: Tensor) -> list[Tensor]:
        """Outputs of the last three stages, finest first: strides 8, 16 and 32 at inputs of 128 px and more."""
        x = self.stem(x)
        pyramid = []
        for stage in self.stages:
            x = stage(x)
            pyramid.append(x)
        return pyramid[-3:]


def initialise_convolutions(network: nn.Module) -> None:
    """Weights for ReLU networks (He et al. 2015, https://arxiv.org/abs/1502.01852) and biases of 0, in place.

    Convolutions that begin as copies have filters of their own only beyond the channels that they copy.
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    for module in network.modules():
        if isinstance(module, ConvBn) and module.copies:
            with torch.no_grad():
                nn.init.dirac_(module.conv.weight[: module.conv.in_channels])


class StagedNetwork(Pyramid):
    """Stem, stages and a classification head."""

    def __init__(self, stem: nn.Module, stages: Sequence[nn.Module], head: nn.Module) -> None:
        super().__init__(stem, stages)
        self.head = head
        initialise_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x)[-1])
        return logits


def folded(network: nn.Module) -> nn.Module:
    """A copy for deployment in eval mode: batch norms and branches merged; the same outputs up to rounding."""
    network = copy.deepcopy(network).eval()
    for module in list(network.modules()):
        if isinstance(module, ConvBn | RepConv):
            module.fold()
    return network


@torch.no_grad()
def set_norm_statistics(network: nn.Module, images: Tensor) -> None:
    """Set every batch norm's statistics from one batch, so that activations of an untrained network keep unit scale.

    Without this, deep random networks run into denormal numbers, which are slow and make timings wrong.
    """
    norms = [m for m in network.modules() if isinstance(m, nn.BatchNorm2d)]
    momenta = [m.momentum for m in norms]
    was_training = network.training
    for norm in norms:
        norm.momentum = 1.0
    network.train()
    network(images)
    network.train(was_training)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
