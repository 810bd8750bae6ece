"""The libraries that run networks. A new one is one new module and one line in `RUNTIMES`."""

from collections.abc import Callable, Iterable, Mapping

from nas.deployment import CPU, DYNAMIC_INT8, HOST_THREADS, Deployment
from nas.errors import UnknownNameError
from nas.runtimes.base import Runtime, Session, require
from nas.runtimes.ort import OnnxRuntime
from nas.runtimes.ov import OpenVino
from nas.runtimes.torch_eager import TorchEager

__all__ = [
    "RUNTIMES", "Runtime", "Session", "available_runtimes", "deployments_here", "load_runtime", "nothing_runs",
    "require",
]  # fmt: skip

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


def deployments_here(
    threads: int,
    runtimes: Iterable[str] | None = None,
    batch: int = 1,
    device: str = CPU,
    dynamic_int8: bool = False,
) -> list[Deployment]:
    """Every runtime and precision that this host can run on one of its devices.

    Args:
        threads: intra-operator threads of a CPU's deployments; a GPU's have `HOST_THREADS`.
        runtimes: names to consider. By default the installed ones, without `torch` on the CPU, where eager PyTorch is
            never the fastest.
        batch: images per call.
        dynamic_int8: with `DYNAMIC_INT8` too, which is worth a try where matrix products take the time, see
            `nas.tasks.task.OfProducts`.
        device: `cpu` or `cuda:N`. Empty for one that this host lacks, see `nas.runtimes.devices.why_no_device`.

    Raises:
        UnknownNameError, MissingDependencyError: for a name in `runtimes`.
    """
    if runtimes is None:
        runtimes = [name for name in available_runtimes() if name != "torch" or device != CPU]
    deployments = []
    for name in runtimes:
        runtime = load_runtime(name)
        require(runtime)
        deployments += [
            Deployment(name, precision, threads if device == CPU else HOST_THREADS, batch, device)
            for precision in runtime.precisions
            if runtime.unsupported(precision, device) is None and (dynamic_int8 or precision != DYNAMIC_INT8)
        ]
    return deployments


def nothing_runs(device: str, runtimes: Iterable[str] | None) -> tuple[str, str]:
    """Sentence and hint where `deployments_here` finds none of `runtimes` (None: the installed ones) for a device."""
    names = list(runtimes or available_runtimes())
    found = {name: load_runtime(name) for name in names}
    reasons = [f"{name}: {why}" for name, r in found.items() if (why := r.unsupported(r.precisions[0], device))]
    return (
        f"no runtime can use {device} here ({'; '.join(reasons) or 'none is installed'})",
        "leave out --runtime, or give another --device",
    )
