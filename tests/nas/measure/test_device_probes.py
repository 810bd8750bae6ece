"""The contract of device probes, on the processor and on a fake GPU, and what only a GPU's probe does."""

import os
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from nas.deployment import Deployment, Placement
from nas.measure.block_times import slot_times_ms
from nas.measure.devices import DeviceProbe, probe_of, why_no_energy
from nas.measure.devices.cpu import CpuProbe
from nas.measure.devices.cuda import CudaProbe
from nas.measure.devices.gpu_times import call_times_ms, device_time_ms, energy, images_per_s
from nas.measure.devices.nvml import GpuState, PyNvml, nvml_of
from nas.measure.job import Job, JobModel
from nas.measure.reference import reference_model
from nas.measure.worker import work
from nas.runtimes.nodes import NodeTime
from nas.runtimes.torch_eager import EagerSession
from nas.runtimes.torch_graph import GraphSession, graph_session
from search_spaces.signature import TensorSpec
from tests.nas.measure.fake_gpu import FakeGpu, FakeNvml
from tests.nas.tiny import calibration_images, write_tiny_network
from tests.nas.tiny_torch import load_tiny_network

PROBES = ("cpu", "cuda:0")
real_gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.fixture(autouse=True)
def _cores() -> Iterator[None]:
    """A probe keeps its process on some cores; the next test has all again."""
    before = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, before)


