"""A runtime prepares a network's file for a precision, loads it and runs it.

Every runtime takes inputs as the network's signature says, `(n, ...)`, and returns float32 `(n, ...)`, whatever it
computes in, so that callers never see its types.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nas.deployment import CPU, Deployment
from nas.errors import MissingDependencyError, UnknownNameError, UserError
from nas.runtimes.onnx_file import OnnxInput
from search_spaces.signature import DTYPES, TensorSpec

Inputs = NDArray[Any]
"""`(n, ...)` of the type that the network takes: float32, int64 or uint8."""
Outputs = NDArray[np.float32]
"""`(n, ...)`."""


@dataclass(frozen=True, slots=True)
class FloatPart:
    """A part of a network that int8 leaves in floating point."""

    name: str
    """Name of the part in the names of files."""
    patterns: tuple[str, ...]
    """Regular expressions; a node of the ONNX file whose whole name matches one of them belongs to it."""

    def contains(self, node: str) -> bool:
        """True if the node of that name belongs to it."""
        return any(re.fullmatch(pattern, node) for pattern in self.patterns)


class Session(Protocol):
    """A network loaded and ready to run."""

    @property
    def input(self) -> TensorSpec:
        """Input of the network. Where the file does not say how many values integers take, few enough for any."""
        ...

    @property
    def batch(self) -> int:
        """Inputs of one call of the network."""
        ...

    def run(self, inputs: Inputs) -> Outputs:
        """Outputs `(n, ...)` float32 of `inputs` `(n, ...)`.

        The network itself always sees `batch` inputs: more are run batch after batch, and a last, smaller batch is
        filled up with its own last input. So `n` equal to the batch is one call: that is what is timed.
        """
        ...


class Runtime(Protocol):
    """A library that runs networks; stateless."""

    @property
    def name(self) -> str:
        """Key of the runtime in `nas.runtimes.RUNTIMES`."""
        ...

    @property
    def precisions(self) -> tuple[str, ...]:
        """Precisions that the runtime offers on some host; see `unsupported` for this one."""
        ...

    def missing(self) -> str | None:
        """The command that installs the runtime, or None where it is installed."""
        ...

    def unsupported(self, precision: str, device: str = CPU) -> str | None:
        """Reason why this host cannot run `precision` on `device` (a sentence for people), or None where it can."""
        ...

    def prepare(
        self,
        model: Path,
        precision: str,
        out_dir: Path,
        calibration: Inputs | None,
        *,
        float_part: FloatPart | None = None,
        isa: Collection[str] | None = None,
    ) -> Path:
        """Turn an fp32 ONNX file into what `load` needs for `precision`, and return its path.

        That is `model` itself where there is nothing to do, else a new file in `out_dir`, which appears under its
        name only when complete. `calibration` `(n, ...)`, pre-processed like the network's input, is needed by
        `int8` alone, and so is `float_part`, what is not to be quantised. `isa`, the instruction sets of the
        processor that will run the file (flags as in `/proc/cpuinfo`; None: this host's), is for both kinds of int8.

        Raises:
            MissingDependencyError: the runtime is not installed.
            UnknownNameError: the runtime has no such precision.
            UserError: `int8` without calibration inputs, or a file that cannot be read.
        """
        ...

    def load(self, path: Path, deployment: Deployment) -> Session:
        """Load what `prepare` returned.

        Raises:
            MissingDependencyError: the runtime is not installed.
            UserError: the file is no network with one input of `deployment.batch` and one output, or this host
                cannot run the precision.
        """
        ...


def missing_modules(modules: Sequence[str], install: str) -> str | None:
    """`install` where one of `modules` cannot be imported, else None. Imports none of them."""
    return install if any(find_spec(module) is None for module in modules) else None


def require(runtime: Runtime) -> None:
    """Raises MissingDependencyError where `runtime` is not installed."""
    install = runtime.missing()
    if install is not None:
        raise MissingDependencyError(f"the runtime {runtime.name!r}", install)


def check_precision(runtime: Runtime, precision: str) -> None:
    """Raises UnknownNameError where `runtime` does not offer `precision` on any host."""
    if precision not in runtime.precisions:
        raise UnknownNameError(f"precision of {runtime.name}", precision, runtime.precisions)


def check_supported(runtime: Runtime, precision: str, device: str = CPU) -> None:
    """Raises a UserError where this host cannot run `precision` on `device`, rather than silently running another."""
    check_precision(runtime, precision)
    reason = runtime.unsupported(precision, device)
    if reason is not None:
        where = "this host" if device == CPU else device
        raise UserError(f"{runtime.name} cannot run {precision} on {where}: {reason}", "choose another precision")


def check_calibration(runtime: Runtime, calibration: Inputs | None) -> Inputs:
    """The calibration inputs, checked.

    Raises:
        UserError: there are none, or no network takes such arrays.
    """
    if calibration is None or len(calibration) == 0:
        raise UserError(
            f"{runtime.name} int8 needs calibration inputs",
            "give a few hundred training examples, pre-processed like the network's input",
        )
    if calibration.ndim < 2 or calibration.dtype.name not in DTYPES:
        raise UserError(
            f"calibration inputs have shape {calibration.shape} and type {calibration.dtype}",
            f"give (n, ...) of {', '.join(DTYPES)}, as the network takes them",
        )
    return calibration


def check_input(path: Path, declared: OnnxInput, deployment: Deployment) -> TensorSpec:
    """One input of a network, from what its file declares; a free batch becomes the deployment's.

    Raises:
        UserError: an input without a batch axis, a size left open, or a fixed batch other than `deployment.batch`.
    """
    batch, *shape = declared.shape or (None,)
    fixed = tuple(size for size in shape if size is not None)
    if not fixed or len(fixed) < len(shape):
        raise UserError(
            f"the input of {path.name} has shape {list(declared.shape)}",
            "export it as (batch, ...), all but the batch fixed",
        )
    if batch not in (None, deployment.batch):
        raise UserError(
            f"{path.name} was exported for batch {batch}, not {deployment.batch}", "export it with the batch you deploy"
        )
    return TensorSpec(fixed, declared.dtype, declared.values)


GPU_ONLY = "half precision is for GPUs, and processors compute it in fp32 or slower"
"""Reason why fp16 is not offered on the CPU."""


def run_in_batches(call: Callable[[Inputs], Outputs], inputs: Inputs, batch: int) -> Outputs:
    """Run a network that takes `batch` inputs a call on any number of them (see `Session.run`)."""
    if len(inputs) == batch:
        return call(inputs)
    outputs = []
    for start in range(0, len(inputs), batch):
        chunk = inputs[start : start + batch]
        if len(chunk) < batch:
            chunk = np.concatenate([chunk, np.repeat(chunk[-1:], batch - len(chunk), axis=0)])
        outputs.append(np.array(call(chunk)))
    if not outputs:
        raise ValueError("no inputs to run")
    return np.concatenate(outputs)[: len(inputs)]


@contextmanager
def staging_folder(out_dir: Path) -> Iterator[Path]:
    """A temporary folder beside the results: finished files are moved out of it, the rest disappears with it."""
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".preparing-", dir=out_dir))
    except OSError as error:
        raise UserError(f"cannot write to {out_dir}: {error.strerror}", "choose another output folder") from error
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def int8_name(model: Path, runtime: str, float_part: FloatPart | None, suffix: str) -> str:
    """Name of the file that `Runtime.prepare` makes of `model` for int8."""
    part = f"-float-{float_part.name}" if float_part is not None else ""
    return f"{model.stem}.{runtime}-int8{part}{suffix}"


def publish(staged: Path, final: Path) -> Path:
    """Give a finished file its name, in one step."""
    os.replace(staged, final)
    return final
