"""Time of each module of a PyTorch network on a device whose work runs behind the host's back."""

import time
from typing import TYPE_CHECKING, Any, Protocol

from nas.runtimes.nodes import NodeTime, typical

if TYPE_CHECKING:
    import torch
    from torch import nn


class Event(Protocol):
    """A moment in the stream of a device's work."""

    def record(self) -> None:
        """Put it behind all work that was launched so far."""
        ...

    def elapsed_time(self, end: Any, /) -> float:
        """Milliseconds of the device from this event to `end`, another one of its kind; both have been reached."""
        ...


class EventSource(Protocol):
    """A device that tells time by events."""

    def event(self) -> Event:
        """A new event."""
        ...

    def queue(self) -> None:
        """Keep the device busy for a while, so that what is launched meanwhile runs without gaps."""
        ...

    def synchronise(self) -> None:
        """Wait until all events that were recorded have been reached."""
        ...


def module_times(network: "nn.Module", images: "torch.Tensor", device: EventSource, seconds: float) -> list[NodeTime]:
    """Milliseconds of each innermost module in the order they run, over calls with `images` for about `seconds`.

    Operations that are no modules (an addition of two branches) are not seen. A module's name is the path to it as
    ONNX files have it, with the kind of the module at the end: `/stages.0/stages.0.1/Conv2d`. Nothing is read before
    the device has finished: an event that was not reached has no time.
    """
    import torch

    begun: dict[str, Event] = {}
    spans: list[tuple[str, Event, Event]] = []

    def begin(name: str) -> None:
        begun[name] = device.event()
        begun[name].record()

    def end(name: str) -> None:
        after = device.event()
        after.record()
        spans.append((name, begun[name], after))

    handles = []
    for path, module in network.named_modules():
        if next(module.children(), None) is None:
            name = _node_name(path, module)
            handles.append(module.register_forward_pre_hook(lambda *_, name=name: begin(name)))
            handles.append(module.register_forward_hook(lambda *_, name=name: end(name)))
    times: dict[str, list[float]] = {}
    try:
        with torch.inference_mode():
            network(images)  # libraries choose algorithms on their first calls
            deadline = time.perf_counter() + seconds
            while True:
                device.synchronise()
                spans.clear()
                device.queue()
                network(images)
                device.synchronise()
                for name, before, after in spans:
                    times.setdefault(name, []).append(before.elapsed_time(after))
                if time.perf_counter() >= deadline:
                    break
    finally:
        for handle in handles:
            handle.remove()
    return [NodeTime(name, typical(found)) for name, found in times.items()]


def _node_name(path: str, module: "nn.Module") -> str:
    parts = path.split(".") if path else []
    scopes = [".".join(parts[: i + 1]) for i in range(len(parts))]
    return "/" + "/".join([*scopes, type(module).__name__])
