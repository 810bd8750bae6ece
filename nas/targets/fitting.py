"""Arrays that a profile's predictors are fitted on: its networks' blocks and costs, and how long they usually take."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nas.deployment import Deployment
from nas.targets.profile import DeploymentTable, DeviceProfile
from predictors.block_features import block_columns
from predictors.block_table import NetworkBlocks
from predictors.drift import drift_exponent
from search_spaces import Architecture, SearchSpace, space_of
from search_spaces.signature import Size
from search_spaces.slots import BlockSlots, concatenate_slots

_SAMPLES = 256


def training_data(
    profile: DeviceProfile, deployment: Deployment, networks: NDArray[np.int64]
) -> tuple[NetworkBlocks, NDArray[np.float64], NDArray[np.float64] | None]:
    """Data that a predictor of one deployment is fitted on: `networks` (positions in the profile), their latencies and
    the times of their blocks."""
    table = profile.table(deployment)
    assert table is not None
    latency_ms = usual_latency_ms(profile, table)[networks]
    slots = slots_of([profile.networks[i] for i in networks], profile.output_size)
    block_ms = None
    times = [table.timings[i].block_ms for i in networks]
    if any(times):
        block_ms = np.full(slots.kind.shape, np.nan)
        for row, blocks in zip(block_ms, times, strict=True):
            row[: len(blocks)] = blocks
    return NetworkBlocks.of(slots), latency_ms, block_ms


def usual_latency_ms(profile: DeviceProfile, table: DeploymentTable) -> NDArray[np.float64]:
    """Latencies (n,) of a table of the profile had the device always been as fast as it usually was; NaN where
    measuring failed. Unlike `DeploymentTable.steady_latency_ms`, as strongly as this deployment follows the device."""
    latency_ms = table.column("latency_ms")
    known, slowness = _slowness(table)
    latency_ms[known] /= slowness ** table_exponent(profile, table)
    return latency_ms


def table_exponent(profile: DeviceProfile, table: DeploymentTable) -> float:
    """How strongly a deployment of the profile follows the speed of its device, see `predictors.drift`."""
    known, slowness = _slowness(table)
    if not len(known):
        return 1.0
    slots = slots_of([profile.networks[i] for i in known], profile.output_size)
    columns = (block_columns(slots) * slots.count[..., None]).sum(axis=1)
    return drift_exponent(columns, table.column("latency_ms")[known], slowness)


def _slowness(table: DeploymentTable) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Places of the networks that were measured beside the reference network, and how slow the device was then."""
    reference_ms = table.column("reference_ms")
    known = np.flatnonzero(np.isfinite(table.column("latency_ms")) & np.isfinite(reference_ms))
    usual_ms = float(np.median(reference_ms[np.isfinite(reference_ms)])) if len(known) else 1.0
    return known, reference_ms[known] / usual_ms


def slots_of(archs: Sequence[Architecture], size: Size) -> BlockSlots:
    """The blocks of architectures of several spaces, in order: arrays (n, slots)."""
    groups = _by_space(archs)
    parts = [space.slots(space.choices([archs[i] for i in places]), size) for space, places in groups]
    return concatenate_slots(parts).rows(np.argsort([i for _, places in groups for i in places]))


def costs_of(archs: Sequence[Architecture], size: Size) -> dict[str, NDArray[np.float64]]:
    """Costs of architectures of several spaces by name, in order: arrays (n,), see `SearchSpace.costs`."""
    groups = _by_space(archs)
    parts = [space.costs(space.choices([archs[i] for i in places]), size) for space, places in groups]
    order = np.argsort([i for _, places in groups for i in places])
    return {name: np.concatenate([part[name] for part in parts])[order] for name in parts[0]}


def _by_space(archs: Sequence[Architecture]) -> list[tuple[SearchSpace, list[int]]]:
    """Each space with the positions of its architectures: a space answers for many at the price of one."""
    found: dict[tuple[str, str | None], tuple[SearchSpace, list[int]]] = {}
    for position, arch in enumerate(archs):
        found.setdefault((arch.space, arch.document), (space_of(arch), []))[1].append(position)
    return list(found.values())


def kinds_of(profile: DeviceProfile) -> frozenset[str]:
    """Families of the blocks that the profile's networks have."""
    return slots_of(profile.networks, profile.output_size).occurring


def occurring_kinds(space: SearchSpace, size: Size) -> frozenset[str]:
    """Families of the blocks that networks of `space` with answers of `size` have."""
    return space.slots(space.sample(_SAMPLES, np.random.default_rng(0)), size).occurring