@pytest.fixture(autouse=True)
def _small_reference(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a GPU computes in a millisecond takes this processor seconds."""
    if "a real GPU" not in request.node.name:
        monkeypatch.setattr("nas.measure.reference._GRAPH_INPUT", TensorSpec((16, 32, 32)))
        monkeypatch.setattr("nas.measure.reference._GRAPH_BATCH", 2)
        monkeypatch.setattr("nas.measure.reference._GRAPH_WIDTHS", (64, 64))


@pytest.fixture(params=[*PROBES, pytest.param("a real GPU", marks=real_gpu)])
def probe(request: pytest.FixtureRequest) -> DeviceProbe:
    if request.param == "cpu":
        return CpuProbe(1)
    if request.param == "cuda:0":
        return CudaProbe("cuda:0", library=FakeGpu(FakeNvml(joules=[1.0, 1.5, 2.5])), load_network=load_tiny_network)
    return CudaProbe("cuda:0")


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """The tiny network as PyTorch loads it."""
    write_tiny_network(tmp_path / "tiny.onnx")
    (tmp_path / "tiny.network.json").write_text("{}", encoding="utf-8")
    return tmp_path / "tiny.network.json"


def started(probe: DeviceProbe) -> DeviceProbe:
    probe.pin()
    probe.initialise({"onnxruntime", "torch", "no-such-runtime"}, reference_model())
    return probe


def test_a_probe_is_kept_on_its_cores(probe: DeviceProbe) -> None:
    probe.pin()
    assert len(os.sched_getaffinity(0)) == 1


def test_the_reference_network_runs_on_the_device(probe: DeviceProbe) -> None:
    session = started(probe).reference(reference_model())
    images = session.input.draw(np.random.default_rng(0), session.batch)
    output = session.run(images)
    assert len(output) == len(images)
    assert np.isfinite(output).all()
    assert np.abs(output).max() > 0
    np.testing.assert_array_equal(output, session.run(images))


def test_memory_is_counted_from_what_was_settled(probe: DeviceProbe) -> None:
    before = started(probe).settle_memory()
    assert before > 0
    held = np.ones(32 * 2**20, np.uint8)
    assert probe.peak_memory() >= before
    assert held.all()


def test_a_window_is_observed(probe: DeviceProbe) -> None:
    watch = started(probe).watch()
    session = probe.reference(reference_model())
    images = np.ones(session.input.batched(session.batch), np.float32)
    for _ in range(2):
        probe.synchronise()
        watch.begin()
        session.run(images)
        watch.end()
    seen = watch.observation()
    assert 0 <= seen.cpu_share < 64
    assert seen.energy_j is None or seen.energy_j >= 0
    assert (probe.energy_j() is None) == (probe.why_no_energy() is not None)


def test_a_runtime_that_cannot_tell_has_no_operator_times(probe: DeviceProbe, tmp_path: Path) -> None:
    model = write_tiny_network(tmp_path / "tiny.onnx")
    runtime = "torch" if probe.device == "cpu" else "onnxruntime"
    deployment = Deployment(runtime, "fp32", 1, device=probe.device)
    assert started(probe).operator_times(model, deployment, calibration_images(1), 0.01) == ()


def test_probes_are_chosen_by_device() -> None:
    assert isinstance(probe_of(Placement("cpu", 2)), CpuProbe)
    found = probe_of(Placement("cuda:1", 1))
    assert isinstance(found, CudaProbe)
    assert found.device == "cuda:1"


# A GPU


def test_a_gpu_is_started_before_anything_is_charged_to_a_network() -> None:
    gpu = FakeGpu()
    probe = started(CudaProbe("cuda:0", library=gpu))
    assert gpu.log == ["start"]
    assert probe.settle_memory() == 1000
    assert gpu.log[1:] == ["synchronise", "release", "memory"], "memory is read when nothing runs and nothing is kept"
    gpu.memory_bytes = 5000
    gpu.log.clear()
    assert probe.peak_memory() == 5000
    assert gpu.log == ["synchronise", "memory"]


def test_a_call_ends_when_the_gpu_has_finished() -> None:
    gpu = FakeGpu()
    session = started(CudaProbe("cuda:0", library=gpu)).reference(None)
    gpu.log.clear()
    session.run(np.ones(session.input.batched(session.batch), np.float32))
    assert gpu.log == ["upload", "replay", "download", "synchronise"]


def watched(nvml: FakeNvml, windows: int = 2) -> Any:
    probe = started(CudaProbe("cuda:0", library=FakeGpu(nvml)))
    watch = probe.watch()
    for _ in range(windows):
        watch.begin()
        watch.end()
    return watch.observation()


def test_energy_is_that_of_the_windows() -> None:
    assert watched(FakeNvml(joules=[10.0, 10.5, 17.0, 17.25])).energy_j == pytest.approx(0.75)
    assert watched(FakeNvml(joules=[10.0, None, 17.0, 17.25])).energy_j is None, "one window is not known"
    assert CudaProbe("cuda:0", library=FakeGpu()).why_no_energy() == "the package nvidia-ml-py is not installed"
    silent = CudaProbe("cuda:0", library=FakeGpu(FakeNvml()))
    assert silent.why_no_energy() == "cuda:0 has no energy counter"
    assert CudaProbe("cuda:0", library=FakeGpu(FakeNvml(joules=[3.0]))).why_no_energy() is None


@pytest.mark.parametrize(
    ("nvml", "words"),
    [
        (FakeNvml(slowdowns=[None, "power brake", None]), "slowed down (power brake)"),
        (FakeNvml(clocks=[1980, 1500]), "moved between 1500 and 1980 MHz"),
        (FakeNvml(busy=frozenset({4242, 77})), "1 other processes"),
        (FakeNvml(present=frozenset({7, 8}), busy=None), "2 other processes"),
    ],
)
def test_disturbances_of_a_gpu_are_told(nvml: FakeNvml, words: str) -> None:
    assert words in watched(nvml).disturbance


@pytest.mark.parametrize(
    "nvml",
    [
        FakeNvml(clocks=[1980, 1935]),
        FakeNvml(present=frozenset({7}), busy=frozenset({4242})),
        FakeNvml(busy=None),
        FakeNvml(clocks=[None], busy=frozenset()),
    ],
)
def test_what_does_not_disturb_a_gpu(nvml: FakeNvml) -> None:
    """Small moves of the clock, another process that stands still, and our own, whatever its number is."""
    told = watched(nvml).disturbance
    assert told is None or "GPU" not in told, "the host of this test may be busy"


# The three times of a network on a GPU


@pytest.fixture
def graphed(network: Path) -> tuple[FakeGpu, GraphSession]:
    gpu = FakeGpu()
    return gpu, graph_session(load_tiny_network(network), torch.float32, TensorSpec((3, 24, 24)), 1, gpu.graphs())


def test_device_time_is_that_between_events_around_replays_without_copies(
    graphed: tuple[FakeGpu, GraphSession],
) -> None:
    gpu, session = graphed
    assert device_time_ms(session, gpu, calibration_images(1), replays=4, rounds=2) == pytest.approx(1 / 4)
    first = ["upload", "replay", "download", "synchronise"]
    assert gpu.log == first + (["queue"] + ["replay"] * 4 + ["synchronise"]) * 2


def test_a_probe_tells_the_time_on_the_device_alone_where_that_is_another(probe: DeviceProbe, network: Path) -> None:
    session = started(probe).reference(reference_model())
    images = session.input.draw(np.random.default_rng(0), session.batch)
    found = probe.device_ms(session, images, 0.01)
    assert (found is None) == (probe.device == "cpu")
    assert found is None or found > 0


def test_device_time_is_measured_for_as_long_as_there_is_time(graphed: tuple[FakeGpu, GraphSession]) -> None:
    gpu, session = graphed
    probe = CudaProbe("cuda:0", library=gpu)
    probe.device_ms(session, calibration_images(1), 0.0)
    assert gpu.log.count("replay") == (1 + 1) + (1 + 5), "each time a call, then one replay in each round"
    gpu.log.clear()
    probe.device_ms(session, calibration_images(1), 0.05)
    assert gpu.log.count("replay") == (1 + 1) + (1 + 5 * 10), "rounds of 10 ms of a replay of 1 ms"


def test_the_device_time_of_another_session_is_not_known() -> None:
    images = np.zeros((1, 3, 24, 24), np.float32)
    network = EagerSession(nn.Flatten(), torch.float32, TensorSpec((3, 24, 24)), 1)
    assert CudaProbe("cuda:0", library=FakeGpu()).device_ms(network, images, 1.0) is None


def test_call_times_are_spaced_where_that_is_asked_for(graphed: tuple[FakeGpu, GraphSession]) -> None:
    gpu, session = graphed
    begun = time.perf_counter()
    times_ms = call_times_ms(session, calibration_images(1), calls=3, interval_ms=20.0)
    assert time.perf_counter() - begun >= 0.04, "two intervals between three calls"
    assert len(times_ms) == 3
    assert min(times_ms) > 0
    assert gpu.log.count("replay") == 3


def test_throughput_keeps_a_call_of_each_stream_under_way(network: Path) -> None:
    gpu = FakeGpu()
    loaded = load_tiny_network(network)
    sessions = [graph_session(loaded, torch.float32, TensorSpec((3, 24, 24)), 2, gpu.graphs()) for _ in range(2)]
    assert images_per_s(sessions, calibration_images(2), seconds=0.05) > 0
    assert gpu.most_launched == 6, "two calls of three pieces each"
    assert gpu.log[-1] == "synchronise"
    assert not gpu.launched, "nothing is left behind"


def test_energy_is_the_counter_over_the_images_and_idle_power_stands_apart() -> None:
    clock = iter([0.0, 10.0, 10.0, 15.0, 20.5])
    told = energy(FakeNvml(joules=[100.0, 600.0, 1000.0, 5200.0]), lambda: 7, 10.0, lambda: next(clock), lambda _: None)
    assert told is not None
    assert told.idle_w == pytest.approx(500.0 / 10.0)
    assert told.joules_per_image == pytest.approx(4200.0 / 14)
    assert told.seconds == pytest.approx(10.5)
    assert energy(FakeNvml(), lambda: 1, 0.0, lambda: 0.0, lambda _: None) is None, "no counter"


def test_modules_are_timed_by_events_that_were_reached(network: Path) -> None:
    gpu = FakeGpu()
    probe = started(CudaProbe("cuda:0", library=gpu, load_network=load_tiny_network))
    gpu.log.clear()
    deployment = Deployment("torch", "fp32", 1, device="cuda:0")
    found = probe.operator_times(network, deployment, calibration_images(1), 0.0)
    modules = [m for m in load_tiny_network(network).modules() if next(m.children(), None) is None]
    assert [node.name.rsplit("/")[-1] for node in found] == [type(m).__name__ for m in modules]
    assert [node.ms for node in found] == [1.0] * len(modules)
    assert gpu.log == ["synchronise", "queue", "synchronise"], "launched behind a busy device, read at its end"


def test_modules_carry_the_names_that_blocks_are_found_by() -> None:
    gpu = FakeGpu()
    network = nn.ModuleDict({"stages": nn.Sequential(nn.Sequential(nn.Flatten(), nn.Linear(4, 4)), nn.Linear(4, 2))})
    network.forward = lambda images: network["stages"](images)  # type: ignore[method-assign]
    probe = CudaProbe("cuda:0", library=gpu, load_network=lambda _: network)
    found = probe.operator_times(
        Path("any"), Deployment("torch", "fp32", 1, device="cuda:0"), np.ones((1, 1, 2, 2), np.float32), 0.0
    )
    assert found[1] == NodeTime("/stages/stages.0/stages.0.1/Linear", 1.0)
    assert slot_times_ms(found, [("stages.0",), ("stages.1",)]) == (2.0, 1.0)


def test_a_worker_measures_a_network_on_its_device(network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole job: the fake GPU's probe in place of the real one's, with the tiny network on it."""
    import io
    import json

    from nas.runtimes.torch_eager import TorchEager
    from tests.nas.fake_cuda import FakeCuda
    from tests.nas.measure.fake_gpu import FakeGraphs

    gpu = FakeGpu(FakeNvml(joules=[1.0]))
    runtime = TorchEager(load_network=load_tiny_network, graphs=lambda _: FakeGraphs(gpu), cuda=FakeCuda())
    probe = CudaProbe("cuda:0", library=gpu, load_network=load_tiny_network)
    monkeypatch.setattr("nas.measure.worker.load_runtime", lambda _: runtime)
    monkeypatch.setattr("nas.measure.worker.probe_of", lambda _: probe)
    deployment = Deployment("torch", "fp16", 1, device="cuda:0")
    results = io.StringIO()
    job = Job(
        models=(JobModel(3, network, deployment),), placement=deployment.placement, reference=None,
        seconds_per_model=0.05, node_seconds=0.01,
    )  # fmt: skip
    work(job, results)
    answer = json.loads(results.getvalue())
    timing = answer["timing"]
    assert answer["index"] == 3
    assert timing["p50_ms"] > 0
    assert timing["reference_p50_ms"] > timing["p50_ms"], "the reference of the GPU, which is larger than this network"
    assert timing["energy_mj"] == 0.0
    assert timing["device_ms"] > 0
    assert len(timing["nodes"]) > 0


# NVML itself, with a fake library


class NVMLError(Exception):
    pass


class NotFoundError(NVMLError):
    pass


def library(**answers: Any) -> SimpleNamespace:
    def asked(answer: Any) -> Any:
        def ask(*_: Any) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

        return ask

    names = ("TotalEnergyConsumption", "ClockInfo", "CurrentClocksThrottleReasons", "ComputeRunningProcesses",
             "ProcessUtilization", "PowerUsage", "EnforcedPowerLimit", "MaxClockInfo", "Temperature", "EccMode",
             "MigMode")  # fmt: skip
    found = {f"nvmlDeviceGet{name}": asked(answers.get(name, NVMLError("not supported"))) for name in names}
    return SimpleNamespace(
        NVMLError=NVMLError, NVMLError_NotFound=NotFoundError, NVML_CLOCK_SM=1, NVML_CLOCK_MEM=2,
        nvmlSystemGetDriverVersion=asked(answers.get("DriverVersion", NVMLError("not supported"))), **found,
    )  # fmt: skip


def test_nvml_is_read() -> None:
    processes = [SimpleNamespace(pid=5), SimpleNamespace(pid=6)]
    samples = [SimpleNamespace(pid=5, smUtil=0), SimpleNamespace(pid=6, smUtil=30)]
    told = PyNvml(
        library(
            TotalEnergyConsumption=2500, ClockInfo=1410, CurrentClocksThrottleReasons=0x20 | 0x1 | 0x4,
            ComputeRunningProcesses=processes, ProcessUtilization=samples,
        ),
        None,
    )  # fmt: skip
    assert told.energy_j() == 2.5
    assert told.clock_mhz() == 1410
    assert told.slowdown() == "thermal slowdown by the driver"
    assert told.processes() == {5, 6}
    assert told.busy_since(0) == {6}


def test_the_state_of_a_gpu_is_in_the_units_that_it_says() -> None:
    told = PyNvml(
        library(
            DriverVersion="580.1", ClockInfo=1410, MaxClockInfo=1980, Temperature=55, PowerUsage=312_500,
            EnforcedPowerLimit=700_000, CurrentClocksThrottleReasons=0x80,
            ComputeRunningProcesses=[SimpleNamespace(pid=5)],
            EccMode=[1, 1], MigMode=[0, 0],
        ),
        None,
    ).state()  # fmt: skip
    assert told == GpuState(
        driver="580.1", clock_mhz=1410, max_clock_mhz=1980, memory_clock_mhz=1410, temperature_c=55, power_w=312.5,
        power_limit_w=700.0, slowdown="power brake", processes=1, ecc=True, mig=False,
    )  # fmt: skip


def test_what_nvml_does_not_tell_is_none() -> None:
    silent = PyNvml(library(), None)
    assert set(asdict(silent.state()).values()) == {None}
    assert (silent.energy_j(), silent.clock_mhz(), silent.slowdown(), silent.processes()) == (None, None, None, None)
    assert silent.busy_since(0) is None
    assert PyNvml(library(ProcessUtilization=NotFoundError()), None).busy_since(0) == frozenset()
    idle = PyNvml(library(CurrentClocksThrottleReasons=0x1 | 0x2 | 0x4), None)
    assert idle.slowdown() is None, "idle, set by an administrator, at the power limit"


def test_without_the_package_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nas.measure.devices.nvml.find_spec", lambda _: None)
    assert nvml_of("GPU-1") == "the package nvidia-ml-py is not installed"
    assert why_no_energy() == CpuProbe(1).why_no_energy()
