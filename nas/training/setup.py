"""Everything that a recipe leaves to the machine (precision, memory layout, batch size), by short measurements.

The one step timer and the one rule for bf16: searches, supernets and `nas finetune` ask here.
"""

import copy
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import nn

from nas.machine import training_memory_bytes
from nas.training.optimizer import make_optimizer
from nas.training.precision import Precision, autocast
from nas.training.recipe import OptimizerSettings, Recipe
from search_spaces import TensorSpec

_MIN_GAIN = 1.1
"""bf16 and channels-last must be this much faster to be worth their differences."""
ENOUGH_S = 2.0
"""Seconds after which a step need not be timed again for a plan, however slow the machine is just now."""
_BATCHES = (32, 64, 128, 256, 512)
MEMORY_SHARE, PROCESSES_BYTES = 0.5, 3 * 2**29
"""Share of the memory that a training step may take for its examples, beside processes of this size: the search, the
one that trains, and one that measures."""
FEWEST_AT_ONCE = 8
"""Examples that a batch norm has to see at once."""
_MIN_STEPS = 20
"""Smallest number of steps per epoch that an automatic batch size leaves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Settings of a training on this machine; kept for its whole life, also where it is continued elsewhere."""

    precision: Precision
    channels_last: bool
    batch_size: int
    passes: int = 1
    """Parts that a batch goes through the network in, one after the other, so that it fits into memory."""

    @property
    def memory_format(self) -> torch.memory_format:
        """Memory format of weights and inputs with four dimensions."""
        return torch.channels_last if self.channels_last else torch.contiguous_format


def choose_setup(recipe: Recipe, network: nn.Module, input: TensorSpec, examples: int, device: torch.device) -> Setup:
    """The setup that the recipe says, and where it says `auto` the fastest.

    The network is not changed. An automatic batch grows as long as that makes training faster by 5 %, fits into memory
    and leaves enough steps per epoch. The outcome depends on the machine and, where options are close, on its load.

    Args:
        recipe: of the training.
        network: to be trained; copies of it are timed.
        input: of the network.
        examples: in the training split.
        device: that trains.
    """
    size = recipe.batch_for(examples) if recipe.batch_size != "auto" else min(_BATCHES[0], max(2, examples))
    precisions: tuple[Precision, ...] = ("fp32", "bf16") if recipe.precision == "auto" else (recipe.precision,)
    layouts = (True, False) if recipe.channels_last == "auto" else (recipe.channels_last,)
    options = [Setup(precision=p, channels_last=c, batch_size=size) for p, c in product(precisions, layouts)]

    def seconds(option: Setup) -> float:
        return step_seconds(network, input, option, device)

    best = options[0] if len(options) == 1 else fastest({option: seconds(option) for option in options})
    if recipe.batch_size != "auto":
        return within_memory(best, network, input, device)
    rate = size / seconds(best)
    for larger in _BATCHES[1:]:
        if examples / larger < _MIN_STEPS:
            break
        option = Setup(precision=best.precision, channels_last=best.channels_last, batch_size=larger)
        try:
            found = larger / seconds(option)
        except torch.OutOfMemoryError:
            break
        if found < 1.05 * rate:
            break
        best, rate = option, found
    return within_memory(best, network, input, device)


def within_memory(setup: Setup, network: nn.Module, input: TensorSpec, device: torch.device) -> Setup:
    """The setup with as many passes as the network's training on this device needs to fit into memory."""
    return in_passes(setup, kept_bytes(network, input, setup, device), memory_for_training(device))


def in_passes(setup: Setup, example_bytes: float, allowed_bytes: float) -> Setup:
    """The setup with as many passes as it takes to keep to `allowed_bytes`, each of `FEWEST_AT_ONCE` examples at least;
    `example_bytes` are those of one example."""
    passes = 1
    while (
        setup.batch_size // (2 * passes) >= FEWEST_AT_ONCE and setup.batch_size / passes * example_bytes > allowed_bytes
    ):
        passes *= 2
    return replace(setup, passes=passes)


def memory_for_training(device: torch.device) -> float:
    """Bytes that a step may take for its examples: half of what is left beside the processes of a search.

    By what the device has rather than by what is free just now: the same training is to be the same another time.
    """
    if device.type == "cuda":
        return MEMORY_SHARE * torch.cuda.get_device_properties(device).total_memory
    return MEMORY_SHARE * max(training_memory_bytes() - PROCESSES_BYTES, PROCESSES_BYTES / 8)


