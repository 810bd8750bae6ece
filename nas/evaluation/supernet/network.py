"""The supernet of a staged space: every network of the space as a path through one set of weights.

The largest layer at each place holds the weights of all: a narrower layer takes its first channels, a smaller kernel
its centre, a shallower stage its first blocks (as in Once-for-all, Cai et al. 2020, https://arxiv.org/abs/1908.09791,
without its kernel transformations; Slimmable networks, Yu et al. 2019, https://arxiv.org/abs/1812.08928). Block
families share nothing with one another.

A path is run by the very blocks that `StagedSpace.build` puts together, on views of the shared weights, so that a
stand-alone copy (`Supernet.subnet`) computes the same numbers, and a new block family needs nothing here.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from nas.errors import UserError
from nas.evaluation.supernet.sharing import BlockTensor, Shape, block_tensors, cut
from search_spaces import Architecture, BlockSpec, Choices, SearchSpace, StagedSpace
from search_spaces.signature import Size
from search_spaces.staged import strides

_MAX_TEMPLATES = 4096


def weight_sharing(space: SearchSpace) -> StagedSpace:
    """`space`, whose networks can share weights; raises `UserError` where they cannot."""
    if not isinstance(space, StagedSpace):
        raise UserError(
            f"the networks of space {space.name!r} cannot share the weights of a supernet: they have no stages",
            "estimate candidates in another way: --estimator short",
        )
    return space


class Supernet(nn.Module):
    """All networks of `space` (of its allowed options) whose answers have `size`.

    Batch norms' running statistics are shared like weights and fit no single path: `subnet` and
    `nas.tasks.classification.evaluate.recalibrate_batch_norm` come before an accuracy is worth anything.
    """

    def __init__(self, space: StagedSpace, size: Size, *, seed: int = 0) -> None:
        """`seed` of the initial weights; torch's global random state is left as it was."""
        super().__init__()
        self.space = space
        self.size = size
        self._templates: dict[BlockSpec, nn.Module] = {}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for key, (tensor, shape) in sorted(_places(space, size).items()):
                value = _initial(tensor, shape)
                if tensor.trained:
                    self.register_parameter(key, nn.Parameter(value))
                else:
                    self.register_buffer(key, value)

    def forward(self, images: Tensor, arch: Architecture) -> Tensor:
        """Output (n, ...) of the path of `arch` for images (n, 3, h, w) of its size.

        In training mode batch norms use the batch's statistics and update the shared ones.
        """
        if not self.space.chained:
            with torch.device("meta"):
                network = self.space.build(arch, self.size)
            raw: Tensor = functional_call(network.train(self.training), self.tensors(arch), (images,), strict=True)
            return raw
        x = images
        for _, place, spec in _blocks(self.space, arch, self.size):
            x = functional_call(self._template(spec), self._block(place, spec), (x,), strict=True)
        return x

    def tensors(self, arch: Architecture) -> dict[str, Tensor]:
        """The weights and buffers of `arch` as views of the shared ones, by their names in `space.build(arch)`."""
        found: dict[str, Tensor] = {}
        for prefix, place, spec in _blocks(self.space, arch, self.size):
            found |= {f"{prefix}.{path}": tensor for path, tensor in self._block(place, spec).items()}
        return found

    def shared_names(self, arch: Architecture) -> set[str]:
        """Names (as in `state_dict`) of the shared tensors that the path of `arch` takes its own from."""
        return {
            f"{place}/{tensor.role}"
            for _, place, spec in _blocks(self.space, arch, self.size)
            for tensor in block_tensors(self.space.families[spec.kind], _anywhere(spec))
        }

    def subnet(self, arch: Architecture) -> nn.Module:
        """A stand-alone copy of the path: the class, structure and state names of `space.build(arch, size)`."""
        with torch.device("meta"):
            network = self.space.build(arch, self.size)
        copies = {name: tensor.detach().clone() for name, tensor in self.tensors(arch).items()}
        network.load_state_dict(copies, strict=True, assign=True)
        for parameter in network.parameters():
            parameter.requires_grad_(True)
        return network.train(self.training)

    def _template(self, spec: BlockSpec) -> nn.Module:
        """The block without weights: building it anew for every batch would cost more than small batches do."""
        spec = replace(spec, height=1, width=1)
        if spec not in self._templates:
            if len(self._templates) >= _MAX_TEMPLATES:
                self._templates.clear()
            with torch.device("meta"):
                self._templates[spec] = self.space.families[spec.kind].build(spec)
        return self._templates[spec].train(self.training)

    def _block(self, place: str, spec: BlockSpec) -> dict[str, Tensor]:
        """One block's tensors as views of the shared ones, by their names in the block."""
        return {
            tensor.path: cut(self._shared(f"{place}/{tensor.role}", tensor.shape), tensor.shape)
            for tensor in block_tensors(self.space.families[spec.kind], _anywhere(spec))
        }

    def _shared(self, key: str, shape: Shape) -> Tensor:
        """The tensor that holds one of `shape`; raises `UserError` where the space's allowed options have none."""
        tensor = self._parameters.get(key, self._buffers.get(key))
        if tensor is None or any(size > full for size, full in zip(shape, tensor.shape, strict=True)):
            raise UserError(
                f"the supernet of {self.space.name!r} holds no {key} of shape {shape}",
                "build it for the space without this restriction",
            )
        return tensor


