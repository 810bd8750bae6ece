"""Profiling a device that has no torch: a zip of networks and one script goes there, one JSON file comes back."""

import json
import zipfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from math import isfinite, nan
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from nas.deployment import CPU, Deployment
from nas.errors import UserError
from nas.files.writing import staged_file
from nas.machine import parse_meminfo
from nas.measure.block_times import slot_times_ms
from nas.measure.host import HostFingerprint, isa_of_interest, parse_cpu_identity
from nas.measure.protocol import REFERENCE_TOLERANCE
from nas.measure.reference import reference_model
from nas.measure.statistics import spread_pct
from nas.progress import Progress
from nas.runtimes import deployments_here, load_runtime
from nas.runtimes.cpu import parse_cpu_flags
from nas.runtimes.devices import execution_providers
from nas.runtimes.nodes import NodeTime
from nas.targets.held_out import held_out_error
from nas.targets.preparing import OUTPUT_SIZE, deploy_untrained, networks_to_measure
from nas.targets.profile import FAILED, DeploymentTable, DeviceProfile, NetworkTiming
from nas.tasks import tries_dynamic_int8
from predictors.block_transfer import MIN_WITH_PRIOR
from search_spaces import Architecture, architecture_of_json, resolve_space, space_of
from search_spaces.architecture import Option

if TYPE_CHECKING:
    from torch import nn

RUNTIME = "onnxruntime"
KIT_SPACES = ("mixed", "mobile", "dense")
"""Spaces of a kit's networks where none is asked for: those of small images are left out, since a kit travels."""
SCHEMA = 1


def export_kit(
    path: Path, archs: Sequence[Architecture], precisions: Sequence[str], *, batch: int, progress: Progress
) -> None:
    """Write a kit with the networks of `archs` in each of ONNX Runtime's `precisions` to the zip file `path`.

    Raises `UserError` where ONNX Runtime has no such precision or the file cannot be written.
    """
    runtime = load_runtime(RUNTIME)
    offered = [p for p in runtime.precisions if runtime.unsupported(p) is None]
    unknown = [p for p in precisions if p not in offered]
    if unknown:
        raise UserError(
            f"a kit is measured with {RUNTIME} on the CPU, which has no {unknown[0]}",
            f"choose from {', '.join(offered)}",
        )
    if path.is_dir():
        raise UserError(f"cannot write the kit {path}: it is a folder", "name a file in it, such as kit.zip")
    reference = reference_model()
    if reference is None:
        raise UserError("a kit needs onnx and onnxruntime to be made", "pip install onnx onnxruntime")
    entries = []
    try:
        with (
            staged_file(path) as staged,
            zipfile.ZipFile(staged, "w", zipfile.ZIP_DEFLATED) as kit,
            progress.stage("exporting networks", total=len(archs)) as bar,
        ):
            kit.writestr("measure.py", (files("nas.targets") / "kit_measure.py").read_text())
            kit.write(reference, "reference.onnx")
            for i, arch in enumerate(archs):
                names = {p: f"{i}.{p}.onnx" for p in precisions}
                _write_network(kit, arch, names, batch, seed=i)
                entries.append({"architecture": space_of(arch).to_json(arch), "files": names})
                bar.advance(1)
            manifest = {
                "schema": SCHEMA,
                "output_size": OUTPUT_SIZE,
                "batch": batch,
                "providers": execution_providers(CPU),
                "networks": entries,
            }
            kit.writestr("kit.json", json.dumps(manifest))
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}", "choose another place") from error


def export_random_networks(
    path: Path,
    *,
    progress: Progress,
    networks: int,
    batch: int = 1,
    runtimes: Sequence[str] = (),
    precisions: Sequence[str] = (),
    spaces: Sequence[str] = (),
    allowed: Mapping[str, Sequence[Option]] | None = None,
    threads: Sequence[int] = (),
    budget_s: float = 0.0,
) -> None:
    """`export_kit` with random networks, by the options of a profile; time and threads are the device's affair."""
    del threads, budget_s
    if set(runtimes) - {RUNTIME}:
        raise UserError(f"a kit is measured with {RUNTIME} alone", "leave out --runtime")
    chosen_spaces = [resolve_space(reference) for reference in spaces or KIT_SPACES]
    archs = networks_to_measure(chosen_spaces, networks, 0, allowed)
    products = all(tries_dynamic_int8(space.task) for space in chosen_spaces)
    chosen = precisions or [d.precision for d in deployments_here(1, [RUNTIME], dynamic_int8=products)]
    export_kit(path, archs, chosen, batch=batch, progress=progress)


