"""A GPU as `CudaProbe` sees it, on the CPU: it keeps the order of what is asked of it and tells what a test has set."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from nas.measure.devices.nvml import GpuState, Nvml


@dataclass(slots=True)
class FakeEvent:
    """Recorded at a time of the fake GPU, reached when that is synchronised."""

    gpu: "FakeGpu"
    at_ms: float | None = None
    reached: bool = False

    def record(self) -> None:
        self.at_ms = self.gpu.now_ms
        self.gpu.now_ms += 1.0  # each event ends a millisecond of work
        self.gpu.pending.append(self)

    def elapsed_time(self, end: "FakeEvent", /) -> float:
        assert self.reached, "an event was asked for its time before the device had reached it"
        assert end.reached, "an event was asked for its time before the device had reached it"
        assert self.at_ms is not None
        assert end.at_ms is not None
        return end.at_ms - self.at_ms


class FakeGraphs:
    """See `nas.runtimes.torch_graph.GraphDevice`. Like a GPU's stream, it does what was launched when somebody waits,
    and not before: who reads a result too soon finds the last one, and who changes an input too soon spoils the call.
    """

    tensors_on = "cpu"

    def __init__(self, gpu: "FakeGpu") -> None:
        self._gpu = gpu
        self._pinned: list[torch.Tensor] = []
        self.captured: list[str] = []
        """Types of the tensors that recorded calls returned."""

    def capture(self, call: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        output = call()
        self.captured.append(str(output.dtype))

        def work() -> None:
            with torch.inference_mode():
                output.copy_(call())

        return lambda: self._gpu.launch("replay", work), output

    def pinned(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        self._pinned.append(torch.zeros(shape, dtype=dtype))
        return self._pinned[-1]

    def copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        kept = [any(t is own for own in self._pinned) for t in (source, target)]
        assert sorted(kept) == [False, True], "a copy that the host need not wait for has one side in pinned memory"

        def work() -> None:
            with torch.inference_mode():
                target.copy_(source)

        self._gpu.launch("upload" if kept[0] else "download", work)

    def synchronize(self) -> None:
        self._gpu.synchronise()


@dataclass(slots=True)
class FakeGpu:
    """See `nas.measure.devices.cuda_library.CudaLibrary`."""

    nvml_side: Nvml | str = "the package nvidia-ml-py is not installed"
    tensors_on: str = "cpu"
    memory_bytes: int = 1000
    log: list[str] = field(default_factory=list)
    pending: list[FakeEvent] = field(default_factory=list)
    now_ms: float = 0.0
    launched: list[Callable[[], None]] = field(default_factory=list)
    most_launched: int = 0
    """Most pieces of work that waited at once."""

    def launch(self, name: str, work: Callable[[], None]) -> None:
        self.log.append(name)
        self.launched.append(work)
        self.most_launched = max(self.most_launched, len(self.launched))

    def start(self) -> None:
        self.log.append("start")
        if isinstance(self.nvml_side, FakeNvml):
            self.nvml_side.present |= self.nvml_side.ours

    def synchronise(self) -> None:
        self.log.append("synchronise")
        for work in self.launched:
            work()
        self.launched.clear()
        for event in self.pending:
            event.reached = True
        self.pending.clear()

    def release(self) -> None:
        self.log.append("release")

    def memory_in_use(self) -> int:
        self.log.append("memory")
        return self.memory_bytes

    def event(self) -> FakeEvent:
        return FakeEvent(self)

    def queue(self) -> None:
        self.log.append("queue")

    def graphs(self) -> FakeGraphs:
        return FakeGraphs(self)

    def nvml(self) -> Nvml | str:
        return self.nvml_side


@dataclass(slots=True)
class FakeNvml:
    """See `nas.measure.devices.nvml.Nvml`. Each question about energy, clock or slowdown takes the next answer; the
    last one stays."""

    joules: list[float | None] = field(default_factory=lambda: [None])
    clocks: list[int | None] = field(default_factory=lambda: [1980])
    slowdowns: list[str | None] = field(default_factory=lambda: [None])
    present: frozenset[int] = frozenset()
    """Processes on the GPU before ours starts."""
    ours: frozenset[int] = frozenset({4242})
    """Our process, by the number that the host gives it."""
    busy: frozenset[int] | None = frozenset({4242})

    def state(self) -> GpuState:
        return GpuState(
            driver="580.1", clock_mhz=self.clock_mhz(), max_clock_mhz=1980, memory_clock_mhz=2600, temperature_c=41,
            power_w=70.0, power_limit_w=700.0, slowdown=self.slowdown(), processes=len(self.present), ecc=True,
            mig=False,
        )  # fmt: skip

    def energy_j(self) -> float | None:
        return self.joules.pop(0) if len(self.joules) > 1 else self.joules[0]

    def clock_mhz(self) -> int | None:
        return self.clocks.pop(0) if len(self.clocks) > 1 else self.clocks[0]

    def slowdown(self) -> str | None:
        return self.slowdowns.pop(0) if len(self.slowdowns) > 1 else self.slowdowns[0]

    def processes(self) -> frozenset[int] | None:
        return self.present

    def busy_since(self, time_us: int) -> frozenset[int] | None:
        return self.busy
