"""The processor: pinned cores, resident memory, RAPL's energy, and the kernel's account of disturbances."""

import contextlib
import ctypes
import gc
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from nas.deployment import CPU, Deployment
from nas.measure.devices.probe import Observation
from nas.measure.energy import energy_j, why_no_energy
from nas.measure.host import affinity
from nas.measure.procfs import Snapshot, clear_peak_memory, memory_status, snapshot
from nas.measure.reference import MatmulReference
from nas.measure.statistics import Activity, disturbance, disturbance_with_pauses
from nas.measure.topology import performance_cores
from nas.runtimes import RUNTIMES, load_runtime
from nas.runtimes.base import Inputs, Session
from nas.runtimes.nodes import NodeTime, NodeTimer


class CpuProbe:
    """See `nas.measure.devices.probe.DeviceProbe`."""

    device = CPU

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._cores: tuple[int, ...] = ()

    def pin(self) -> None:
        self._cores = pin(self._threads)

    def initialise(self, runtimes: Iterable[str], reference: Path | None) -> None:
        for name in sorted(set(runtimes) & RUNTIMES.keys()):
            runtime = load_runtime(name)
            if runtime.missing() is not None:
                continue  # loading the first network says so
            if name == "torch":
                import torch

                torch.zeros(1, 1, 8, 8) @ torch.zeros(8, 8)
            elif reference is not None and name != "onnxruntime":
                session = runtime.load(reference, Deployment(name, "fp32", self._threads))
                session.run(session.input.draw(np.random.default_rng(0), session.batch))

    def reference(self, model: Path | None) -> Session:
        if model is None:
            return MatmulReference()
        return load_runtime("onnxruntime").load(model, Deployment("onnxruntime", "fp32", self._threads))

    def settle_memory(self) -> int:
        gc.collect()
        with contextlib.suppress(AttributeError, OSError):  # only the GNU C library has it
            ctypes.CDLL(None).malloc_trim(0)
        clear_peak_memory()
        return memory_status().resident_bytes

    def peak_memory(self) -> int:
        return memory_status().peak_bytes

    def synchronise(self) -> None:
        if len(self._cores) != 1:
            await_idle_threads()

    def watch(self, *, pauses: bool = False) -> "CpuWatch":
        return CpuWatch(self._cores, self._threads, pauses)

    def energy_j(self) -> float | None:
        return energy_j()

    def why_no_energy(self) -> str | None:
        return why_no_energy()

    def device_ms(self, session: Session, inputs: Inputs, seconds: float) -> float | None:
        return None

    def operator_times(
        self, path: Path, deployment: Deployment, inputs: Inputs, seconds: float
    ) -> tuple[NodeTime, ...]:
        runtime = load_runtime(deployment.runtime)
        if not isinstance(runtime, NodeTimer):
            return ()
        self.synchronise()
        return tuple(runtime.node_times(path, deployment, inputs, seconds))


class CpuWatch:
    """See `nas.measure.devices.probe.Watch`."""

    def __init__(self, cores: Sequence[int], threads: int, pauses: bool) -> None:
        self._cores, self._threads, self._pauses = cores, threads, pauses
        self._before: Snapshot | None = None
        self._activity = Activity(wall_s=0.0, cpu_s=0.0, energy_j=0.0)

    def begin(self) -> None:
        self._before = snapshot(self._cores)

    def end(self) -> None:
        assert self._before is not None, "no window was begun"
        self._activity = self._activity + (snapshot(self._cores) - self._before)

    def observation(self) -> Observation:
        activity = self._activity
        return Observation(
            cpu_share=activity.cpu_s / activity.wall_s,
            energy_j=activity.energy_j,
            disturbance=(disturbance_with_pauses if self._pauses else disturbance)(activity, self._threads),
        )


def pin(threads: int) -> tuple[int, ...]:
    """Keep this process on `threads` of its fast cores, the last ones (the first serves most interrupts); returns them.

    More threads than there are such cores get whatever the process may run on.
    """
    if not hasattr(os, "sched_setaffinity"):
        return ()
    cores = performance_cores(affinity())[-threads:]
    cores = cores if len(cores) == threads else affinity()[-threads:]
    os.sched_setaffinity(0, cores)
    return cores


def await_idle_threads(seconds: float = 0.2) -> bool:
    """Wait until this process stands still, for `seconds` at most; returns whether it does.

    The worker threads of ONNX Runtime spin on for some 20 ms after a call, and would compete with the network that is
    timed next.
    """
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        before = time.process_time()
        time.sleep(0.004)
        if time.process_time() - before < 0.0005:
            return True
    return False
