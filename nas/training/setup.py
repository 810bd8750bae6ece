"""What a recipe leaves to the machine: precision, memory layout and batch size, by short measurements."""

import copy
import time
from dataclasses import dataclass
from itertools import product

import torch
from torch import nn

from nas.training.config import Precision
from nas.training.precision import autocast, random_inputs
from nas.training.recipe import Recipe
from search_spaces import TensorSpec

_MIN_GAIN = 1.1
"""bf16 and channels-last must be this much faster to be worth their differences."""
_BATCHES = (32, 64, 128, 256, 512)
_MIN_STEPS = 20
"""Per epoch, that an automatic batch size leaves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How a training runs on this machine; kept for its whole life, also where it is continued elsewhere."""

    precision: Precision
    channels_last: bool
    batch_size: int

    @property
    def memory_format(self) -> torch.memory_format:
        return torch.channels_last if self.channels_last else torch.contiguous_format


def choose_setup(recipe: Recipe, model: nn.Module, input: TensorSpec, images: int, device: torch.device) -> Setup:
    """What the recipe says, and where it says `auto` the fastest. `images` is the number of training images.

    The model is not changed. An automatic batch grows as long as that makes training faster by 5 %, fits into memory
    and leaves enough steps per epoch.
    """
    size = min(recipe.batch_size if recipe.batch_size != "auto" else _BATCHES[0], max(2, images))
    precisions: tuple[Precision, ...] = ("fp32", "bf16") if recipe.precision == "auto" else (recipe.precision,)
    layouts = (True, False) if recipe.channels_last == "auto" else (recipe.channels_last,)
    options = [Setup(precision=p, channels_last=c, batch_size=size) for p, c in product(precisions, layouts)]
    best = options[0] if len(options) == 1 else _fastest(options, model, input, device)
    if recipe.batch_size != "auto":
        return best
    rate = size / step_seconds(model, input, best, device)
    for larger in _BATCHES[1:]:
        if images / larger < _MIN_STEPS:
            break
        option = Setup(precision=best.precision, channels_last=best.channels_last, batch_size=larger)
        try:
            found = larger / step_seconds(model, input, option, device)
        except torch.OutOfMemoryError:
            break
        if found < 1.05 * rate:
            break
        best, rate = option, found
    return best


def _fastest(options: list[Setup], model: nn.Module, input: TensorSpec, device: torch.device) -> Setup:
    """The fastest, where simpler ones (fp32, contiguous) are a tenth slower; else the simpler one."""
    seconds = {option: step_seconds(model, input, option, device) for option in options}

    def handicapped(option: Setup) -> float:
        strange = (option.precision == "bf16") + option.channels_last
        return seconds[option] * _MIN_GAIN**strange

    return min(options, key=handicapped)


def step_seconds(model: nn.Module, input: TensorSpec, setup: Setup, device: torch.device, steps: int = 3) -> float:
    """Seconds of the fastest of `steps` training steps on random inputs, after one to warm up."""
    with torch.random.fork_rng():
        network = copy.deepcopy(model).to(device).to(memory_format=setup.memory_format).train()
        inputs = random_inputs(input, setup.batch_size, device, setup.memory_format)
        times = []
        for _ in range(steps + 1):
            start = time.perf_counter()
            with autocast(device, setup.precision):
                output = network(inputs)
            output.float().square().mean().backward()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            times.append(time.perf_counter() - start)
    return min(times[1:])
