"""The machine's ceiling in a runtime: the fastest of a few large products, and how fast a map can be moved.

Measured with the runtime itself, by its own profiler and in the worker process that also times networks, so that a
block is compared with what the same library reaches on the same cores. Kept in the user's cache by the host's
fingerprint: other versions of the runtime, threads or processors are measured anew.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nas.advice.graph import PRODUCTS, bytes_of, read_graph
from nas.advice.parts import Part
from nas.advice.placing import Operator, placed
from nas.advice.table import Ceiling
from nas.deployment import Deployment
from nas.errors import UserError
from nas.files.cache import user_cache
from nas.files.writing import write_json
from nas.measure.host import fingerprint
from nas.measure.job import SessionTiming
from nas.measure.measurement import QUIET, Measurement, MeasureRequest
from nas.measure.protocol import measure
from nas.runtimes import load_runtime
from nas.runtimes.nodes import NodeTime

SCHEMA = 2
CHAINS = (8, 40)
"""Lengths of chains of small convolutions, and of operators that compute next to nothing. By how much longer the second
of a kind takes under the profiler than without it is what the profiler adds to the operators in between, or leaves out;
what the first would take without any of its operators is a call's own time."""
SMALL = (16, 8)
"""Channels, and rows and columns, of the maps of the small convolutions: a few microseconds each."""
PRODUCTS_OF = ((128, 128, 3), (128, 512, 1), (512, 512, 1), (512, 256, 1), (256, 256, 3))
"""(channels in, channels out, kernel) of a chain of convolutions on maps of `SIDE`: of the kind that networks for small
devices have, and large enough for any processor's best kernels."""
SIDE = 28
COPY = (1, 64, 64, 64)
"""Shape of the map that is moved: 1 MB in fp32, as those of networks are."""
SECONDS, PROFILED_S, SESSIONS, REPEAT_S = 0.05, 0.2, 2, 5.0
"""Seconds of timing each network without the profiler and with it; fresh sessions; seconds to repeat disturbed ones."""
CALIBRATION_INPUTS = 4


def ceilings(deployments: Sequence[Deployment], folder: Path) -> dict[Deployment, Ceiling]:
    """The ceiling of each deployment, from the cache or measured now; unknown for a device other than the CPU, and
    where the runtime cannot be asked.

    Args:
        deployments: of any batch.
        folder: where the files of the measured products are written.
    """
    found: dict[Deployment, Ceiling] = {}
    todo = list[Deployment]()
    for deployment in dict.fromkeys(deployments):
        known = _read(_path(deployment))
        if known is not None:
            found[deployment] = known
        elif deployment.device == "cpu":
            todo.append(deployment)
    if todo:
        found |= _measured(todo, folder)
    return {d: found.get(d, Ceiling.unknown()) for d in deployments}


def joined(found: Sequence[Ceiling]) -> Ceiling:
    """One ceiling with the products of several: an int8 network also runs layers in other precisions.

    What the profiler adds and a call takes beside its operators are those of the first, the deployment's own.
    """
    rates: dict[str, float] = {}
    for ceiling in found:
        for precision, rate in ceiling.gmacs_per_s.items():
            rates[precision] = max(rate, rates.get(precision, 0.0))
    traffic = [c.gb_per_s for c in found if math.isfinite(c.gb_per_s)]
    first = found[0] if found else Ceiling.unknown()
    return Ceiling(rates, max(traffic, default=math.nan), first.profiler_ms, first.outside_ms)


