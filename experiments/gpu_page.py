"""Every figure of networks on a GPU, in one call of at most ten minutes.

`python -m experiments.gpu_page --out gpu` needs a CUDA device, PyTorch, torchvision and numpy; timm (for DeiT) and
nvidia-ml-py (energy, clocks) where they are installed. It writes `gpu.md`, a section of a page, and `gpu.json`: the
device's ceilings; ResNet-50 and a searched network (`--network NAME.network.json`; else an untrained stand-in of the
space `mixed`) from eager fp32 to a recorded fp16 graph, with device time, call time, calls with pauses, throughput and
energy by batch; the spread of three fresh processes; operators by device time; and what all of it has to keep. What
there was no time for, or what the machine lacks, is left out and said. `--minutes` sets the limit.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from experiments.gpu_text import markdown
from experiments.operator_tables import NETWORKS, Table, eager_table, processor
from experiments.stand_in import NAME, SIZE, stand_in
from nas.measure.devices.cuda_ceiling import cuda_ceiling
from nas.measure.devices.cuda_library import CudaLibrary, TorchCudaLibrary
from nas.measure.devices.gpu_times import call_times_ms, device_time_ms, energy, images_per_s
from nas.measure.devices.nvml import Nvml
from nas.runtimes.devices import why_no_device
from nas.runtimes.torch_graph import CudaGraphDevice, GraphDevice, GraphSession, graph_session
from search_spaces.signature import TensorSpec

DEVICE = "cuda:0"
BATCHES = (1, 8, 64)
PACED_MS = 10.0
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
Make = Callable[[], nn.Module]


@dataclass(frozen=True, slots=True)
class Settings:
    """How long everything takes."""

    calls: int = 300
    replays: int = 200
    paced_calls: int = 100
    throughput_s: float = 2.0
    energy_s: float = 10.0
    """Of load, and before it of rest."""
    operators_s: float = 1.0
    ceiling_side: int = 8192
    copied_bytes: int = 2**30


@dataclass(frozen=True, slots=True)
class Gpu:
    """The device and what is asked of it; a fake one stands in for it in tests."""

    library: CudaLibrary
    graphs: Callable[[], GraphDevice]
    """A device with a stream of its own at each call."""

    @property
    def nvml(self) -> Nvml | None:
        asked = self.library.nvml()
        return None if isinstance(asked, str) else asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One network, run in one way at one batch. None is what was not measured."""

    network: str
    how: str
    batch: int
    call_p50_ms: float
    """From host memory to host memory; likewise p99."""
    call_p99_ms: float
    device_ms: float | None = None
    copies_ms: float | None = None
    """Call time of a network that computes nothing, with the same input and output."""
    paced_p50_ms: float | None = None
    """Call time where a call starts every `PACED_MS`."""
    images_per_s: float | None = None
    """Of two calls under way at once, copies included."""
    joules_per_image: float | None = None
    """Of the board."""
    idle_w: float | None = None
    state: dict[str, Any] | None = None
    """The GPU's right after, see `nas.measure.devices.nvml.GpuState`."""


@dataclass(slots=True)
class Page:
    """Everything that was found."""

    device: str
    gpu: str
    versions: dict[str, str]
    ceilings: dict[str, dict[str, float]] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)
    sessions_ms: list[float] = field(default_factory=list)
    """Call time of ResNet-50 in fp16 at batch 1, by fresh process."""
    operators: list[Table] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    seconds: float = 0.0


class FromPixels(nn.Module):
    """A network that takes bytes `(n, h, w, 3)` and normalises them on the device: a quarter of the bytes to upload."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        for name, values in (("mean", MEAN), ("std", STD)):
            self.register_buffer(name, 255 * torch.tensor(values).view(1, 3, 1, 1))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        mean, std = self.get_buffer("mean"), self.get_buffer("std")
        # The last axis is that of the channels already, as 16-bit convolutions want it.
        result: torch.Tensor = self.network((pixels.permute(0, 3, 1, 2).to(mean.dtype) - mean) / std)
        return result


class Nothing(nn.Module):
    """Computes nothing: `(n, ...)` to its first `size` elements."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return given.flatten(1)[:, : self.size]


def resnet50() -> nn.Module:
    """Random weights, batch norms folded into the convolutions."""
    from torch.fx.experimental.optimization import fuse
    from torchvision.models import resnet50 as build

    torch.manual_seed(0)
    network: nn.Module = fuse(build(weights=None).eval())
    return network


