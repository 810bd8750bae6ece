"""A GPU: CUDA through PyTorch, and NVML for energy, clocks and whoever else uses it.

Times are of whole calls, from images in the host's memory to results there, as on the processor. Tests run against a
fake library; no figure of this module was ever compared with a real GPU's.
"""

import gc
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nas.deployment import HOST_THREADS, Deployment
from nas.measure.devices.cpu import pin
from nas.measure.devices.cuda_library import CudaLibrary, TorchCudaLibrary
from nas.measure.devices.gpu_times import REPLAYS, ROUNDS, device_time_ms
from nas.measure.devices.nvml import Nvml
from nas.measure.devices.probe import Observation
from nas.measure.procfs import Snapshot, snapshot
from nas.measure.reference import graph_reference
from nas.measure.statistics import Activity, host_disturbance
from nas.runtimes.base import Inputs, Session
from nas.runtimes.nodes import NodeTime
from nas.runtimes.torch_eager import dtype_of
from nas.runtimes.torch_graph import GraphSession
from nas.runtimes.torch_modules import module_times

if TYPE_CHECKING:
    from torch import nn

MAX_CLOCK_SPREAD = 0.10
"""Fraction of the fastest clock after a network's windows by which the slowest may be lower."""


class CudaProbe:
    """See `nas.measure.devices.probe.DeviceProbe`.

    Args:
        device: `cuda:N`.
        threads: cores of the host to keep this process on.
        library: the device; by default PyTorch's.
        load_network: reads a `.network.json` and its weights; by default `nas.networks.description.load_network`.
    """

    def __init__(
        self,
        device: str,
        threads: int = HOST_THREADS,
        library: CudaLibrary | None = None,
        load_network: "Callable[[Path], nn.Module] | None" = None,
    ) -> None:
        self.device = device
        self._threads = threads
        self._library = library or TorchCudaLibrary(device)
        self._load_network = load_network
        self._cores: tuple[int, ...] = ()
        self._ours = frozenset({os.getpid()})
        self._asked: Nvml | str | None = None

    def pin(self) -> None:
        self._cores = pin(self._threads)

    def initialise(self, runtimes: Iterable[str], reference: Path | None) -> None:
        # In a container NVML may number processes as the host does: ours are those that our context adds.
        nvml = self._nvml()
        before = nvml.processes() if nvml is not None else None
        self._library.start()
        after = nvml.processes() if nvml is not None else None
        if before is not None and after is not None:
            self._ours |= after - before

    def reference(self, model: Path | None) -> Session:
        return graph_reference(self._library.graphs())

    def settle_memory(self) -> int:
        gc.collect()
        self._library.synchronise()
        self._library.release()
        return self._library.memory_in_use()

    def peak_memory(self) -> int:
        self._library.synchronise()
        return self._library.memory_in_use()

    def synchronise(self) -> None:
        self._library.synchronise()

    def watch(self, *, pauses: bool = False) -> "CudaWatch":
        return CudaWatch(self._nvml(), self._ours, self._cores, self._threads)

    def energy_j(self) -> float | None:
        nvml = self._nvml()
        return nvml.energy_j() if nvml is not None else None

    def why_no_energy(self) -> str | None:
        if self.energy_j() is not None:
            return None
        return self._asked if isinstance(self._asked, str) else f"{self.device} has no energy counter"

    def device_ms(self, session: Session, inputs: Inputs, seconds: float) -> float | None:
        """Of a recorded network of PyTorch; ONNX Runtime launches its kernels in a stream of its own, and events of
        PyTorch's streams do not see them."""
        if not isinstance(session, GraphSession):
            return None
        one_ms = device_time_ms(session, self._library, inputs, replays=1, rounds=1)
        affordable = int(1e3 * seconds / ROUNDS / one_ms) if one_ms > 0 else REPLAYS
        return device_time_ms(session, self._library, inputs, replays=max(1, min(REPLAYS, affordable)))

    def operator_times(
        self, path: Path, deployment: Deployment, inputs: Inputs, seconds: float
    ) -> tuple[NodeTime, ...]:
        """Times of PyTorch's modules, launched one by one; ONNX Runtime's own profiler tells when it launched an
        operator, not how long the GPU took."""
        if deployment.runtime != "torch":
            return ()
        import torch

        network = self._loader()(path).eval().to(device=self._library.tensors_on, dtype=dtype_of(deployment))
        batch = torch.from_numpy(inputs).to(device=self._library.tensors_on)
        batch = batch.to(dtype=dtype_of(deployment)) if batch.is_floating_point() else batch
        return tuple(module_times(network, batch, self._library, seconds))

    def _loader(self) -> "Callable[[Path], nn.Module]":
        if self._load_network is not None:
            return self._load_network
        from nas.networks.description import load_network

        return load_network

    def _nvml(self) -> Nvml | None:
        if self._asked is None:
            self._asked = self._library.nvml()
        return None if isinstance(self._asked, str) else self._asked


class CudaWatch:
    """See `nas.measure.devices.probe.Watch`. A busy host delays launches, so it is watched too.

    Args:
        nvml: the GPU; None where it cannot be asked.
        ours: numbers of our own process, as NVML may see them.
        cores: of the host, that this process is kept on.
        threads: their number.
    """

    def __init__(self, nvml: Nvml | None, ours: frozenset[int], cores: Sequence[int], threads: int) -> None:
        self._nvml, self._ours, self._cores, self._threads = nvml, ours, cores, threads
        self._before: Snapshot | None = None
        self._joules_before: float | None = None
        self._began_us = 0
        self._host = Activity(wall_s=0.0, cpu_s=0.0)
        self._joules: float | None = 0.0
        self._clocks: list[int] = []
        self._slowdowns: list[str] = []
        self._others: set[int] = set()

    def begin(self) -> None:
        self._began_us = int(time.time() * 1e6)
        self._joules_before = self._nvml.energy_j() if self._nvml is not None else None
        self._before = snapshot(self._cores)

    def end(self) -> None:
        assert self._before is not None, "no window was begun"
        self._host = self._host + (snapshot(self._cores) - self._before)
        if self._nvml is None:
            self._joules = None
            return
        joules = self._nvml.energy_j()
        known = joules is not None and self._joules_before is not None and self._joules is not None
        self._joules = (self._joules or 0.0) + (joules or 0.0) - (self._joules_before or 0.0) if known else None
        clock, slowdown = self._nvml.clock_mhz(), self._nvml.slowdown()
        self._clocks += [clock] if clock is not None else []
        self._slowdowns += [slowdown] if slowdown is not None else []
        busy = self._nvml.busy_since(self._began_us)
        # Where it is not told who computes, whoever is there may.
        self._others |= (self._nvml.processes() or frozenset()) - self._ours if busy is None else busy - self._ours

    def observation(self) -> Observation:
        return Observation(
            cpu_share=self._host.cpu_s / self._host.wall_s, energy_j=self._joules, disturbance=self._disturbance()
        )

    def _disturbance(self) -> str | None:
        if self._slowdowns:
            return f"the GPU was slowed down ({self._slowdowns[0]})"
        if self._others:
            return f"{len(self._others)} other processes computed on the GPU"
        lowest, highest = min(self._clocks, default=0), max(self._clocks, default=0)
        if lowest < (1 - MAX_CLOCK_SPREAD) * highest:
            return f"the GPU's clock moved between {lowest} and {highest} MHz"
        return host_disturbance(self._host, self._threads)
