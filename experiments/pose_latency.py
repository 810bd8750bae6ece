"""What points cost: pose networks beside the same detectors, and beside the shapes of published pose networks.

    python -m experiments.pose_latency prepare --out FOLDER
    python -m experiments.pose_latency measure --out FOLDER

The first command exports and quantises networks with random weights; the second times them, and should have the machine
for itself. Pairs are random networks of `pose` and the networks of `detect` that have the same decisions but for those
of the third tower. Latencies are of networks alone, at batch 1; nothing is trained.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import torch

from experiments.pose_shapes import YoloNasPoseNShape, YoloV8nPoseShape
from nas.data.images import image_input
from nas.deploy.onnx import export_onnx
from nas.deployment import Deployment
from nas.measure.measurement import MeasureRequest
from nas.measure.protocol import measure
from nas.runtimes import load_runtime
from nas.targets.preparing import CALIBRATION_INPUTS, deploy_untrained, new_folder, prepare_all
from search_spaces import Architecture, load_search_space
from search_spaces.modules import set_norm_statistics

PLAN = "plan.json"
SHAPES = {"YOLOv8n-pose shape": YoloV8nPoseShape, "YOLO-NAS-Pose-N shape": YoloNasPoseNShape}
KINDS = (("onnxruntime", "fp32"), ("openvino", "bf16"), ("openvino", "int8"))


def deployments(threads: int) -> list[Deployment]:
    """Those of `KINDS` that this machine has."""
    found = [Deployment(runtime, precision, threads) for runtime, precision in KINDS]
    return [d for d in found if load_runtime(d.runtime).unsupported(d.precision) is None]


def detector_of(pose: Architecture) -> Architecture:
    """The network of `detect` with the same decisions."""
    space, detect = load_search_space("pose"), load_search_space("detect")
    options = {name: option for name, option in space.parameters(pose).items() if not name.startswith("pose.")}
    return detect.from_json({"space": "detect", "decisions": options})


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """One file to time."""

    name: str
    role: str
    path: str
    runtime: str
    precision: str


def prepare_network(name: str, role: str, arch: Architecture, folder: Path, kinds: list[Deployment]) -> list[Prepared]:
    size = (1, 17) if arch.space == "pose" else (1,)
    return _named(name, role, deploy_untrained(arch, kinds, new_folder(folder), 0, size))


def prepare_shape(name: str, resolution: int, folder: Path, kinds: list[Deployment]) -> list[Prepared]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network, input = SHAPES[name](), image_input(resolution)
        inputs = input.draw_torch(CALIBRATION_INPUTS)
        set_norm_statistics(network, inputs)
    new_folder(folder)
    model = export_onnx(network.eval(), input, folder / "model.onnx", 1)
    return _named(f"{name} {resolution} px", "shape", prepare_all(model, kinds, folder, inputs.numpy()))


def _named(name: str, role: str, requests: list[MeasureRequest]) -> list[Prepared]:
    return [
        Prepared(name=name, role=role, path=str(r.path), runtime=r.deployment.runtime, precision=r.deployment.precision)
        for r in requests
    ]


@click.group()
def main() -> None:
    """Time pose networks."""


@main.command()
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--pairs", default=100, show_default=True)
@click.option("--quantised", default=25, show_default=True, help="The first pairs, in int8 too: that takes longest.")
@click.option("--resolution", default=320, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--threads", default=2, show_default=True)
def prepare(out: Path, pairs: int, quantised: int, resolution: int, seed: int, threads: int) -> None:
    """Export and quantise."""
    out.mkdir(parents=True)
    every, space = deployments(threads), load_search_space("pose").restrict("resolution", [resolution])
    plan: list[Prepared] = []
    for number, row in enumerate(space.sample(pairs, np.random.default_rng(seed))):
        kinds = every if number < quantised else [kind for kind in every if kind.precision != "int8"]
        arch = space.architecture(row)
        plan += prepare_network(str(number), "pose", arch, out / f"{number}-pose", kinds)
        plan += prepare_network(str(number), "detector", detector_of(arch), out / f"{number}-detector", kinds)
    for number, name in enumerate(SHAPES):
        for side in (resolution, 640):
            plan += prepare_shape(name, side, out / f"shape-{number}-{side}", every)
    document = {"threads": threads, "files": [_plain(one) for one in plan]}
    (out / PLAN).write_text(json.dumps(document), encoding="utf-8")


@main.command("measure")
@click.option("--out", type=click.Path(exists=True, path_type=Path), required=True)
@click.option("--sessions", default=1, show_default=True)
@click.option("--seconds", default=0.3, show_default=True, help="Of each network and session.")
def measure_all(out: Path, sessions: int, seconds: float) -> None:
    """Time what was prepared; prints a JSON object for each runtime and precision."""
    document = json.loads((out / PLAN).read_text(encoding="utf-8"))
    plan = [Prepared(**entry) for entry in document["files"]]
    requests = [MeasureRequest(Path(p.path), Deployment(p.runtime, p.precision, document["threads"])) for p in plan]
    found = measure(requests, sessions=sessions, seconds_per_model=seconds, repeat_s=30.0)
    for kind in dict.fromkeys((p.runtime, p.precision) for p in plan):
        here = [(p, m) for p, m in zip(plan, found, strict=True) if (p.runtime, p.precision) == kind]
        times = {(p.name, p.role): m.drift_corrected_p50_ms for p, m in here}
        ratios = [times[name, "pose"] / times[name, "detector"] for name, role in times if role == "pose"]
        print(
            json.dumps(
                {
                    "deployment": " ".join(kind),
                    "pairs": len(ratios),
                    "points cost, median %": 100 * (float(np.median(ratios)) - 1),
                    "quartiles %": [100 * (float(q) - 1) for q in np.quantile(ratios, (0.25, 0.75))],
                    "pose p50 ms, median": float(np.median([t for (_, role), t in times.items() if role == "pose"])),
                    **{f"{name} p50 ms": t for (name, role), t in times.items() if role == "shape"},
                    "disturbed": sum(m.verdict != "quiet" for _, m in here),
                }
            ),
            flush=True,
        )


def _plain(one: Prepared) -> dict[str, str]:
    return {name: str(getattr(one, name)) for name in ("name", "role", "path", "runtime", "precision")}


if __name__ == "__main__":
    main()
