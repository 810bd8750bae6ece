"""A device with a known latency function, as a profile: for tests of everything that only predicts."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from nas.deployment import Deployment
from nas.measure.host import fingerprint
from nas.measure.job import SessionTiming
from nas.measure.measurement import Measurement, MeasureRequest, summarise
from nas.targets.preparing import ALL_SPACES, networks_to_measure
from nas.targets.profile import DeploymentTable, DeviceProfile, NetworkTiming
from search_spaces import Architecture, resolve_space, space_of

FP32 = Deployment("onnxruntime", "fp32", 2)
INT8 = Deployment("onnxruntime", "int8", 2)


def true_latency_ms(costs: dict[str, np.ndarray], speed: float) -> np.ndarray:
    """Additive and smooth, like a device without surprises."""
    return (0.05 + 8e-9 * costs["macs"] + 2e-8 * costs["activations"] + 0.004 * costs["layers"]) / speed


def fake_measurements(archs: Sequence[Architecture], deployments: Sequence[Deployment]) -> list[list[Measurement]]:
    """What `nas.targets.profiling.measure_networks` would return on the fake device, where pauses of calls cost."""
    rows = []
    for arch in archs:
        space = space_of(arch)
        costs = space.costs(space.choices([arch]), (10,))
        row = []
        for deployment in deployments:
            ms = float(true_latency_ms(costs, 2.0 if deployment.precision == "int8" else 1.0)[0])
            if deployment.interval_ms:
                ms = 0.3 + 1.2 * ms + 1e-8 * float(costs["params"][0])
            timing = SessionTiming(
                p50_ms=ms, p90_ms=ms, p99_ms=ms, calls=9, reference_p50_ms=1.0, load_ms=1.0, memory_bytes=1000,
                cpu_share=1.0, disturbance=None,
            )  # fmt: skip
            row.append(summarise(MeasureRequest(Path("network.onnx"), deployment), [timing], None, 1.0))
        rows.append(row)
    return rows


def fake_profile(
    name: str = "fake", networks: int = 40, *, host: bool = True, spaces: Sequence[str] = ALL_SPACES, batch: int = 1,
    threads: int = FP32.threads,
) -> DeviceProfile:  # fmt: skip
    """Latencies of random networks on the fake device; int8 is twice as fast as fp32. More images of a call take as
    many times as long, and more threads no less."""
    archs = networks_to_measure([resolve_space(name) for name in spaces], networks, 0, None)
    tables = []
    for deployment, speed in ((FP32, 1.0), (INT8, 2.0)):
        latency = []
        for arch in archs:
            space = space_of(arch)
            latency.append(batch * float(true_latency_ms(space.costs(space.choices([arch]), (10,)), speed)[0]))
        timings = tuple(NetworkTiming(ms, 1.0, 1.0, memory_bytes=1e6) for ms in latency)
        tables.append(DeploymentTable(replace(deployment, batch=batch, threads=threads), timings, None, 1.0))
    here = fingerprint()
    # No host's: "avx" alone is never among the instruction sets of a fingerprint.
    other = replace(here, cpu_model="another processor", isa=("avx", "avx2"))
    return DeviceProfile(
        name=name,
        description="a device with a known latency function",
        created="2026-01-01T00:00:00+00:00",
        fingerprint=here if host else other,
        networks=tuple(archs),
        output_size=(10,),
        tables=tuple(tables),
        sessions=1,
    )


def save_fake_profile(cache: Path, profile: DeviceProfile) -> None:
    """Where `load_target` finds it when `XDG_CACHE_HOME` is `cache`."""
    profile.save(cache / "nas" / "profiles" / f"{profile.name}.json")
