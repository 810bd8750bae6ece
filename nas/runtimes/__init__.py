"""The libraries that run networks. A new one is one new module and one line in `RUNTIMES`."""

from collections.abc import Callable, Iterable, Mapping

from nas.deployment import Deployment
from nas.errors import UnknownNameError
from nas.runtimes.base import Runtime, Session, require
from nas.runtimes.cpu import nvidia_device_present
from nas.runtimes.ort import OnnxRuntime
from nas.runtimes.ov import OpenVino
from nas.runtimes.torch_eager import TorchEager

__all__ = ["RUNTIMES", "Runtime", "Session", "available_runtimes", "deployments_here", "load_runtime", "require"]

RUNTIMES: Mapping[str, Callable[[], Runtime]] = {
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVino,
    "torch": TorchEager,
}


def load_runtime(name: str) -> Runtime:
    """The runtime of that name, installed or not (see `require`).

    Raises:
        UnknownNameError: no such runtime.
    """
    if name not in RUNTIMES:
        raise UnknownNameError("runtime", name, RUNTIMES)
    return RUNTIMES[name]()


def available_runtimes() -> list[str]:
    """Names of the installed runtimes."""
    return [name for name in RUNTIMES if load_runtime(name).missing() is None]


def deployments_here(threads: int, runtimes: Iterable[str] | None = None, batch: int = 1) -> list[Deployment]:
    """Every runtime and precision that this host can run.

    Args:
        threads: intra-operator threads.
        runtimes: names to consider. By default the installed ones, without `torch` where there is no GPU: on a CPU
            eager PyTorch is never the fastest.
        batch: images per call.

    Raises:
        UnknownNameError, MissingDependencyError: for a name in `runtimes`.
    """
    if runtimes is None:
        runtimes = [name for name in available_runtimes() if name != "torch" or nvidia_device_present()]
    deployments = []
    for name in runtimes:
        runtime = load_runtime(name)
        require(runtime)
        deployments += [
            Deployment(name, precision, threads, batch)
            for precision in runtime.precisions
            if runtime.unsupported(precision) is None
        ]
    return deployments