def searched(path: Path | None) -> tuple[str, Make, TensorSpec]:
    """Name, maker and input of the searched network, or of the one that stands for it."""
    from search_spaces.modules import folded

    if path is not None:
        from nas.networks.description import load_network, read_description

        return path.name, lambda: load_network(path), read_description(path).signature.input
    space, arch = stand_in()
    torch.manual_seed(0)
    return NAME, lambda: folded(space.build(arch, SIZE).eval()), space.signature(arch, SIZE).input


def graph_figure(
    name: str, make: Make, spec: TensorSpec, precision: str, batch: int, gpu: Gpu, settings: Settings,
    *, whole: bool, how: str | None = None,
) -> Figure:  # fmt: skip
    """A recorded network. `whole`: also calls with pauses, throughput and energy."""
    dtype, library = DTYPES[precision], gpu.library
    inputs = spec.draw(np.random.default_rng(0), batch)
    session = graph_session(make(), dtype, spec, batch, library.graphs())
    out = session.run(inputs)
    call_times_ms(session, inputs, calls=settings.calls // 3 + 1)  # until the clock is up
    times = call_times_ms(session, inputs, calls=settings.calls)
    device_ms = device_time_ms(session, library, inputs, replays=settings.replays)
    nothing = graph_session(Nothing(out[0].size), dtype, spec, batch, library.graphs())
    copies = call_times_ms(nothing, inputs, calls=settings.calls)
    paced = throughput = used = None
    if whole:
        paced = call_times_ms(session, inputs, calls=settings.paced_calls, interval_ms=PACED_MS)
        two = [graph_session(make(), dtype, spec, batch, gpu.graphs()) for _ in range(2)]
        throughput = images_per_s(two, inputs, settings.throughput_s)
        if gpu.nvml is not None:
            used = energy(gpu.nvml, lambda: _some(two[0], inputs), settings.energy_s)
    return Figure(
        network=name, how=how or f"graph {precision}", batch=batch, call_p50_ms=float(np.median(times)),
        call_p99_ms=float(np.percentile(times, 99)), device_ms=device_ms, copies_ms=float(np.median(copies)),
        paced_p50_ms=None if paced is None else float(np.median(paced)), images_per_s=throughput,
        joules_per_image=None if used is None else used.joules_per_image, idle_w=None if used is None else used.idle_w,
        state=_state(gpu),
    )  # fmt: skip


def eager_figure(
    name: str, network: Callable[[torch.Tensor], torch.Tensor], how: str, spec: TensorSpec, dtype: torch.dtype,
    gpu: Gpu, settings: Settings,
) -> Figure:  # fmt: skip
    """A network in `dtype` as PyTorch runs it by itself, at batch 1: copies wait for each other."""
    where = gpu.library.tensors_on
    inputs = spec.draw(np.random.default_rng(0), 1)
    times = []
    with torch.inference_mode():
        for _ in range(settings.calls + 10):
            start = time.perf_counter()
            given = torch.from_numpy(inputs).to(where)
            network(given.to(dtype) if given.is_floating_point() else given).float().cpu()
            times.append(1e3 * (time.perf_counter() - start))
    kept = times[10:]
    return Figure(
        network=name, how=how, batch=1, call_p50_ms=float(np.median(kept)),
        call_p99_ms=float(np.percentile(kept, 99)), state=_state(gpu),
    )  # fmt: skip


def _some(session: GraphSession, inputs: np.ndarray) -> int:
    for _ in range(20):
        session.run(inputs)
    return 20 * len(inputs)


def _state(gpu: Gpu) -> dict[str, Any] | None:
    return None if gpu.nvml is None else asdict(gpu.nvml.state())


def measure_all(
    page: Page, gpu: Gpu, networks: Sequence[tuple[str, Make, TensorSpec]], settings: Settings, seconds: float,
    fresh_session_ms: Callable[[], float] | None = None, clock: Callable[[], float] = time.perf_counter,
) -> None:  # fmt: skip
    """Everything, in the order of its importance; what begins later than its time allows is left out.

    Args:
        page: where it is put, one figure after the other.
        networks: name, maker and input; the first is the one of the ladder.
        seconds: for all.
        fresh_session_ms: the first network's fp16 call time in another process; None: not asked.
    """
    begun = clock()

    def section(name: str, needs_s: float, work: Callable[[], None]) -> None:
        if clock() - begun + needs_s > seconds:
            page.left_out.append(f"{name}: no time was left")
            return
        try:
            work()
        except (RuntimeError, ImportError, OSError, subprocess.SubprocessError) as error:
            page.left_out.append(f"{name}: {str(error).strip().partition(chr(10))[0]}")

    (name, make, spec), *_ = networks
    where = gpu.library.tensors_on

    def ceilings() -> None:
        for precision, dtype in DTYPES.items():
            product, copied = cuda_ceiling(
                gpu.library, dtype, side=settings.ceiling_side, copied_bytes=settings.copied_bytes
            )
            page.ceilings[precision] = {"gmacs_per_s": product, "gb_per_s": copied}

    def add(figure: Callable[[], Figure]) -> Callable[[], None]:
        return lambda: page.figures.append(figure())

    def graph(entry: tuple[str, Make, TensorSpec], precision: str, batch: int, *, whole: bool) -> Callable[[], None]:
        return add(lambda: graph_figure(*entry, precision, batch, gpu, settings, whole=whole))

    section("ceilings", 15, ceilings)
    section(
        "eager fp32",
        5,
        add(
            lambda: eager_figure(
                name,
                make().to(where),
                "eager fp32",
                spec,
                torch.float32,
                gpu,
                settings,
            )
        ),
    )
    section("graph fp32", 10, graph(networks[0], "fp32", 1, whole=False))
    section("graph bf16", 10, graph(networks[0], "bf16", 1, whole=False))
    for entry in networks:
        for batch in BATCHES:
            section(f"{entry[0]} at batch {batch}", 30, graph(entry, "fp16", batch, whole=True))
    if fresh_session_ms is not None:
        section("three sessions", 90, lambda: page.sessions_ms.extend(fresh_session_ms() for _ in range(3)))
    if len(spec.shape) == 3 and spec.dtype == "float32":
        pixels = TensorSpec((*spec.shape[1:], spec.shape[0]), "uint8", 256)
        from_pixels: Make = lambda: FromPixels(make())  # noqa: E731
        section(
            "pixels as bytes", 10,
            add(lambda: graph_figure(name, from_pixels, pixels, "fp16", 1, gpu, settings, whole=False,
                                     how="graph fp16, pixels as bytes")),
        )  # fmt: skip
    for title, (build, given) in NETWORKS.items():
        section(f"operators of {title}", 15, lambda t=title, b=build, g=given: page.operators.append(  # type: ignore[misc]
            eager_table(t, b(), torch.from_numpy(g.draw(np.random.default_rng(0), 1)), settings.operators_s, where)
        ))  # fmt: skip
    section("torch.compile fp16", 120, add(lambda: eager_figure(
        name, torch.compile(make().to(where, torch.float16), mode="max-autotune"), "torch.compile max-autotune fp16",
        spec, torch.float16, gpu, settings,
    )))  # fmt: skip
    page.seconds = clock() - begun


def _fresh_session_ms() -> float:
    """Call time of ResNet-50 in fp16 at batch 1, measured by this script in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "experiments.gpu_page", "--session"], capture_output=True, text=True, check=True
    )
    return float(done.stdout.strip().splitlines()[-1])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("gpu"), help="Files OUT.md and OUT.json.")
    parser.add_argument("--network", type=Path, help="The searched network: NAME.network.json.")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--session", action="store_true", help="Print one process's call time alone.")
    given = parser.parse_args(arguments)
    reason = why_no_device(DEVICE)
    if reason is not None:
        print(f"There is nothing to measure: {reason}.", file=sys.stderr)
        return 1
    library = TorchCudaLibrary(DEVICE)
    library.start()
    gpu = Gpu(library, lambda: CudaGraphDevice(DEVICE, own_stream=True))
    first = ("ResNet-50", resnet50, TensorSpec((3, 224, 224)))
    if given.session:
        print(graph_figure(*first, "fp16", 1, gpu, Settings(), whole=False).call_p50_ms)
        return 0
    versions = {"torch": torch.__version__, "cuda": str(torch.version.cuda)}
    page = Page(device=processor(), gpu=torch.cuda.get_device_name(DEVICE), versions=versions)
    told = library.nvml()
    if isinstance(told, str):
        page.left_out.append(f"energy, clocks and slowdowns: {told}")
    try:
        measure_all(page, gpu, [first, searched(given.network)], Settings(), 60 * given.minutes, _fresh_session_ms)
    finally:  # whatever happens, what was measured is kept
        given.out.with_suffix(".json").write_text(json.dumps(asdict(page), indent=1), encoding="utf-8")
        given.out.with_suffix(".md").write_text(markdown(asdict(page)), encoding="utf-8")
    print(f"wrote {given.out.with_suffix('.md')} and {given.out.with_suffix('.json')} in {page.seconds:.0f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
