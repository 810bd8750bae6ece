"""Where the time of a network goes, block by block: `nas bench --blocks`."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from nas.bench.models import BenchModel
from nas.bench.preparing import REFUSALS, untrained
from nas.deploy.onnx import export_onnx
from nas.deployment import Deployment
from nas.errors import UserError
from nas.measure.block_times import slot_times_ms
from nas.measure.measurement import Measurement, MeasureRequest
from nas.measure.protocol import measure
from nas.networks.description import load_network
from nas.networks.units import Unit, chain, places, units_of
from nas.progress import Progress
from nas.runtimes import load_runtime

if TYPE_CHECKING:
    from torch import nn

CALIBRATION_INPUTS = 16
SECONDS, PROFILED_S = 0.02, 0.3
"""Seconds of timing the whole network and of timing its operators one by one, which is what counts here."""


def bench_blocks(
    models: Sequence[BenchModel], deployments: Sequence[Deployment], progress: Progress
) -> list[dict[str, Any]]:
    """For each network its units, and their times in each deployment by the runtime's own profiler.

    A network that cannot be taken apart is an entry with the reason.
    """
    found = []
    with progress.stage("timing blocks", total=len(models)) as bar:
        for model in models:
            try:
                found.append(_blocks(model, deployments))
            except REFUSALS as error:
                why = str(error).strip().partition("\n")[0] or type(error).__name__
                found.append({"model": model.name, "not_split": why, "units": [], "deployments": []})
            bar.advance(1)
    return found


def _blocks(model: BenchModel, deployments: Sequence[Deployment]) -> dict[str, Any]:
    from search_spaces.modules import folded

    network = folded(_network(model))
    units = units_of(network, model.input.draw_torch(2))
    with TemporaryDirectory(prefix="nas-blocks-") as folder:
        file = export_onnx(chain(units), model.input, Path(folder) / "model.onnx")
        calibration = model.input.draw_torch(CALIBRATION_INPUTS).numpy()
        requests = []
        for deployment in deployments:
            with suppress(*REFUSALS):  # the cell of the same deployment says why it cannot be made
                prepared = load_runtime(deployment.runtime).prepare(
                    file, deployment.precision, Path(folder), calibration
                )
                requests.append(MeasureRequest(prepared, deployment))
        measured = measure(requests, sessions=1, seconds_per_model=SECONDS, node_seconds=PROFILED_S)
    return {
        "model": model.name,
        "not_split": None,
        "units": [_unit_document(unit) for unit in units],
        "deployments": [entry for m in measured if (entry := _times(m, units)) is not None],
    }


def _network(model: BenchModel) -> "nn.Module":
    if model.network is not None:
        return load_network(model.network)
    if model.torchvision is not None:
        return untrained(model.torchvision, model.input)[0]
    raise UserError(
        f"{model.name} is a graph without its network, so its blocks are not known", "name the network, not its file"
    )


def _unit_document(unit: Unit) -> dict[str, Any]:
    return {
        "name": unit.name,
        "input_shape": list(unit.input_shape[1:]),
        "output_shape": list(unit.output_shape[1:]),
        "macs": unit.macs,
        "params": unit.params,
    }


def _times(measured: Measurement, units: Sequence[Unit]) -> dict[str, Any] | None:
    """The units' milliseconds in one deployment; None where its runtime does not time operators."""
    nodes = measured.sessions[0].nodes if measured.sessions else ()
    if not nodes:
        return None
    named = places(units)
    seen = {scope for node in nodes for scope in node.name.split("/")}
    if not seen & set(named):
        return None  # the runtime has names of its own for all of them
    times_ms = slot_times_ms(nodes, [[place] for place in named])
    deployment = measured.request.deployment
    return {
        "runtime": deployment.runtime,
        "precision": deployment.precision,
        "runs_on": deployment.device,
        "ms": [ms if place in seen else None for place, ms in zip(named, times_ms, strict=True)],
    }