def _blocks(space: StagedSpace, arch: Architecture, size: Size) -> Iterator[tuple[str, str, BlockSpec]]:
    """Each block with its name in the network and the place whose weights it takes."""
    names = [name for of_slot in space.slot_places(arch) for name in of_slot]
    for name, spec in zip(names, space.blocks(arch, size), strict=True):
        yield name, _place(name, spec), spec


def _place(name: str, spec: BlockSpec) -> str:
    """Place from which the block called `name` takes its weights: one for each kind of block that can be there."""
    module, *numbers = name.split(".")
    if not numbers:
        return module
    if module == "stages":
        stage, position = numbers
        return f"stage{int(stage) + 1}/{position}/{spec.kind}"
    return "/".join([module, *numbers, spec.kind])


def _anywhere(spec: BlockSpec) -> BlockSpec:
    """The spec without its input's size, on which no weight depends: fewer blocks are built."""
    return replace(spec, height=1, width=1, activation="relu")


def _places(space: StagedSpace, size: Size) -> dict[str, tuple[BlockTensor, Shape]]:
    """Every shared tensor: its key, one block's tensor of that role, and the shape that holds all of them."""
    found: dict[str, tuple[BlockTensor, Shape]] = {}
    deepest = space.architecture([allowed[-1] for allowed in space.allowed])  # it has every block that any other has
    for slot, names in enumerate(space.slot_places(deepest)):
        for spec in _slot_specs(space, slot, size) if names else ():
            for name in names:
                for tensor in block_tensors(space.families[spec.kind], spec):
                    key = f"{_place(name, spec)}/{tensor.role}"
                    seen = found[key][1] if key in found else tensor.shape
                    found[key] = tensor, tuple(map(max, seen, tensor.shape))
    return found


def _slot_specs(space: StagedSpace, slot: int, size: Size) -> set[BlockSpec]:
    """All blocks that can be at one place, from the allowed options of the decisions that matter there."""
    columns = space.slot_decisions[slot]
    options = {column: _telling(space, column) for column in columns}
    rows = np.array([[allowed[0] for allowed in space.allowed]], dtype=np.int64)
    combinations = np.array(list(product(*options.values())), dtype=np.int64)
    rows = np.repeat(rows, len(combinations), axis=0)
    rows[:, list(options)] = combinations
    return {_anywhere(spec) for spec in _specs_at(space, np.unique(space.canonical(rows), axis=0), slot, size)}


def _telling(space: StagedSpace, column: int) -> tuple[int, ...]:
    """The allowed options of a decision that lead to different weights: one activation, the largest kernel, one
    resolution for each way to place the strides."""
    name, allowed = space.decisions[column].name, space.allowed[column]
    if name.endswith(".act"):
        return allowed[:1]
    if name.endswith(".kernel"):
        return (max(allowed, key=lambda option: space.table.kernels[option]),)
    if name == "resolution":
        pixels = np.array([space.table.resolutions[option] for option in allowed])
        ways = strides(pixels, len(space.table.stages))
        _, first = np.unique(ways, axis=0, return_index=True)
        return tuple(allowed[at] for at in sorted(first))
    return allowed


def _specs_at(space: StagedSpace, choices: Choices, slot: int, size: Size) -> Iterator[BlockSpec]:
    slots = space.slots(choices, size)
    c = slots.columns
    for row in range(len(choices)):
        yield BlockSpec(
            kind=slots.families[slots.kind[row, slot]].name,
            in_channels=int(c.in_channels[row, slot]), out_channels=int(c.out_channels[row, slot]),
            kernel=int(c.kernel[row, slot]), stride=int(c.stride[row, slot]),
            expansion=float(c.expansion[row, slot]), groups=int(c.groups[row, slot]), se=bool(c.se[row, slot]),
            activation="relu", height=1, width=1,
        )  # fmt: skip


def _initial(tensor: BlockTensor, shape: Shape) -> Tensor:
    """Initial values of a tensor, as the networks and torch initialise their layers."""
    kind = tensor.kind
    if tensor.initial is not None:
        mean, std = tensor.initial
        return nn.init.normal_(torch.empty(shape), mean, std)
    if kind == "conv":
        return nn.init.kaiming_normal_(torch.empty(shape), mode="fan_out", nonlinearity="relu")
    if kind == "linear":
        return nn.init.kaiming_uniform_(torch.empty(shape), a=5**0.5)
    if kind == "num_batches_tracked":
        return torch.zeros(shape, dtype=torch.int64)
    return torch.ones(shape) if kind in ("scale", "running_var") else torch.zeros(shape)
