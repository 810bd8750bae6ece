"""How near a network comes to what its device can do: its products layer by layer against measured ceilings.

A layer needs at least the longer of two times: that of its multiply-accumulates at the rate of a large product, and
that of reading its input and weights and writing its output at the rate of a copy (Williams et al. 2009,
https://doi.org/10.1145/1498765.1498785). Layers that multiply nothing are taken as fused into others.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nas.advice.ceiling import ceilings
from nas.advice.graph import PRODUCTS, read_graph
from nas.advice.table import BOUND_FROM, Ceiling
from nas.bench.bench import BenchConfig, chosen_deployments
from nas.bench.models import on_tokens, read_models
from nas.bench.preparing import ModelFiles, path_or_reason
from nas.deployment import CPU, DYNAMIC_INT8, Deployment
from nas.measure.devices.cuda_ceiling import cuda_ceiling
from nas.measure.devices.cuda_library import CudaLibrary, TorchCudaLibrary
from nas.measure.host import threads_here
from nas.runtimes.torch_eager import dtype_of

COMPUTE, MEMORY, OVERHEAD = "compute", "memory", "overhead"
_BYTES = {"bf16": 2, "fp16": 2, "int8": 1, DYNAMIC_INT8: 1}
"""Of an element; others have four."""


def measured_roofline(config: BenchConfig, cuda: Callable[[str], CudaLibrary] = TorchCudaLibrary) -> dict[str, Any]:
    """What `nas compare` needs of this machine beside a bench's figures: the entry `roofline` of its document.

    `ceilings[]`: of each deployment `runtime`, `precision`, `threads`, `runs_on`, `gmacs_per_s` of a large product and
    `gb_per_s` of a copy, measured now or kept from before by this host's fingerprint; both null where the runtime does
    not tell the time of its operators (eager PyTorch on a CPU). `networks[]`: `model`, and `products[]` with the
    `macs` and `elements` (input, weights and output) of each layer that multiplies, for one example.

    Args:
        config: of the bench; what it refuses is refused here too.
        cuda: makes a CUDA device of its name; by default PyTorch's.
    """
    models = read_models(config.models, config.resolution)
    deployments = chosen_deployments(
        threads_here(config.threads), config.runtimes, config.precisions, config.devices,
        dynamic_int8=on_tokens(models),
    )  # fmt: skip
    with TemporaryDirectory(prefix="nas-roofline-") as place:
        folder = Path(place)
        on_cpu = [d for d in deployments if d.device == CPU and d.runtime != "torch"]
        multiplying = {d: replace(d, precision=d.computes_in) for d in on_cpu}
        known = ceilings(list(multiplying.values()), folder / "ceilings") if on_cpu else {}
        found = {d: known[like] for d, like in multiplying.items() if like in known}
        for deployment in deployments:
            if deployment.device != CPU:
                library = cuda(deployment.device)
                product, copy = cuda_ceiling(library, dtype_of(replace(deployment, runtime="torch")))
                found[deployment] = Ceiling({deployment.precision: product}, copy)
        networks = []
        for number, model in enumerate(models):
            path = path_or_reason(ModelFiles(model, folder / str(number)), Deployment("onnxruntime", "fp32", 1))
            layers = read_graph(path).layers if isinstance(path, Path) else ()
            products = [{"macs": la.macs, "elements": la.elements} for la in layers if la.op in PRODUCTS]
            networks.append({"model": model.name, "products": products})
    return {
        "ceilings": [_ceiling_document(d, found.get(d, Ceiling.unknown())) for d in deployments],
        "networks": networks,
    }


def _ceiling_document(deployment: Deployment, ceiling: Ceiling) -> dict[str, Any]:
    rate = ceiling.gmacs_per_s.get(deployment.computes_in, math.nan)
    return {
        "runtime": deployment.runtime,
        "precision": deployment.precision,
        "threads": deployment.threads,
        "runs_on": deployment.device,
        "gmacs_per_s": rate if math.isfinite(rate) else None,
        "gb_per_s": ceiling.gb_per_s if math.isfinite(ceiling.gb_per_s) else None,
    }


@dataclass(frozen=True, slots=True)
class Roof:
    """A network's single call against its device's ceilings."""

    gmacs_per_s: float
    """Ceiling of products."""
    gb_per_s: float
    """Ceiling of a copy."""
    floor_ms: float
    """Least time of its products."""
    share: float
    """Of the call's time; the rest is overhead, operators that multiply nothing, and unfit shapes."""
    bound: str
    """`compute` or `memory`, whichever more of the least time is; `overhead` below a share of `BOUND_FROM`."""


def roof_of(
    products: Sequence[Mapping[str, Any]], precision: str, gmacs_per_s: float, gb_per_s: float, p50_ms: float
) -> Roof:
    """A call of one example that takes `p50_ms`, against the ceilings.

    Args:
        products: `macs` and `elements` of each.
        precision: of the deployment; all elements are taken to have its size.
        gmacs_per_s, gb_per_s: the ceilings, in 1e9 per second.
    """
    size = _BYTES.get(precision, 4)
    floor_ms = {COMPUTE: 0.0, MEMORY: 0.0}
    for layer in products:
        product_ms = 1e3 * layer["macs"] / (gmacs_per_s * 1e9)
        traffic_ms = 1e3 * size * layer["elements"] / (gb_per_s * 1e9)
        floor_ms[COMPUTE if product_ms >= traffic_ms else MEMORY] += max(product_ms, traffic_ms)
    whole_ms = sum(floor_ms.values())
    share = whole_ms / p50_ms
    bound = OVERHEAD if share < BOUND_FROM else max(floor_ms, key=lambda kind: floor_ms[kind])
    return Roof(gmacs_per_s, gb_per_s, whole_ms, share, bound)
