"""Well-known networks as baselines: torchvision's, and ResNet-10 at three widths; by name all of torchvision and timm,
and what a function of somebody's own builds.

Importing this module is cheap: torch, torchvision and timm are imported when one of their networks is asked for.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from inspect import signature as signature_of
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from nas.data.images import image_side
from nas.errors import MissingDependencyError, UserError
from nas.tasks.baseline import PYTHON, TIMM, TORCHVISION, BaselineNetwork
from search_spaces.reference import imported
from search_spaces.signature import LOGITS, OutputSpec, Signature, class_count

if TYPE_CHECKING:
    from torch import nn

SMALL_INPUT = 64
"""Below so many pixels the ResNets get the usual small-image stem (He et al. 2016, CIFAR): a 3x3 convolution of stride
1 and no pooling, instead of a total stride of 4. The other networks are always used as published."""
ONE_ANSWER: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {name: {"aux_logits": False, "init_weights": False} for name in ("googlenet", "inception_v3")}
)
"""Arguments of torchvision's networks that give more than the logits in training, so that they do not. Their
initial weights are those of PyTorch's layers: torchvision warns that it will give up its own."""


def _is_small(signature: Signature) -> bool:
    return image_side(signature.input) < SMALL_INPUT


def _torchvision(name: str) -> Callable[[Signature], "nn.Module"]:
    def make(signature: Signature) -> "nn.Module":
        from torchvision.models import get_model

        classes = class_count(signature.output.size)
        network: nn.Module = get_model(name, weights=None, num_classes=classes, **ONE_ANSWER.get(name, {}))
        return network

    return make


def _timm(name: str) -> Callable[[Signature], "nn.Module"]:
    def make(signature: Signature) -> "nn.Module":
        import timm

        network: nn.Module = timm.create_model(name, pretrained=False, num_classes=class_count(signature.output.size))
        return network

    return make


def _built_by(reference: str) -> Callable[[Signature], "nn.Module"]:
    """Networks of a function `package.module:NAME`, which is told the number of classes where it takes `num_classes`.

    Raises:
        UserError: there is no such function. Asking imports the module, and so runs its code.
    """
    hint = "write package.module:FUNCTION of an installed package, which returns a torch.nn.Module"
    function = imported(reference, "network", hint)
    if not callable(function):
        raise UserError(f"{reference!r} is no function but {type(function).__name__}", hint)

    def make(signature: Signature) -> "nn.Module":
        from torch import nn

        known = {"num_classes": class_count(signature.output.size)}
        try:
            arguments = known if "num_classes" in signature_of(function).parameters else {}
            network = function(**arguments)
        except (TypeError, ValueError) as error:
            raise UserError(f"{reference!r} cannot be called with num_classes alone: {error}", hint) from error
        if not isinstance(network, nn.Module):
            raise UserError(f"{reference!r} returns no network but {type(network).__name__}", hint)
        return network

    return make


def _torchvision_resnet(name: str) -> Callable[[Signature], "nn.Module"]:
    def make(signature: Signature) -> "nn.Module":
        from torch import nn
        from torchvision.models import get_model

        network: nn.Module = get_model(name, weights=None, num_classes=class_count(signature.output.size))
        if _is_small(signature):
            network.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
            network.maxpool = nn.Identity()
            nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
        return network

    return make


def _resnet10(width: float) -> Callable[[Signature], "nn.Module"]:
    def make(signature: Signature) -> "nn.Module":
        from nas.tasks.classification.resnet10 import ResNet10

        return ResNet10(class_count(signature.output.size), width=width, small_input=_is_small(signature))

    return make


def _classifier(make: Callable[[Signature], "nn.Module"], description: str) -> BaselineNetwork:
    return BaselineNetwork(make, description, lambda size, _: OutputSpec(LOGITS, size, (class_count(size),)))


def _is_torchvisions(name: str) -> bool:
    from torchvision import models

    return name in models.list_models(module=models)


def _is_timms(name: str) -> bool:
    """Also of a name with the tag of its weights, `resnet18.a1_in1k`. Raises `MissingDependencyError` without timm."""
    if find_spec("timm") is None:
        raise MissingDependencyError("timm", "pip install timm")
    import timm

    return bool(timm.is_model(name) and ("." not in name or timm.is_model_pretrained(name)))


class Baselines(Mapping[str, BaselineNetwork]):
    """A table of networks to compare with, which also knows three families by name.

    `torchvision:NAME` and `timm:NAME` are the classification networks of these libraries exactly as published, for any
    number of classes; `python:package.module:FUNCTION` is what that function returns. They are found by `in` and `[]`
    alone: who iterates or counts sees the table. Asking for one of timm's raises `MissingDependencyError` where timm is
    not installed; asking for a function runs its module's code, and raises `UserError` where there is none.
    """

    def __init__(self, table: Mapping[str, BaselineNetwork]) -> None:
        self._table = MappingProxyType(dict(table))

    def __getitem__(self, name: str) -> BaselineNetwork:
        if name.startswith(TORCHVISION) and _is_torchvisions(own := name.removeprefix(TORCHVISION)):
            return _classifier(_torchvision(own), "as torchvision publishes it")
        if name.startswith(TIMM) and _is_timms(own := name.removeprefix(TIMM)):
            return _classifier(_timm(own), "as timm publishes it")
        if name.startswith(PYTHON):
            return _classifier(_built_by(name.removeprefix(PYTHON)), "as somebody's code builds it")
        return self._table[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


BASELINES = Baselines(
    {
        "resnet10_w50": _classifier(_resnet10(0.5), "ResNet with one basic block per stage, half as wide"),
        "resnet10_w75": _classifier(_resnet10(0.75), "ResNet with one basic block per stage, three quarters as wide"),
        "resnet10": _classifier(_resnet10(1.0), "ResNet with one basic block per stage"),
        "resnet18": _classifier(_torchvision_resnet("resnet18"), "He et al. 2016"),
        "resnet50": _classifier(_torchvision_resnet("resnet50"), "He et al. 2016"),
        "mobilenet_v3_small": _classifier(_torchvision("mobilenet_v3_small"), "Howard et al. 2019"),
        "mobilenet_v3_large": _classifier(_torchvision("mobilenet_v3_large"), "Howard et al. 2019"),
        "efficientnet_b0": _classifier(_torchvision("efficientnet_b0"), "Tan and Le 2019"),
        "regnet_y_400mf": _classifier(_torchvision("regnet_y_400mf"), "Radosavovic et al. 2020"),
    }
)