def _measured(deployments: Sequence[Deployment], folder: Path) -> dict[Deployment, Ceiling]:
    product, copy = folder / "product.onnx", folder / "copy.onnx"
    chains = [folder / f"chain-{length}.onnx" for length in CHAINS]
    small = [folder / f"small-{length}.onnx" for length in CHAINS]
    folder.mkdir(parents=True, exist_ok=True)
    write_product(product)
    write_copy(copy)
    for length, chain, products in zip(CHAINS, chains, small, strict=True):
        write_chain(chain, length)
        write_small_products(products, length)
    requests = list[MeasureRequest]()
    for deployment in deployments:
        runtime, one = load_runtime(deployment.runtime), _single(deployment)
        of_its_own = [
            runtime.prepare(file, deployment.precision, folder, drawn)
            for file, drawn in (
                (product, _drawn(PRODUCTS_OF[0][0], SIDE)), *((other, _drawn(*SMALL)) for other in small)
            )
        ]  # fmt: skip
        requests += [
            *(MeasureRequest(file, one) for file in of_its_own),
            *(MeasureRequest(other, replace(one, precision="fp32")) for other in (copy, *chains)),
        ]
    measured = measure(
        requests, sessions=SESSIONS, seconds_per_model=SECONDS, node_seconds=PROFILED_S, repeat_s=REPEAT_S
    )
    found = {}
    for place, deployment in enumerate(deployments):
        large, fewer, more, moved, short, long = measured[6 * place : 6 * place + 6]
        rates = [_rate(o) for s in large.sessions for o in _operators(s.nodes, product) if o.macs]
        copies = [_operators(session.nodes, copy) for session in moved.sessions]
        ceiling = Ceiling(
            {deployment.precision: max(rates, default=math.nan)},
            max((_traffic(o) for own in copies for o in own), default=math.nan),
            profiler_ms(fewer, more),
            outside_ms(short, long),
        )
        if math.isfinite(ceiling.gb_per_s) and all(map(math.isfinite, ceiling.gmacs_per_s.values())):
            found[deployment] = ceiling
            if all(m.verdict == QUIET for m in (large, fewer, more, moved, short, long)):
                _write(_path(deployment), ceiling, deployment)  # a disturbed one would stay
    return found


def profiler_ms(short: Measurement, long: Measurement) -> float:
    """What the profiler adds to each operator, from two chains of them; 0 where that cannot be told.

    Negative where it tells less than an operator takes: OpenVINO's counters leave out how it comes to the next one.
    """
    found = [
        (_sum_ms(b.nodes) - _sum_ms(a.nodes) - (_call_ms(b) - _call_ms(a))) / (len(b.nodes) - len(a.nodes))
        for a, b in zip(short.sessions, long.sessions, strict=False)
        if len(b.nodes) > len(a.nodes)
    ]
    return median(found) if found else 0.0


def outside_ms(short: Measurement, long: Measurement) -> float:
    """What a call takes beside its operators, from two chains of them: where the line through both has none left; 0
    where that cannot be told."""
    found = [
        _call_ms(a) - len(a.nodes) * (_call_ms(b) - _call_ms(a)) / (len(b.nodes) - len(a.nodes))
        for a, b in zip(short.sessions, long.sessions, strict=False)
        if len(b.nodes) > len(a.nodes)
    ]
    return max(0.0, median(found)) if found else 0.0


def _call_ms(session: SessionTiming) -> float:
    return session.p50_ms if session.nodes_p50_ms is None else session.nodes_p50_ms


def _sum_ms(nodes: Sequence[NodeTime]) -> float:
    return sum(node.ms for node in nodes)


