"""Units with fewer channels, between them and inside: what a residual stage shares can only become narrower as a whole.

Which channels belong together follows from the operations of a network: what a convolution gives is a set of channels
of its own, an activation passes on the one it takes, and an addition makes two sets one (DepGraph, Fang et al. 2023,
https://arxiv.org/abs/2301.12900, groups them likewise). Of each set the most important channels are kept.
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import fx, nn

from nas.errors import UserError
from nas.networks.options import MULTIPLE
from nas.networks.units import Unit, run_counted

_ACTIVATIONS = frozenset(
    {"relu", "relu6", "silu", "hardswish", "gelu", "leakyrelu", "leaky_relu", "elu", "mish", "sigmoid", "hardsigmoid",
     "hardtanh", "tanh"}
)  # fmt: skip
_POOLING = frozenset(
    {"maxpool2d", "max_pool2d", "avgpool2d", "avg_pool2d", "adaptiveavgpool2d", "adaptive_avg_pool2d",
     "adaptivemaxpool2d", "adaptive_max_pool2d", "blurpool2d"}
)  # fmt: skip
_NOTHING = frozenset(
    {"identity", "contiguous", "clone", "dropout", "dropout2d", "droppath", "stochasticdepth", "stochastic_depth"}
)
_SAME = _ACTIVATIONS | _POOLING | _NOTHING
"""Operations and kinds of modules that give the channels they take; pooling keeps the channel axis where it is."""
_JOINED = frozenset(["add", "iadd", "mul", "imul", "sub", "isub"])
"""Operations whose two tensors have the same channels."""
_FLATTENING = frozenset({"flatten", "mean"})
"""Operations after which the places of a map may be gone or part of the channel axis."""


_AS_IT_IS = "leave its channels as they are"


class _NotNarrowableError(Exception):
    """An operation whose channels are not understood."""


@dataclass(frozen=True, slots=True, eq=False)
class NarrowedUnits:
    """Units that fit one another as the wide ones did."""

    units: tuple[Unit, ...]
    """With weights of their own, slices of those they come from."""
    kept: tuple[torch.Tensor, ...]
    """Numbers of the channels that are left of the network's input and of what each unit gives, ascending."""


def narrowed(units: Sequence[Unit], share: float) -> NarrowedUnits:
    """Units with about `share` of the channels everywhere but in the network's input and output.

    Numbers of channels are rounded to multiples of `nas.networks.options.MULTIPLE`. Which ones are kept depends on the
    weights: those with the largest sum of the squares of the norms' factors and of the weights that take or give them,
    each in units of its mean over the channels. How many depends on the network's form alone.

    Args:
        units: of a network, in order, in evaluation mode; they are not changed.
        share: of the channels that is kept, above 0 and at most 1.

    Raises:
        UserError: a unit has an operation whose channels are not understood, or nothing becomes narrower.
    """
    if not 0 < share <= 1:
        raise ValueError(f"a share of the channels between 0 and 1, got {share}")
    channels = _Channels()
    between = [channels.add(units[0].input_shape[1])]
    channels.pinned.add(between[0])
    works: list[dict[str, _Work]] = []
    seen: set[int] = set()
    for unit in units:
        works.append({})
        try:
            between.append(_Walk(unit, channels, works[-1], seen).run(between[-1]))
        except _NotNarrowableError as error:
            raise UserError(f"the unit {unit.name} cannot have fewer channels: {error}", _AS_IT_IS) from error
    channels.pinned.add(between[-1])
    chosen = channels.chosen(share)
    if all(len(kept) == channels.sizes[space] for space, kept in chosen.items()):
        raise UserError(f"no unit has fewer channels at a share of {share:g}", "give a smaller share")

    def of(space: int) -> torch.Tensor:
        return chosen[channels.root(space)]

    made = []
    for unit, work, entering, leaving in zip(units, works, between[:-1], between[1:], strict=True):
        module = copy.deepcopy(unit.module)
        for path, what in work.items():
            what.cut(module.get_submodule(path), of)
        made.append(_unit(unit, module, len(of(entering)), len(of(leaving))))
    return NarrowedUnits(tuple(made), tuple(of(space) for space in between))


