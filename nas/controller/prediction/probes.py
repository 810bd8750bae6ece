"""Costs of networks beside their latency: size of the files, memory, slow calls. Learnt from a few that are measured.

Asked only where a limit needs it. Neither weights nor data matter, so random networks of the space tell.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from nas.deploy.tried import files_bytes
from nas.deployment import ALONE, Deployment
from nas.errors import UserError
from nas.limits import MB, Limits, session_latencies_ms
from nas.measure.measurement import Measurement
from nas.measure.site import Site
from nas.targets.preparing import OUTPUT_SIZE, prepare_here
from search_spaces import Architecture, Choices, SearchSpace
from search_spaces.signature import Size

PROBES, FEW_PROBES = 6, 3
FEW_UNTIL_S = 120.0
"""Budgets below this have no time for more than a few: each costs about 3 s."""
TAIL_SECONDS, MEMORY_SECONDS = 0.3, 0.05
"""Seconds of measuring per network and deployment: a tail shows in many calls, memory in one."""
BYTES_PER_PARAMETER = {"fp32": 4.0, "bf16": 4.0, "int8": 1.0}
"""Bytes per parameter in a deployed network's files, by precision; bf16 is computed from fp32 files."""

Costs = Mapping[str, NDArray[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentFiles:
    """One deployment's files and processes, linear in a network's costs."""

    bytes_per_param: float
    overhead_mb: float = 0.0
    memory: tuple[float, float, float] | None = None
    """MB: constant, per parameter, per activation; None: not known."""
    memory_std_mb: float = 0.0
    tail: float = 1.0
    """The asked percentile of a call over the median call."""
    percentile: int | None = None
    """The percentile that `tail` is of; None: calls were not timed, or it was not recorded."""


@dataclass(frozen=True, slots=True)
class FileModel:
    """All deployments; one that was not probed has the size of its parameters alone and no memory."""

    known: Mapping[Deployment, DeploymentFiles] = field(default_factory=dict)

    def of(self, deployment: Deployment) -> DeploymentFiles:
        unknown = DeploymentFiles(bytes_per_param=BYTES_PER_PARAMETER.get(deployment.computes_in, 4.0))
        return self.known.get(deployment.covering(ALONE), unknown)

    def fitting(self, limits: Limits) -> "FileModel":
        """The model as far as it tells of `limits`; an empty one where networks have to be probed for them.

        A tail of another percentile is of no use, and without measurements neither memory nor slow calls are known.
        """
        known = self.known.values()
        if limits.needs_measured_probes and any(files.memory is None for files in known):
            return FileModel()
        if limits.limits_tail:
            return self if all(files.percentile == limits.percentile for files in known) else FileModel()
        return FileModel({d: replace(files, tail=1.0, percentile=limits.percentile) for d, files in self.known.items()})

    def size_mb(self, deployment: Deployment, costs: Costs) -> NDArray[np.float64]:
        """(n,) megabytes of the files."""
        found = self.of(deployment)
        size: NDArray[np.float64] = costs["params"] * found.bytes_per_param / MB + found.overhead_mb
        return size

    def memory_mb(self, deployment: Deployment, costs: Costs) -> NDArray[np.float64]:
        """(n,) megabytes of memory at the upper end of the 90 % interval; 0 where it is not known."""
        found = self.of(deployment)
        if found.memory is None:
            return np.zeros(len(costs["params"]))
        constant, per_param, per_activation = found.memory
        memory: NDArray[np.float64] = (
            constant + per_param * costs["params"] + per_activation * costs["activations"] + 1.645 * found.memory_std_mb
        )
        return memory

    def tail(self, deployment: Deployment) -> float:
        return self.of(deployment).tail


def probe_networks(space: SearchSpace, sampled: Choices, size: Size, budget_s: float) -> list[Architecture]:
    """The smallest network that is known, and others spread over the sizes of `sampled`; of the smaller half alone
    where there is little time, which large ones take."""
    count, largest = (PROBES, 0.9) if budget_s >= FEW_UNTIL_S else (FEW_PROBES, 0.5)
    params = space.costs(sampled, size)["params"]
    order = np.argsort(params, kind="stable")
    picked = order[np.linspace(0, largest * (len(order) - 1), count).astype(int)]
    return list({a.key: a for a in (space.architecture(sampled[i]) for i in picked)}.values())


def probe(
    space: SearchSpace,
    archs: Sequence[Architecture],
    deployments: Sequence[Deployment],
    limits: Limits,
    seed: int,
    site: Site,
) -> FileModel:
    """Prepare `archs` here and, where `limits` are on more than files, measure them on `site`, once each.

    A disturbed measurement is not repeated: nothing is delivered on a probe's word, and time is short.

    Raises `UserError` where a deployment cannot be measured.
    """
    with TemporaryDirectory(prefix="nas-probe-") as folder:
        rows = prepare_here(archs, deployments, Path(folder), seed)
        sizes = [[files_bytes(request.path) / MB for request in row] for row in rows]
        found: list[Measurement] = []
        if limits.needs_measured_probes:
            seconds = TAIL_SECONDS if limits.limits_tail else MEMORY_SECONDS
            requests = [request for row in rows for request in row]
            found = site.measure(requests, sessions=1, seconds_per_model=seconds, repeat_s=0.0)
    width = len(deployments)
    measured = [found[i * width : (i + 1) * width] for i in range(len(archs))]
    costs = space.costs(space.choices(list(archs)), OUTPUT_SIZE)
    return FileModel(
        {
            d: fitted_files(d, costs, [row[i] for row in sizes], [row[i] for row in measured if row], limits.percentile)
            for i, d in enumerate(deployments)
        }
    )


def fitted_files(
    deployment: Deployment, costs: Costs, sizes_mb: Sequence[float], measured: Sequence[Measurement], percentile: int
) -> DeploymentFiles:
    """The linear models of one deployment, from networks with these costs (n,). `measured`: empty where only the
    files are of interest."""
    from scipy.optimize import nnls

    params, activations = (costs[name] for name in ("params", "activations"))
    size, _ = nnls(np.column_stack([np.ones(len(params)), params / MB]), np.asarray(sizes_mb))
    files = DeploymentFiles(bytes_per_param=float(size[1]), overhead_mb=float(size[0]))
    if not measured:
        return files
    usable = [i for i, m in enumerate(measured) if m.failed is None and math.isfinite(m.p50_ms)]
    if len(usable) < 3:
        raise UserError(f"{deployment.name} could not be measured", "leave it out with --runtime or --precision")
    design = np.column_stack([np.ones(len(usable)), params[usable] / MB, activations[usable] / MB])
    memory = np.array([measured[i].memory_bytes / MB for i in usable])
    weights, _ = nnls(design, memory)
    tails = [max(session_latencies_ms(measured[i], percentile)) / measured[i].p50_ms for i in usable]
    return replace(
        files,
        memory=(float(weights[0]), float(weights[1]) / MB, float(weights[2]) / MB),
        memory_std_mb=float(np.std(memory - design @ weights)),
        tail=median(tails),
        percentile=percentile,
    )