def import_result(name: str, path: Path) -> DeviceProfile:
    """The profile in what a kit's script wrote. Raises `UserError` for a file that is no such result, one of another
    version, and one with too few networks that could be measured."""
    try:
        result = json.loads(path.read_text())
        if result["schema"] != SCHEMA:
            raise UserError(
                f"{path} is of schema {result['schema']}, not {SCHEMA}",
                "export a kit with this version and run its measure.py on the device",
            )
        networks, size = result["kit"]["networks"], tuple(map(int, result["kit"]["output_size"]))
        if not all(0 < length < 2**31 for length in size):
            raise ValueError(f"an answer of the size {size}")
        if not result["sessions"]:
            raise ValueError("no session was finished")
        archs = [architecture_of_json(n["architecture"]) for n in networks]
        for arch in archs:
            space_of(arch).signature(arch, size)  # raises ValueError for an answer that these networks cannot give
        host, threads, batch = _host(result["host"]), int(result["threads"]), int(result["batch"])
        precisions = sorted(networks[0]["files"])
        tables = [_table(result, Deployment(RUNTIME, p, threads, batch), archs) for p in precisions]
        disturbed, failures = _disturbed(result["sessions"]), _failures(result["sessions"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise UserError(
            f"{path} is not the result of a kit: {type(error).__name__}: {error}",
            "run the kit's measure.py on the device and bring its result.json",
        ) from error
    if max(table.measured for table in tables) < MIN_WITH_PRIOR:
        raise UserError(
            f"too few networks could be measured on the device of {path}: {failures[0] if failures else 'it had few'}",
            "run the kit's measure.py on the device again, with another --out",
        )
    profile = DeviceProfile(
        name=name,
        description=f"measured by a kit on {host.cpu_model}",
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        fingerprint=host,
        networks=tuple(archs),
        output_size=size,
        tables=tuple(tables),
        sessions=len(result["sessions"]),
        disturbed=disturbed,
        energy_not_measured="a kit's script reads no energy counters",
    )
    for table in profile.tables:
        profile = profile.with_held_out(table.deployment, held_out_error(profile, table.deployment))
    return profile


def _write_network(kit: zipfile.ZipFile, arch: Architecture, names: Mapping[str, str], batch: int, seed: int) -> None:
    deployments = [Deployment(RUNTIME, precision, threads=1, batch=batch) for precision in names]
    with TemporaryDirectory(prefix="nas-kit-") as temporary:
        files = deploy_untrained(arch, deployments, Path(temporary), seed, changed=repeat_weights)
        for file, name in zip(files, names.values(), strict=True):
            kit.write(file.path, name)


def repeat_weights(network: "nn.Module") -> None:
    """Give all outputs of a layer the same random weights but for their sign, in place.

    Speed does not depend on the values, and repetitions compress: a kit of a gigabyte becomes one of some megabytes.
    """
    import torch
    from torch import nn

    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                weight = module.weight
                signs = torch.randint(0, 2, (len(weight), *[1] * (weight.ndim - 1))) * 2 - 1
                weight.copy_(weight[:1] * signs)


def _host(document: Mapping[str, Any]) -> HostFingerprint:
    model, family = parse_cpu_identity(document["cpuinfo"])
    return HostFingerprint(
        cpu_model=model or document["processor"],
        cpu_family=family,
        isa=isa_of_interest(parse_cpu_flags(document["cpuinfo"])),
        cores=int(document["cores"]),
        quota_cores=document.get("quota_cores"),
        governor=document["governor"],
        memory_bytes=parse_meminfo(document["memory"]),
        os=document["os"],
        python=document["python"],
        packages=tuple((name, version) for name, version in document["packages"]),
    )


def _table(result: Mapping[str, Any], deployment: Deployment, archs: Sequence[Architecture]) -> DeploymentTable:
    rows = [[session[f"{i}/{deployment.precision}"] for session in result["sessions"]] for i in range(len(archs))]
    timings = [_timing(arch, row) for arch, row in zip(archs, rows, strict=True)]
    share = float(result["seconds"]) / len(result["kit"]["networks"][0]["files"])
    return DeploymentTable(deployment, tuple(timings), None, share)


def _timing(arch: Architecture, answers: Sequence[Mapping[str, Any]]) -> NetworkTiming:
    """A network's timing from the script's answer in each session."""
    if any("failed" in answer for answer in answers):
        return FAILED
    times = [_positive(answer["p50_ms"]) for answer in answers]
    places = space_of(arch).slot_places(arch)
    nodes = [[NodeTime(n, float(ms)) for n, ms in answer["nodes"]] for answer in answers]
    slots = [slot_times_ms(of_session, places) for of_session in nodes] if places is not None else []
    return NetworkTiming(
        latency_ms=median(times),
        reference_ms=median(_positive(answer["reference_p50_ms"]) for answer in answers),
        spread_pct=spread_pct(times),
        block_ms=tuple(float(v) for v in np.mean(slots, axis=0)) if slots else (),
        memory_bytes=max(
            (float(m) for answer in answers if (m := answer.get("memory_bytes")) is not None), default=nan
        ),
    )


def _positive(latency_ms: Any) -> float:
    """Raises `ValueError` for what no clock can have said."""
    if not (isfinite(latency_ms) and latency_ms > 0):
        raise ValueError(f"a latency of {latency_ms} ms")
    return float(latency_ms)


def _failures(sessions: Sequence[Mapping[str, Mapping[str, Any]]]) -> list[str]:
    """Reasons why networks could not be measured, in the order of the sessions."""
    return [str(answer["failed"]) for session in sessions for answer in session.values() if "failed" in answer]


def _disturbed(sessions: Sequence[Mapping[str, Mapping[str, Any]]]) -> int:
    """Networks beside which the reference network ever was much slower than at its best: the device was busy then."""
    references: dict[str, list[float]] = {}
    for session in sessions:
        for task, answer in session.items():
            if "failed" not in answer:
                references.setdefault(task, []).append(float(answer["reference_p50_ms"]))
    best = min((min(times) for times in references.values()), default=nan)
    return sum(max(times) > (1 + REFERENCE_TOLERANCE) * best for times in references.values())
