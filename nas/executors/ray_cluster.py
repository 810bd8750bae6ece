"""A Ray cluster as seen from one search: what it consists of, and who may use which cores.

Ray is imported inside functions: it takes a second, and most searches do without.
"""

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nas.errors import MissingDependencyError, UserError

if TYPE_CHECKING:
    from types import ModuleType

DEVICE_PREFIX = "device:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One machine of the cluster."""

    id: str
    cpus: int
    gpus: int
    devices: tuple[str, ...]
    """Targets that it is, by its resources `device:<target>`."""


def device_resource(target: str) -> str:
    """Name of the resource with which a node says that it is a target."""
    return DEVICE_PREFIX + target


@contextmanager
def connected(address: str) -> Iterator["ModuleType"]:
    """Ray, connected to the cluster at `address` while the block lasts (or for longer, where it already was).

    `address` is `HOST:PORT` of the cluster's head, or `auto` for the cluster this machine belongs to. Raises
    `MissingDependencyError` without Ray and `UserError` where no cluster answers.
    """
    try:
        import ray
    except ImportError as error:
        raise MissingDependencyError("Ray", "pip install 'ray[tune]'") from error
    if address.startswith("ray://"):
        raise UserError(
            f"--ray {address} is the address of Ray's client server",
            "start the search on a machine of the cluster, with --ray auto or --ray HOST:6379",
        )
    if ray.is_initialized():
        yield ray
        return
    ended_by = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, namespace="nas", log_to_driver=False, logging_level=logging.ERROR)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, ended_by)  # Ray would end the process in the search's place
    except (ConnectionError, RuntimeError, ValueError) as error:
        lines = [line for line in str(error).splitlines() if line.strip()] or ["no reason given"]
        raise UserError(
            f"no Ray cluster answers at {address!r}: {lines[0].strip()}",
            "start one with `ray start --head`, and give the address that it prints",
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def nodes_of(ray: "ModuleType") -> list[Node]:
    """The machines that are alive, in a stable order."""
    found = []
    for document in ray.nodes():
        resources: dict[str, float] = document["Resources"]
        if document["Alive"]:
            found.append(
                Node(
                    id=document["NodeID"],
                    cpus=int(resources.get("CPU", 0)),
                    gpus=int(resources.get("GPU", 0)),
                    devices=tuple(sorted(r[len(DEVICE_PREFIX) :] for r in resources if r.startswith(DEVICE_PREFIX))),
                )
            )
    return sorted(found, key=lambda node: node.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """Shares of a cluster that evaluations get."""

    count: int
    """Number of evaluations at once."""
    cpus: int
    """Cores of each: threads of a training, so the same for all of them."""
    gpus: int


def slots_of(nodes: list[Node], workers: int | None) -> Slots:
    """One evaluation per GPU where there are GPUs, else one on the smallest machine and as many as fit on the others;
    or as many as asked for.

    All get the same number of cores, because a training depends on it (in its last digits). Raises `UserError` where no
    machine offers any.
    """
    able = [n for n in nodes if n.cpus >= 1]
    with_gpu = [n for n in able if n.gpus >= 1]
    if not able:
        raise UserError("no machine of the Ray cluster offers cores", "start them with `ray start --num-cpus N`")
    if with_gpu:
        cpus = max(1, min(n.cpus // n.gpus for n in with_gpu))
        return Slots(count=workers or sum(n.gpus for n in with_gpu), cpus=cpus, gpus=1)
    smallest = min(n.cpus for n in able)
    if workers is None:
        return Slots(count=sum(n.cpus // smallest for n in able), cpus=smallest, gpus=0)
    total = sum(n.cpus for n in able)
    if workers > total:
        raise UserError(f"{workers} workers were asked for, the Ray cluster has {total} cores", f"ask for 1 to {total}")
    return Slots(count=workers, cpus=min(smallest, total // workers), gpus=0)


def slots_on(node: Node, slots: Slots) -> int:
    """Evaluations with these shares that fit on one machine, also one that joined later."""
    return min(node.cpus // slots.cpus, node.gpus // slots.gpus if slots.gpus else node.cpus)


@contextmanager
def cores_held(ray: "ModuleType", node: Node) -> Iterator[None]:
    """All cores of `node` stay without work of Ray's while the block lasts; waits for what runs there to end."""
    if not node.cpus:
        yield
        return
    holder: Any = ray.remote(num_cpus=node.cpus, scheduling_strategy=_on(node))(_Holder).remote()
    ray.get(holder.is_there.remote())
    try:
        yield
    finally:
        ray.kill(holder)


class _Holder:
    """An actor that does nothing but hold the resources it was started with."""

    def is_there(self) -> bool:
        return True


def _on(node: Node) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node.id, soft=False)
