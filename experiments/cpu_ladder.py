"""The gap between eager PyTorch and a searched network on a processor, step by step.

`python -m experiments.cpu_ladder --out ladder` times ResNet-50 (random weights, one image of 224 px) on this machine:
eager PyTorch in fp32, compiled (ONNX Runtime and OpenVINO in fp32, and torch.compile where there is a compiler), bf16,
int8 (calibrated on random inputs: its speed counts, its outputs do not), and then a network that was searched. Give the
latter with `--network`, a bundle or NAME.network.json; without one, an untrained network of the space `mixed` stands
for it. Each step is timed in fresh sessions by `nas.measure`. It writes `ladder.md` and `ladder.json`.
"""

import argparse
import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from experiments.operator_tables import p50_ms, processor
from experiments.stand_in import NAME, SIZE, stand_in
from nas.bench.models import BenchModel, read_model
from nas.bench.preparing import ModelFiles, path_or_reason, untrained
from nas.data.images import image_input
from nas.deployment import Deployment
from nas.measure.host import threads_here
from nas.measure.measurement import MeasureRequest
from nas.measure.protocol import measure
from nas.networks.description import NetworkDescription, save_network
from nas.runtimes import load_runtime
from search_spaces.modules import set_norm_statistics

SESSIONS, SECONDS = 3, 1.0
STEPS = (("onnxruntime", "fp32"), ("openvino", "fp32"), ("openvino", "bf16"), ("onnxruntime", "int8"),
         ("openvino", "int8"))  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One rung."""

    network: str
    how: str
    p50_ms: float | None
    spread_pct: float | None
    """Between fresh sessions; None for a single process."""
    disturbed: bool
    why_not: str | None
    """Reason why there is no figure."""


def ladder(resnet: BenchModel, searched: BenchModel, threads: int, folder: Path, seconds: float) -> list[Step]:
    """All steps of both networks, the slowest kind first."""
    steps = [_eager(resnet, threads, seconds), _compiled(resnet, threads, seconds)]
    requests, planned = list[MeasureRequest](), list[tuple[str, str, str | None]]()
    for number, model in enumerate((resnet, searched)):
        files = ModelFiles(model, folder / str(number))
        for runtime, precision in STEPS:
            reason = load_runtime(runtime).unsupported(precision)
            deployment = Deployment(runtime, precision, threads)
            file = reason if reason is not None else path_or_reason(files, deployment)
            planned.append((model.name, deployment.name, file if isinstance(file, str) else None))
            if isinstance(file, Path):
                requests.append(MeasureRequest(file, deployment))
    measured = iter(measure(requests, sessions=SESSIONS, seconds_per_model=seconds, repeat_s=30.0))
    for name, how, why_not in planned:
        if why_not is not None:
            steps.append(_nothing(name, how, why_not))
            continue
        found = next(measured)
        if found.failed is not None:
            steps.append(_nothing(name, how, found.failed))
            continue
        steps.append(
            Step(
                network=name,
                how=how,
                p50_ms=found.p50_ms,
                spread_pct=found.between_session_spread_pct,
                disturbed=found.verdict != "quiet",
                why_not=None,
            )
        )
    return steps


def _nothing(network: str, how: str, why_not: str) -> Step:
    return Step(network=network, how=how, p50_ms=None, spread_pct=None, disturbed=False, why_not=why_not)


def _in_one_process(network: str, how: str, found_ms: float) -> Step:
    return Step(network=network, how=how, p50_ms=found_ms, spread_pct=None, disturbed=False, why_not=None)


def _network_of(model: BenchModel) -> torch.nn.Module:
    assert model.torchvision is not None
    return untrained(model.torchvision, model.input)[0]


def _eager(model: BenchModel, threads: int, seconds: float) -> Step:
    torch.set_num_threads(threads)
    network, given = _network_of(model), torch.from_numpy(model.input.draw(np.random.default_rng(0), 1))
    with torch.inference_mode():
        found = p50_ms(lambda: network(given), seconds * SESSIONS)
    return Step(
        network=model.name, how="torch eager fp32", p50_ms=found, spread_pct=None, disturbed=False, why_not=None
    )


def _compiled(model: BenchModel, threads: int, seconds: float) -> Step:
    how = "torch.compile fp32"
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        return _nothing(model.name, how, "there is no C++ compiler, which torch.compile needs on a processor")
    torch.set_num_threads(threads)
    network, given = _network_of(model), torch.from_numpy(model.input.draw(np.random.default_rng(0), 1))
    try:
        with torch.no_grad():
            compiled = torch.compile(network)
            found = p50_ms(lambda: compiled(given), seconds * SESSIONS)
    except Exception as error:  # noqa: BLE001  # whatever its compilers run into
        return _nothing(model.name, how, str(error).strip().partition("\n")[0])
    return _in_one_process(model.name, how, found)


def save_stand_in(folder: Path) -> Path:
    """The file of `experiments.stand_in`'s network."""
    space, arch = stand_in()
    description = NetworkDescription.of_architecture(space, arch, SIZE)
    torch.manual_seed(0)
    network = description.build()
    set_norm_statistics(network, description.signature.input.draw_torch(4))
    folder.mkdir(parents=True, exist_ok=True)
    save_network(network.eval(), description, folder / "stand-in.network.json")
    return folder / "stand-in.network.json"