def _unit(unit: Unit, module: nn.Module, entering: int, leaving: int) -> Unit:
    input_shape = (unit.input_shape[0], entering, *unit.input_shape[2:])
    output_shape = (unit.output_shape[0], leaving, *unit.output_shape[2:])
    try:
        found, macs = run_counted(module.eval(), torch.zeros(input_shape))
    except RuntimeError as error:  # of torch: a part of it has the wide unit's shapes in its code
        raise UserError(f"the unit {unit.name} cannot have fewer channels: {error}", _AS_IT_IS) from error
    if tuple(found.shape) != output_shape:
        raise UserError(
            f"the unit {unit.name} gives {tuple(found.shape)} instead of {output_shape} with fewer channels",
            "this is a defect of this program: report it with the network's name",
        )
    params = sum(p.numel() for p in module.parameters())
    return replace(
        unit, module=module, input_shape=input_shape, output_shape=output_shape, macs=macs, params=params
    )  # fmt: skip


Kept = Callable[[int], torch.Tensor]
"""From a set of channels to the numbers of those that are kept."""


@dataclass(frozen=True, slots=True)
class _Work:
    """What becomes of a module with weights."""

    given: int
    """Set of the channels that it takes."""
    gives: int
    repeat: int = 1
    """Inputs of a linear layer for each channel: a feature map that was made flat."""

    def cut(self, module: nn.Module, kept: Kept) -> None:
        """Leave the kept channels of `module`, in place."""
        given, gives = kept(self.given), kept(self.gives)
        with torch.no_grad():
            if isinstance(module, nn.BatchNorm2d):
                _keep(module, gives, "weight", "bias", "running_mean", "running_var")
                module.num_features = len(gives)
            elif isinstance(module, nn.Conv2d):
                _keep(module, gives, "weight", "bias")
                if module.groups == 1:
                    module.weight = nn.Parameter(module.weight[:, given])
                else:
                    module.groups = len(gives)
                module.in_channels, module.out_channels = len(given), len(gives)
            else:
                assert isinstance(module, nn.Linear)
                _keep(module, gives, "weight", "bias")
                columns = (given[:, None] * self.repeat + torch.arange(self.repeat)).flatten()
                module.weight = nn.Parameter(module.weight[:, columns])
                module.in_features, module.out_features = len(columns), len(gives)


def _keep(module: nn.Module, rows: torch.Tensor, *names: str) -> None:
    for name in names:
        value = getattr(module, name)
        if value is not None:
            left = value[rows].clone()
            setattr(module, name, nn.Parameter(left) if isinstance(value, nn.Parameter) else left)


