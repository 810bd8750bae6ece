"""Measuring on the machine of a Ray cluster that is the target: networks travel there, only times come back."""

import math
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from nas.deployment import Deployment
from nas.errors import UnknownNameError, UserError
from nas.executors.ray_cluster import Node, device_resource, nodes_of
from nas.measure.energy import why_no_energy
from nas.measure.host import HostFingerprint, fingerprint
from nas.measure.measurement import Measurement, MeasureRequest
from nas.measure.site import Site
from nas.runtimes import load_runtime
from nas.runtimes.base import Inputs, Outputs, run_in_batches

if TYPE_CHECKING:
    from types import ModuleType

RETRIES = 3
P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Shipped:
    """A network on its way: the files its runtime loads, and how it is run."""

    files: dict[str, bytes]
    first: str
    """The file its runtime is given; others lie beside it."""
    deployment: Deployment


class RayDevice:
    """The machines of a cluster that offer the resource `device:<target>`."""

    def __init__(self, ray: "ModuleType", target: str) -> None:
        """Raises `UnknownNameError` where the cluster has no such device."""
        nodes = nodes_of(ray)
        self.nodes: list[Node] = [n for n in nodes if target in n.devices]
        if not self.nodes:
            raise UnknownNameError("device of the Ray cluster", target, {d for n in nodes for d in n.devices})
        self._ray = ray
        self._target = target

    @property
    def name(self) -> str:
        return f"device {self._target!r} of the Ray cluster"

    def site(self) -> Site:
        """The device as a machine that measures."""
        here, no_energy = self.run(_introduce)
        return Site(
            name=self.name,
            fingerprint=here,
            no_energy=no_energy,
            measure=self.measure,
            run=self.run,
            compute=self.compute,
        )

    def run(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call `function` on the device, with all its cores: Ray lets nothing else run there meanwhile.

        The call waits for the device to be free, and is repeated where the machine goes away.
        """
        from ray.exceptions import RayError, RayTaskError

        cpus = min(node.cpus for node in self.nodes)
        task: Any = self._ray.remote(num_cpus=cpus, resources={device_resource(self._target): 1}, max_retries=RETRIES)(
            function
        )
        try:
            result: R = self._ray.get(task.remote(*args, **kwargs))
        except RayTaskError as error:
            if isinstance(error.cause, UserError):
                raise error.cause from error
            last = str(error).strip().splitlines()[-1]
            raise UserError(
                f"{self.name} cannot measure: {last}",
                "install the same version of this program, with the same Python, there",
            ) from error
        except RayError as error:
            first = str(error).strip().splitlines()[0]
            raise UserError(
                f"{self.name} was lost {RETRIES + 1} times: {first}",
                "look after that machine; the same command then goes on where it stopped",
            ) from error
        return result

    def measure(
        self,
        requests: Sequence[MeasureRequest],
        *,
        sessions: int = 3,
        seconds_per_model: float = 0.3,
        node_seconds: float = 0.0,
        least_calls: int = 0,
        repeat_s: float = math.inf,
    ) -> list[Measurement]:
        """`nas.measure.protocol.measure` on the device: the files of `requests` lie here, the clock ticks there."""
        shipped = [_ship(request) for request in requests]
        measured = self.run(measure_shipped, shipped, sessions, seconds_per_model, node_seconds, least_calls, repeat_s)
        return [replace(m, request=request) for m, request in zip(measured, requests, strict=True)]

    def compute(self, request: MeasureRequest, inputs: Inputs, /) -> Outputs:
        """Outputs of the network of `request`, computed on the device. Its file lies here."""
        return self.run(compute_shipped, _ship(request), inputs)


def connected_device(target: str) -> RayDevice | None:
    """The target in the cluster that this process is connected to; None without a cluster or such a device in it."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized() or not any(target in node.devices for node in nodes_of(ray)):
        return None
    return RayDevice(ray, target)


def _introduce() -> tuple[HostFingerprint, str | None]:
    return fingerprint(), why_no_energy()


def measure_shipped(
    networks: Sequence[Shipped],
    sessions: int,
    seconds_per_model: float,
    node_seconds: float,
    least_calls: int,
    repeat_s: float,
) -> list[Measurement]:
    """Unpack networks and measure them on this machine; it is named by its host and its id in the cluster."""
    import ray

    from nas.measure.protocol import measure

    with tempfile.TemporaryDirectory(prefix="nas-device-") as temporary:
        requests = []
        for number, network in enumerate(networks):
            folder = Path(temporary) / str(number)
            folder.mkdir()
            requests.append(MeasureRequest(_unpacked(network, folder), network.deployment))
        measured = measure(
            requests,
            sessions=sessions,
            seconds_per_model=seconds_per_model,
            node_seconds=node_seconds,
            least_calls=least_calls,
            repeat_s=repeat_s,
        )
    node = ray.get_runtime_context().get_node_id()
    return [replace(m, machine=f"{m.machine} (Ray node {node})") for m in measured]


def compute_shipped(network: Shipped, inputs: Inputs) -> Outputs:
    """Unpack a network and run it on this machine."""
    with tempfile.TemporaryDirectory(prefix="nas-device-") as temporary:
        path = _unpacked(network, Path(temporary))
        session = load_runtime(network.deployment.runtime).load(path, network.deployment)
        return run_in_batches(session.run, inputs, network.deployment.batch)


def _unpacked(network: Shipped, folder: Path) -> Path:
    """The file that the network's runtime is given, in `folder`."""
    for name, content in network.files.items():
        (folder / name).write_bytes(content)
    return folder / network.first


def _ship(request: MeasureRequest) -> Shipped:
    path = request.path
    beside = {
        ".xml": path.with_suffix(".bin"),
        ".json": path.with_name(path.name.removesuffix(".network.json") + ".safetensors"),
        ".onnx": path.with_name(path.name + ".data"),
    }.get(path.suffix)
    files = [path, beside] if beside is not None and beside.exists() else [path]
    return Shipped({file.name: file.read_bytes() for file in files}, path.name, request.deployment)