def markdown(steps: Sequence[Step], device: str, threads: int) -> str:
    """A table for each network, each step beside the first one."""
    lines = [f"Measured on {device}, {threads} threads, one image per call.", ""]
    lines += [
        "| network | step | p50 ms | between sessions % | times as fast as the first step |",
        "|---|---|---|---|---|",
    ]
    first = next((s.p50_ms for s in steps if s.p50_ms is not None), None)
    notes = []
    for step in steps:
        if step.p50_ms is None or first is None:
            notes.append(f"Not measured: {step.network}, {step.how}: {step.why_not}.")
            continue
        mark = " *" if step.disturbed else ""
        spread = "-" if step.spread_pct is None else f"{step.spread_pct:.1f}"
        lines.append(
            f"| {step.network} | {step.how} | {step.p50_ms:.3g}{mark} | {spread} | {first / step.p50_ms:.3g} |"
        )
    if any(step.disturbed for step in steps):
        notes.append("* a session stayed disturbed, also when repeated.")
    return "\n".join([*lines, "", *notes]) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("cpu-ladder"), help="Files OUT.md and OUT.json.")
    parser.add_argument("--network", help="The searched network: a bundle, RUN#k or NAME.network.json.")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="Of each step and session.")
    given = parser.parse_args(arguments)
    threads, begun = threads_here(None), time.perf_counter()
    with TemporaryDirectory(prefix="ladder-") as place:
        folder = Path(place)
        resnet = BenchModel(name="ResNet-50, 224 px", input=image_input(224), torchvision="resnet50")
        searched = read_model(given.network or str(save_stand_in(folder / "stand-in")), None)
        side = searched.input.shape[-1]
        name = f"{given.network}, {side} px" if given.network else NAME
        searched = BenchModel(
            name=name, input=searched.input, onnx=searched.onnx, network=searched.network, delivered=searched.delivered
        )
        steps = ladder(resnet, searched, threads, folder, given.seconds)
    document = {
        "device": processor(), "threads": threads, "seconds": time.perf_counter() - begun,
        "steps": [asdict(step) for step in steps],
    }  # fmt: skip
    given.out.with_suffix(".json").write_text(json.dumps(document, indent=1), encoding="utf-8")
    given.out.with_suffix(".md").write_text(markdown(steps, processor(), threads), encoding="utf-8")
    print(f"wrote {given.out.with_suffix('.md')} and {given.out.with_suffix('.json')}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
