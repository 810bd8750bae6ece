"""What may stand in the place of a unit of a network: cheaper modules between the same two tensors.

Which of them is cheap is a property of the deployment, by up to ten times (a depthwise block can be the slowest of all
in int8), so none is assumed to be: their times are measured. All begin near the identity where shapes allow it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from torch import fx, nn

from nas.networks.units import Unit
from search_spaces.modules import ConvBn, PooledLinear, Residual, initialise_convolutions, sequential

KEEP, DROP = "keep", "drop"
"""The unit itself, and nothing in its place."""
MULTIPLE = 8
"""Inner widths are multiples of so many channels: registers hold as many or more."""
_ACTIVATIONS = frozenset({"relu", "relu6", "silu", "hardswish", "gelu", "leakyrelu", "elu", "mish", "prelu"})


@dataclass(frozen=True, slots=True)
class Place:
    """What a replacement has to fit: both shapes without the batch axis, and whether the unit ends in an activation."""

    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    activated: bool

    @property
    def is_map(self) -> bool:
        """True if it takes square feature maps (channels, rows, columns) and gives such: where rows and columns differ,
        the last axis may be that of channels."""
        shapes = (self.input_shape, self.output_shape)
        return all(len(shape) == 3 and shape[1] == shape[2] for shape in shapes)

    @property
    def strides(self) -> tuple[int, int] | None:
        """Strides that two convolutions in a row share (the first one strides first); None: no two can."""
        if not self.is_map:
            return None
        _, rows, columns = self.input_shape
        _, out_rows, out_columns = self.output_shape
        for first, second in ((1, 1), (2, 1), (2, 2)):
            whole = first * second
            if (-(-rows // whole), -(-columns // whole)) == (out_rows, out_columns):
                return first, second
        return None

    @property
    def activation(self) -> str | None:
        return "relu" if self.activated else None


def place_of(unit: Unit) -> Place:
    """The place that `unit` takes in its network."""
    return Place(unit.input_shape[1:], unit.output_shape[1:], _ends_activated(unit.module))


def options_of(unit: Unit) -> dict[str, nn.Module]:
    """All that may replace `unit`, by name, with fresh weights from torch's global generator; `KEEP` is not in it."""
    place = place_of(unit)
    made = {name: make(place) for name, make in OPTIONS.items()}
    return {name: module for name, module in made.items() if module is not None}


def replacement(unit: Unit, option: str) -> nn.Module:
    """The module of that name in the place of `unit`, which is what `KEEP` names.

    Raises:
        KeyError: there is no such option for this unit.
    """
    if option == KEEP:
        return unit.module
    made = OPTIONS[option](place_of(unit))
    if made is None:
        raise KeyError(option)
    return made


def _ends_activated(module: nn.Module) -> bool:
    """True if the last operation of a unit is an activation; pooling behind one changes nothing of it."""
    if not isinstance(module, fx.GraphModule):
        return False
    operations = [node for node in module.graph.nodes if node.op not in ("placeholder", "output")]
    kinds = [_kind(module, node) for node in operations]
    while kinds and ("pool" in kinds[-1] or kinds[-1] in ("dropout", "identity")):
        kinds.pop()
    return bool(kinds) and kinds[-1] in _ACTIVATIONS


def _kind(module: fx.GraphModule, node: fx.Node) -> str:
    if node.op == "call_module":
        target = module.get_submodule(str(node.target))
        # timm has norms that end in an activation of their own
        inner = getattr(target, "act", None)
        name = type(inner if isinstance(inner, nn.Module) else target).__name__
    else:
        name = str(getattr(node.target, "__name__", node.target))
    return name.lower().rstrip("_")


def _drop(place: Place) -> nn.Module | None:
    return nn.Identity() if place.input_shape == place.output_shape else None


def _conv(place: Place) -> nn.Module | None:
    """One 3x3 convolution, which begins as a copy of its input as far as channels go."""
    strides = place.strides
    if strides is None or strides[1] > 1:
        return None
    conv = ConvBn(place.input_shape[0], place.output_shape[0], 3, strides[0], activation=place.activation, copies=True)
    return _initialised(conv)


def _basic(share: float) -> Callable[[Place], nn.Module | None]:
    """Two 3x3 convolutions, with `share` of the channels between them."""

    def make(place: Place) -> nn.Module | None:
        strides = place.strides
        if strides is None:
            return None
        inner = _inner(place, share)
        return _around(
            place,
            ConvBn(place.input_shape[0], inner, 3, strides[0], activation="relu"),
            ConvBn(inner, place.output_shape[0], 3, strides[1]),
        )

    return make


def _bottleneck(place: Place) -> nn.Module | None:
    """1x1, 3x3, 1x1, with a quarter of the channels between them."""
    strides = place.strides
    if strides is None:
        return None
    inner = _inner(place, 0.25)
    return _around(
        place,
        ConvBn(place.input_shape[0], inner, activation="relu"),
        ConvBn(inner, inner, 3, strides[0], activation="relu"),
        ConvBn(inner, place.output_shape[0], 1, strides[1]),
    )


def _inverted(place: Place) -> nn.Module | None:
    """1x1 to twice the channels, a depthwise 3x3, 1x1 (Sandler et al. 2018), without squeeze and excitation."""
    strides = place.strides
    if strides is None or strides[1] > 1:
        return None
    inner = _whole(2 * place.input_shape[0])
    return _around(
        place,
        ConvBn(place.input_shape[0], inner, activation="relu"),
        ConvBn(inner, inner, 3, strides[0], groups=inner, activation="relu"),
        ConvBn(inner, place.output_shape[0]),
    )


def _pooled(place: Place) -> nn.Module | None:
    """Pooling and one linear layer, for the last unit of a classifier."""
    if (len(place.input_shape), len(place.output_shape)) != (3, 1):
        return None
    return PooledLinear(place.input_shape[0], place.output_shape[0])


def _around(place: Place, *body: nn.Module) -> nn.Module:
    """The body with a shortcut around it where shapes are equal, ending as the unit does."""
    equal = place.input_shape == place.output_shape
    made = Residual(sequential(*body), None if equal else _shortcut(place), place.activation)
    _initialised(made)
    if equal:
        last = body[-1]
        assert isinstance(last, ConvBn)
        assert isinstance(last.bn, nn.BatchNorm2d)
        nn.init.zeros_(last.bn.weight)  # begins as the identity
    return made


def _shortcut(place: Place) -> nn.Module:
    strides = place.strides
    assert strides is not None
    return ConvBn(place.input_shape[0], place.output_shape[0], 1, strides[0] * strides[1])


def _initialised(module: nn.Module) -> nn.Module:
    initialise_convolutions(module)
    return module


def _inner(place: Place, share: float) -> int:
    return _whole(share * place.output_shape[0])


def _whole(channels: float) -> int:
    return max(MULTIPLE, round(channels / MULTIPLE) * MULTIPLE)


OPTIONS: Mapping[str, Callable[[Place], nn.Module | None]] = MappingProxyType(
    {
        DROP: _drop,
        "conv3": _conv,
        "basic-half": _basic(0.5),
        "basic-quarter": _basic(0.25),
        "bottleneck": _bottleneck,
        "inverted": _inverted,
        "pooled": _pooled,
    }
)
"""Makers of replacements by name; each gives None where it does not fit."""


def all_with(option: str, offered: Sequence[Mapping[str, object]]) -> tuple[str, ...]:
    """The option wherever a unit offers it, else `KEEP`: one name for each unit."""
    return tuple(option if option in names else KEEP for names in offered)