class _Channels:
    """Sets of channels, of which some turn out to be one."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.pinned: set[int] = set()
        """Sets that stay as they are."""
        self._parents: list[int] = []
        self._importance: list[torch.Tensor] = []

    def add(self, size: int) -> int:
        """A new set."""
        self._parents.append(len(self._parents))
        self.sizes.append(size)
        self._importance.append(torch.zeros(size))
        return self._parents[-1]

    def root(self, space: int) -> int:
        """The number that all names of a set share."""
        while self._parents[space] != space:
            space = self._parents[space]
        return space

    def join(self, one: int, other: int) -> int:
        """Both are the same set from now on."""
        one, other = self.root(one), self.root(other)
        if one == other:
            return one
        if self.sizes[one] != self.sizes[other]:
            raise _NotNarrowableError(f"it adds {self.sizes[one]} channels to {self.sizes[other]}")
        self._parents[other] = one
        self._importance[one] += self._importance[other]
        return one

    def count(self, space: int, weights: torch.Tensor) -> None:
        """Add what some weights say of the importance of each channel, `weights` (channels, any)."""
        squares = weights.detach().float().square().flatten(1).sum(1).cpu()
        mean = squares.mean()
        if mean > 0:
            self._importance[self.root(space)] += squares / mean

    def chosen(self, share: float) -> dict[int, torch.Tensor]:
        """For each set the channels that are kept."""
        pinned = {self.root(space) for space in self.pinned}
        found = {}
        for space in {self.root(space) for space in range(len(self.sizes))}:
            size = self.sizes[space]
            whole = max(MULTIPLE, MULTIPLE * round(share * size / MULTIPLE))
            left = size if space in pinned else min(size, whole)
            found[space] = self._importance[space].topk(left).indices.sort().values
        return found


class _Walk:
    """Follows the channels through the operations of one unit."""

    def __init__(self, unit: Unit, channels: _Channels, work: dict[str, _Work], seen: set[int]) -> None:
        """`work` gets the unit's modules with weights; `seen` holds those of the units before it, and gets its own."""
        if not isinstance(unit.module, fx.GraphModule):
            raise _NotNarrowableError("its operations are not known")
        self._module, self._channels, self._work, self._seen = unit.module, channels, work, seen
        self._given_shape = unit.input_shape
        self._found: dict[fx.Node, tuple[int, int]] = {}
        """For each node its set of channels, and how many numbers of axis 1 belong to each of them."""

    def run(self, entering: int) -> int:
        """The set of channels that the unit gives, where it takes `entering`."""
        for node in self._module.graph.nodes:
            if node.op == "placeholder":
                self._found[node] = entering, 1
            elif node.op == "output":
                space, repeat = self._found[node.all_input_nodes[0]]
                if repeat != 1:
                    raise _NotNarrowableError("it gives feature maps that were made flat")
                return space
            elif node.op == "call_module":
                self._found[node] = self._of_module(node, self._module.get_submodule(str(node.target)))
            elif node.op in ("call_function", "call_method"):
                name = str(getattr(node.target, "__name__", node.target)).lower()
                self._found[node] = self._of_operation(node, name)
            else:
                raise _NotNarrowableError(f"it has weights outside of its layers ({node.target})")
        raise AssertionError("a graph has an output")

    def _of_module(self, node: fx.Node, module: nn.Module) -> tuple[int, int]:
        if not any(True for _ in module.parameters()) and not isinstance(module, nn.BatchNorm2d):
            return self._of_operation(node, type(module).__name__.lower())
        space, repeat = self._given(node)
        if id(module) in self._seen:
            raise _NotNarrowableError(f"{node.target} is used more than once")
        self._seen.add(id(module))
        gives = self._gives(module, space)
        if repeat != 1 and not isinstance(module, nn.Linear):
            raise _NotNarrowableError(f"{node.target} takes feature maps that were made flat")
        self._work[str(node.target)] = _Work(space, gives, repeat)
        return gives, 1

    def _gives(self, module: nn.Module, space: int) -> int:
        channels = self._channels
        weight = getattr(module, "weight", None)
        if isinstance(module, nn.BatchNorm2d):
            if weight is not None:
                channels.count(space, weight[:, None])
            return space
        if isinstance(module, nn.Conv2d) and module.groups == module.in_channels == module.out_channels > 1:
            channels.count(space, module.weight)
            return space
        if isinstance(module, nn.Linear) or (isinstance(module, nn.Conv2d) and module.groups == 1):
            gives = channels.add(module.weight.shape[0])
            channels.count(gives, module.weight)
            inputs = module.weight.transpose(0, 1)
            channels.count(space, inputs.reshape(channels.sizes[channels.root(space)], -1))
            return gives
        what = "a convolution in groups" if isinstance(module, nn.Conv2d) else f"a {type(module).__name__}"
        raise _NotNarrowableError(f"{what} has channels that belong together")

    def _of_operation(self, node: fx.Node, name: str) -> tuple[int, int]:
        name = name.rstrip("_")
        if name in _JOINED:
            found = [self._found[given] for given in node.all_input_nodes]
            if len({repeat for _, repeat in found}) == 1:
                space = found[0][0]
                for other, _ in found[1:]:
                    space = self._channels.join(space, other)
                return space, found[0][1]
        elif name in _SAME:
            return self._given(node)
        elif name in _FLATTENING:
            space, repeat = self._given(node)
            before, after = self._shape(node.all_input_nodes[0]), self._shape(node)
            if after[:2] == before[:2]:  # the mean over all places
                return space, repeat
            if name == "flatten" and len(after) == 2:
                return space, repeat * math.prod(before[2:])
        raise _NotNarrowableError(f"it has an operation {name!r} whose channels are not followed")

    def _given(self, node: fx.Node) -> tuple[int, int]:
        if len(node.all_input_nodes) != 1:
            raise _NotNarrowableError(f"{node.target} takes {len(node.all_input_nodes)} tensors")
        return self._found[node.all_input_nodes[0]]

    def _shape(self, node: fx.Node) -> tuple[int, ...]:
        return self._given_shape if node.op == "placeholder" else tuple(node.meta["tensor_meta"].shape)