def write_product(path: Path) -> None:
    """A chain of large convolutions as ONNX."""
    from onnx import helper, numpy_helper

    rng = np.random.default_rng(0)
    nodes, weights, name = [], [], "input"
    for place, (given, out, kernel) in enumerate(PRODUCTS_OF):
        w = rng.standard_normal((out, given, kernel, kernel)).astype(np.float32) / math.sqrt(given * kernel**2)
        weights.append(numpy_helper.from_array(w, f"w{place}"))
        pads = [kernel // 2] * 4
        nodes.append(helper.make_node("Conv", [name, f"w{place}"], [f"y{place}"], name=f"product{place}", pads=pads))
        name = f"y{place}"
    _save(path, nodes, weights, (1, PRODUCTS_OF[0][0], SIDE, SIDE), name, (1, PRODUCTS_OF[-1][1], SIDE, SIDE))


def write_copy(path: Path) -> None:
    """One operator that reads a map and writes one of the same size."""
    from onnx import helper

    _save(path, [helper.make_node("Relu", ["input"], ["moved"], name="copy")], [], COPY, "moved", COPY)


def write_small_products(path: Path, length: int) -> None:
    """So many small convolutions in a row, each with an activation, as ONNX."""
    from onnx import helper, numpy_helper

    channels, side = SMALL
    rng = np.random.default_rng(0)
    nodes, weights, name = [], [], "input"
    for place in range(length):
        w = rng.standard_normal((channels, channels, 3, 3)) * math.sqrt(2 / (9 * channels))
        weights.append(numpy_helper.from_array(w.astype(np.float32), f"w{place}"))
        nodes.append(helper.make_node("Conv", [name, f"w{place}"], [f"y{place}"], name=f"small{place}", pads=[1] * 4))
        nodes.append(helper.make_node("Relu", [f"y{place}"], [f"z{place}"], name=f"small{place}-act"))
        name = f"z{place}"
    shape = (1, channels, side, side)
    _save(path, nodes, weights, shape, name, shape)


def write_chain(path: Path, length: int) -> None:
    """So many operators in a row, on a map of nine values."""
    from onnx import helper

    names = ["input", *(f"y{place}" for place in range(length))]
    nodes = [
        helper.make_node("MaxPool", [given], [out], name=out, kernel_shape=[3, 3], pads=[1] * 4)
        for given, out in pairwise(names)
    ]
    _save(path, nodes, [], (1, 1, 3, 3), names[-1], (1, 1, 3, 3))


def _save(
    path: Path, nodes: Sequence[Any], weights: Sequence[Any], given: Sequence[int], output: str, out: Sequence[int]
) -> None:
    import onnx
    from onnx import TensorProto, helper

    graph = helper.make_graph(
        nodes,
        path.stem,
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, given)],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, out)],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def _operators(nodes: Sequence[NodeTime], file: Path) -> tuple[Operator, ...]:
    graph = read_graph(file)
    try:
        return placed(nodes, graph, [Part("all", "all", graph.layers)])
    except UserError:  # the runtime does not tell
        return ()


def _rate(operator: Operator) -> float:
    """Thousand million multiply-accumulates per second."""
    return operator.macs / (operator.ms * 1e6)


def _traffic(operator: Operator) -> float:
    """1e9 bytes per second."""
    if operator.layer is None or operator.converts or operator.layer.op in PRODUCTS:
        return math.nan
    return bytes_of(operator.layer, "fp32") / (operator.ms * 1e6)


def _drawn(channels: int, side: int) -> NDArray[np.float32]:
    """Inputs to calibrate on."""
    shape = (CALIBRATION_INPUTS, channels, side, side)
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def _single(deployment: Deployment) -> Deployment:
    """The same deployment, one image a call."""
    return replace(deployment.continuous, batch=1)


def _path(deployment: Deployment) -> Path:
    host = json.dumps([fingerprint().to_json(), asdict(_single(deployment)), PRODUCTS_OF, COPY, SCHEMA], sort_keys=True)
    return user_cache() / "ceilings" / f"{hashlib.sha256(host.encode()).hexdigest()[:24]}.json"


def _read(path: Path) -> Ceiling | None:
    """A ceiling from the cache; None where there is none, or none that is whole."""
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
        rates = {str(name): float(rate) for name, rate in document["gmacs_per_s"].items()}
        return Ceiling(rates, *(float(document[name]) for name in ("gb_per_s", "profiler_ms", "outside_ms")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _write(path: Path, ceiling: Ceiling, deployment: Deployment) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"deployment": asdict(_single(deployment)), **asdict(ceiling)})