def kept_bytes(network: nn.Module, input: TensorSpec, setup: Setup, device: torch.device) -> float:
    """Bytes that a training step keeps of each example for its backward pass: all that is kept at any time.

    At its peak a step takes 0.6 to 1.0 of it (four networks of `compact` and `mixed`, bf16, 32 to 128 px): some is free
    again before the last gradients need memory.

    Counted in a forward pass of a copy on two random inputs. The network is not changed, and torch's global random
    state neither.
    """
    seen: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.random.fork_rng():
        copied = copy.deepcopy(network).to(device).to(memory_format=setup.memory_format).train()
        inputs = laid_out(input.draw_torch(2).to(device), setup)
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor), autocast(device, setup.precision):
            outputs = copied(inputs)
    for own in (*copied.parameters(), *copied.buffers()):
        seen.pop(own.untyped_storage().data_ptr(), None)
    del outputs  # not before: memory that is free again would be counted once for several tensors
    return sum(seen.values()) / len(inputs)


def fastest(seconds: Mapping[Setup, float]) -> Setup:
    """The setup whose steps are fastest; a simpler one (fp32, contiguous) unless the other is a tenth faster."""

    def handicapped(option: Setup) -> float:
        strange = (option.precision == "bf16") + option.channels_last
        return seconds[option] * _MIN_GAIN**strange

    return min(seconds, key=handicapped)


def step_seconds(
    network: nn.Module,
    input: TensorSpec,
    setup: Setup,
    device: torch.device,
    *,
    steps: int = 3,
    enough_s: float = math.inf,
) -> float:
    """Seconds of the fastest of `steps` training steps on a batch of random inputs, after one to warm up; `enough_s` as
    in `fastest_call`.

    A batch that does not fit into memory takes no more of it here than in its training: one of its passes is timed, and
    counted as often as there are. The network is not changed, and torch's global random state neither.
    """
    passes = max(setup.passes, within_memory(setup, network, input, device).passes)
    with torch.random.fork_rng():  # dropout must not use up the caller's random numbers
        copied = copy.deepcopy(network).to(device).to(memory_format=setup.memory_format).train()
        inputs = laid_out(input.draw_torch(-(-setup.batch_size // passes)).to(device), setup)

        def step() -> None:
            with autocast(device, setup.precision):
                output = copied(inputs)
            output.float().square().mean().backward()

        return passes * fastest_call(step, device, steps, enough_s)


def update_seconds(
    network: nn.Module,
    settings: OptimizerSettings,
    device: torch.device,
    *,
    precision: Precision,
    steps: int = 3,
    enough_s: float = math.inf,
) -> float:
    """Seconds of the fastest of `steps` steps of the optimiser on random gradients, after one to warm up; `enough_s` as
    in `fastest_call`, `precision` that of the training.

    They are the same whatever the batch, so that an optimiser which computes much makes small batches expensive. The
    network is not changed, and torch's global random state neither.
    """
    with torch.random.fork_rng():
        copied = copy.deepcopy(network).to(device).train()
        optimizer = make_optimizer(copied, settings, settings.lr, precision=precision)
        for parameter in copied.parameters():
            parameter.grad = torch.randn_like(parameter)
        return fastest_call(optimizer.step, device, steps, enough_s)


def fastest_call(
    call: Callable[[], object],
    device: torch.device,
    calls: int,
    enough_s: float = math.inf,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Seconds of the fastest of `calls` calls, each with what it left to do on `device`, after one to warm up.

    After `enough_s` seconds no further one is begun; where the first took longer, it counts itself. `clock`: in
    seconds, so that tests need not wait.
    """
    times: list[float] = []
    while len(times) <= calls and sum(times) <= enough_s:
        start = clock()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(clock() - start)
    return min(times[1:] or times)


def laid_out(inputs: torch.Tensor, setup: Setup) -> torch.Tensor:
    """Inputs (b, ...) in the setup's memory layout, which only those of four dimensions have."""
    return inputs.contiguous(memory_format=setup.memory_format) if inputs.ndim == 4 else inputs.contiguous()
