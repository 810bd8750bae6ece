"""Random networks of the spaces, exported and prepared for every deployment: what a device is profiled with."""

import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nas.deploy.float_parts import float_part, usual_part
from nas.deploy.onnx import export_onnx
from nas.deploy.tried import INT8
from nas.deployment import Deployment, common_batch
from nas.errors import UserError
from nas.measure.host import usable_threads
from nas.measure.measurement import MeasureRequest
from nas.measure.procfs import die_with_parent
from nas.networks.description import NETWORK, NetworkDescription, save_network
from nas.runtimes import load_runtime
from nas.tasks import task_named
from search_spaces import BUNDLED_SPACES, Architecture, SearchSpace, resolve_space, space_of
from search_spaces.architecture import Option
from search_spaces.signature import Size

if TYPE_CHECKING:
    from torch import nn

ALL_SPACES = ("mixed", "mobile", "dense", "compact")
"""The spaces of classification: a device is profiled with them where nothing else is asked for."""
OUTPUT_SIZE: Size = (10,)
"""Size of the answers of networks that are built to be timed."""
DRAWS = 300
"""Random networks of which the smallest is taken."""
CALIBRATION_INPUTS = 8
"""Random inputs for int8 ranges: they fix the scales, and speed does not depend on the scales."""


def usual_spaces() -> tuple[SearchSpace, ...]:
    """Those of `ALL_SPACES`."""
    return tuple(resolve_space(name) for name in ALL_SPACES)


def spaces_like(space: SearchSpace) -> tuple[SearchSpace, ...]:
    """The spaces whose networks tell of those of `space`: the bundled ones of its task, or itself where it is none."""
    if space.name not in BUNDLED_SPACES:
        return (space,)
    return tuple(other for name in BUNDLED_SPACES if (other := resolve_space(name)).task == space.task)


def networks_to_measure(
    spaces: Sequence[SearchSpace], count: int, seed: int, allowed: Mapping[str, Sequence[Option]] | None = None,
    *, small: bool = False,
) -> list[Architecture]:  # fmt: skip
    """`count` distinct random architectures, taking turns over the spaces, or all that they have.

    Each decision that `allowed` names takes one of those options alone.

    `small`: every other network of a space is the one with the fewest operations of `DRAWS` random ones. A limit is
    usually kept by networks that are far faster than random ones, of which a few random ones do not tell.
    """
    rng = np.random.default_rng(seed)
    found: dict[str, Architecture] = {}
    loaded = [space.restricted(allowed or {}) for space in spaces]
    sizes, numbers = [space.size for space in loaded], [0] * len(loaded)
    count = min(count, sum(sizes))
    while len(found) < count:
        # Of the spaces that are not exhausted, the one with the fewest networks; the first of those.
        turn = min((place for place, size in enumerate(sizes) if numbers[place] < size), key=numbers.__getitem__)
        space = loaded[turn]
        smallest = small and (turn + numbers[turn]) % 2 == 1
        drawn = space.sample(DRAWS if smallest else 1, rng)
        if smallest:
            drawn = drawn[np.argsort(space.costs(drawn, OUTPUT_SIZE)["macs"], kind="stable")]
        arch = next((arch for arch in map(space.architecture, drawn) if arch.key not in found), None)
        if arch is not None:
            found[arch.key] = arch
            numbers[turn] += 1
    return list(found.values())


def deploy_untrained(
    arch: Architecture,
    deployments: Sequence[Deployment],
    folder: Path,
    seed: int,
    size: Size = OUTPUT_SIZE,
    *,
    changed: "Callable[[nn.Module], None]" = lambda network: None,
) -> list[MeasureRequest]:
    """Export a network with random weights but unit-scale activations, and prepare it for each deployment.

    All deployments have the same batch. `size`: of the network's answer. `changed` may change the random weights.
    """
    import torch

    from search_spaces.modules import set_norm_statistics

    space = space_of(arch)
    described = NetworkDescription.of_architecture(space, arch, size)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = described.build()
        changed(network)
        inputs = described.signature.input.draw_torch(CALIBRATION_INPUTS)
        set_norm_statistics(network, inputs)
    if any(d.runtime == "torch" for d in deployments):  # which runs the network itself
        save_network(network, described, folder / NETWORK)
    model = export_onnx(network, described.signature.input, folder / "model.onnx", common_batch(deployments))
    return prepare_all(model, deployments, folder, inputs.numpy(), usual_part(task_named(space.task)))


def prepare_all(
    model: Path, deployments: Sequence[Deployment], folder: Path, calibration: NDArray[Any], in_float: str = ""
) -> list[MeasureRequest]:
    """The file of `model` for each deployment; those that differ in threads alone share it.

    `in_float`: the part of it (of `FLOAT_PARTS`) that int8 leaves in floating point, as it will be delivered.
    """
    part = float_part(in_float, model) if in_float and any(d.precision == INT8 for d in deployments) else None
    files: dict[tuple[str, str], Path] = {}
    for d in deployments:
        if (d.runtime, d.precision) not in files:
            files[d.runtime, d.precision] = load_runtime(d.runtime).prepare(
                model, d.precision, folder, calibration, float_part=part if d.precision == INT8 else None
            )
    return [MeasureRequest(files[d.runtime, d.precision], d) for d in deployments]


def new_folder(path: Path) -> Path:
    path.mkdir()
    return path


def prepare_here(
    archs: Sequence[Architecture], deployments: Sequence[Deployment], folder: Path, seed: int
) -> list[list[MeasureRequest]]:
    """For each architecture, its file for each deployment, in new folders below `folder`.

    In this process, which is faster for a few networks: worker processes have to import every runtime first.
    """
    return [deploy_untrained(arch, deployments, new_folder(folder / str(i)), seed + i) for i, arch in enumerate(archs)]


class Preparer:
    """Prepares networks in worker processes, one per core, which stand still while something is measured."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def prepare(
        self, archs: Sequence[Architecture], deployments: Sequence[Deployment], folder: Path, seed: int
    ) -> list[list[MeasureRequest]]:
        """`prepare_here`, side by side.

        Raises `UserError` where a process was ended from outside, as the kernel does for want of memory.
        """
        folders = [new_folder(folder / str(i)) for i in range(len(archs))]
        tasks = [
            self._pool.submit(deploy_untrained, arch, tuple(deployments), path, seed + i)
            for i, (arch, path) in enumerate(zip(archs, folders, strict=True))
        ]
        try:
            return [task.result() for task in tasks]
        except BrokenProcessPool as error:
            raise UserError(
                f"a process that prepared networks of {max(d.batch for d in deployments)} images per call was ended",
                "was memory short? free some, or give a smaller --batch or --resolution; the same command goes on",
            ) from error


@contextmanager
def preparer() -> Iterator[Preparer]:
    """A `Preparer` with as many processes as this host has cores for us."""
    # Forking a process that has started torch's or a runtime's threads can hang the child.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(usable_threads(), mp_context=context, initializer=_start_worker) as pool:
        yield Preparer(pool)


def _start_worker() -> None:
    import torch

    die_with_parent()
    torch.set_num_threads(1)
