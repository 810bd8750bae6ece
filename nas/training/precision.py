"""Whether bf16 pays on this machine: measured, not believed."""

import copy
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager

import torch
from torch import nn

from nas.training.config import Precision
from search_spaces import TensorSpec

_MIN_GAIN = 1.1  # bf16 must be this much faster to be worth its rounding


def resolve_device(device: str) -> torch.device:
    """`auto` is the GPU where there is one, else the CPU."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(device)


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """Context in which the forward pass runs; does nothing for fp32."""
    dtype = torch.float16 if precision == "fp16" else torch.bfloat16
    return torch.autocast(device.type, dtype=dtype, enabled=precision != "fp32")


def choose_precision(
    model: nn.Module, input: TensorSpec, batch: int, *, device: str = "auto", steps: int = 3
) -> Precision:
    """The faster of fp32 and bf16 autocast for training steps, by timing `steps` of them each way on random inputs.

    The model is not changed (copies are trained). Takes `2 * (steps + 1)` training steps. The outcome depends on the
    machine and, where both are close, on its load: for reproducible figures choose once and keep the answer.
    """
    return faster(step_times(model, input, batch, device=device, steps=steps))


def random_inputs(
    input: TensorSpec, batch: int, device: torch.device, memory_format: torch.memory_format
) -> torch.Tensor:
    """A batch (batch, ...) drawn from torch's global generator; the memory format is of four axes, others have none."""
    drawn = input.draw_torch(batch).to(device)
    return drawn.contiguous(memory_format=memory_format) if drawn.ndim == 4 else drawn


def faster(seconds: Mapping[Precision, float]) -> Precision:
    """The precision to train in where steps take `seconds`: bf16 has to be worth its rounding."""
    return "bf16" if seconds["fp32"] > _MIN_GAIN * seconds["bf16"] else "fp32"


def step_times(
    model: nn.Module, input: TensorSpec, batch: int, *, device: str = "auto", steps: int = 3
) -> dict[Precision, float]:
    """Seconds of a training step in each precision."""
    timed: tuple[Precision, ...] = ("fp32", "bf16")
    return {p: step_seconds(model, input, batch, p, device=device, steps=steps) for p in timed}


def step_seconds(
    model: nn.Module, input: TensorSpec, batch: int, precision: Precision, *, device: str = "auto", steps: int = 3
) -> float:
    """Seconds of the fastest of `steps` training steps on random inputs, after one to warm up."""
    where = resolve_device(device)
    with torch.random.fork_rng():  # dropout must not use up the caller's random numbers
        network = copy.deepcopy(model).to(where).to(memory_format=torch.channels_last).train()
        inputs = random_inputs(input, batch, where, torch.channels_last)
        times = []
        for _ in range(steps + 1):
            start = time.perf_counter()
            with autocast(where, precision):
                output = network(inputs)
            output.float().square().mean().backward()
            if where.type == "cuda":
                torch.cuda.synchronize(where)
            times.append(time.perf_counter() - start)
    return min(times[1:])
