"""OpenVINO on the CPU: fp32, bf16, and int8 by post-training quantisation (NNCF)."""

import contextlib
import io
import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nas.deployment import CPU, Deployment
from nas.errors import UserError
from nas.runtimes.base import (
    FloatPart,
    Inputs,
    Outputs,
    Session,
    check_calibration,
    check_input,
    check_precision,
    check_supported,
    int8_name,
    missing_modules,
    publish,
    require,
    run_in_batches,
    staging_folder,
)
from nas.runtimes.cpu import saturates_int8
from nas.runtimes.nodes import NodeTime, precision_of, run_for
from nas.runtimes.onnx_file import VALUES_KEY, OnnxInput, input_type, read_input
from nas.runtimes.self_test import products_are_right
from search_spaces.signature import DTYPES, TensorSpec

_TYPES = {"f32": "float", "i64": "int64", "u8": "uint8"}
"""OpenVINO's names of the types of inputs -> ONNX's."""
_WARMING = 0.25
"""Share of the time under the profiler whose calls do not count."""
HALF_US = 0.0005
"""Milliseconds."""


class OpenVinoSession:
    """One compiled network; see `nas.runtimes.base.Session`."""

    def __init__(self, request: Any, input: TensorSpec, batch: int) -> None:
        self.request = request
        self.input, self.batch = input, batch

    def run(self, inputs: Inputs) -> Outputs:
        return run_in_batches(self._call, inputs, self.batch)

    def _call(self, inputs: Inputs) -> Outputs:
        # Inputs are shared (no copy in); the output is copied, because the next call overwrites its buffer.
        output: Outputs = self.request.infer([inputs], share_inputs=True)[0]
        return output


class OpenVinoStreams:
    """One compiled network with several streams; see `nas.runtimes.streams.Streams`."""

    def __init__(self, requests: Any, input: TensorSpec, batch: int) -> None:
        self._requests = requests
        self.input, self.batch = input, batch

    def run_many(self, inputs: Inputs, calls: int) -> Outputs:
        for _ in range(calls):
            self._requests.start_async([inputs], share_inputs=True)  # waits for an idle request
        self._requests.wait_all()
        output: Outputs = self._requests[0].get_output_tensor().data.copy()
        return output


class OpenVino:
    """See `nas.runtimes.base.Runtime`."""

    name = "openvino"
    precisions = ("fp32", "bf16", "int8")

    def missing(self) -> str | None:
        return missing_modules(("openvino",), "pip install openvino nncf")

    def unsupported(self, precision: str, device: str = CPU) -> str | None:
        check_precision(self, precision)
        if device != CPU:
            return "it runs on the CPU alone"
        if precision == "bf16" and not _offers_bf16():
            # The CPU plugin takes the hint and quietly computes in fp32, or rounds as bf16 would at the price of fp32.
            return "its processor has no bf16 arithmetic"
        if precision == "bf16" and not computes_right("bf16"):
            return "its products in bf16 are wrong on this processor: another version of openvino may be right"
        return None

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
        check_precision(self, precision)
        require(self)
        if precision != "int8":
            return model
        inputs = check_calibration(self, calibration)
        final = out_dir / int8_name(model, self.name, float_part, ".xml")
        with staging_folder(out_dir) as staging:
            staged = _quantize(model, staging, inputs, float_part, isa)
            # The weights first: whoever sees the .xml also finds its .bin.
            publish(staged.with_suffix(".bin"), final.with_suffix(".bin"))
            return publish(staged, final)

    def load(self, path: Path, deployment: Deployment) -> Session:
        return self._load(path, deployment, {})

    def load_streams(self, path: Path, deployment: Deployment, streams: int) -> OpenVinoStreams:
        """See `nas.runtimes.streams.StreamLoader`."""
        import openvino

        config = {"PERFORMANCE_HINT": "THROUGHPUT", "NUM_STREAMS": streams}
        session = self._load(path, deployment, config)
        compiled = session.request.get_compiled_model()
        return OpenVinoStreams(openvino.AsyncInferQueue(compiled, streams), session.input, session.batch)

    def node_times(self, path: Path, deployment: Deployment, inputs: Inputs, seconds: float) -> list[NodeTime]:
        """See `nas.runtimes.nodes.NodeTimer`."""
        session = self._load(path, deployment, {"PERF_COUNT": True})
        # The counters are means over all calls since the network was loaded. The first calls take several times as
        # long as later ones, so what they came to is taken off again.
        early = _counters(session, inputs, _WARMING * seconds)
        late = _counters(session, inputs, (1 - _WARMING) * seconds)
        return [
            NodeTime(
                node.node_name,
                since(early, late, node.node_name),
                node.node_type,
                precision_of(node.exec_type.rpartition("_")[2]),  # the kernel's name: brgconv_avx512_I8
            )
            for node in late.nodes
        ]

    def _load(self, path: Path, deployment: Deployment, extra: dict[str, Any]) -> OpenVinoSession:
        check_supported(self, deployment.precision, deployment.device)
        require(self)

        network = _read(path)
        if len(network.inputs) != 1 or len(network.outputs) != 1:
            raise UserError(
                f"{path.name} has {len(network.inputs)} inputs and {len(network.outputs)} outputs",
                "export it with one of each",
            )
        partial = network.inputs[0].get_partial_shape()
        spec = check_input(path, _declared(path, network), deployment)
        if partial.is_dynamic:
            network.reshape(list(spec.batched(deployment.batch)))
        config = compile_settings(deployment, float_hint(deployment.precision))
        try:
            compiled = _core().compile_model(network, "CPU", {**config, **extra})
        except RuntimeError as error:
            raise UserError(f"openvino cannot compile {path}: {error}", "export the network again") from error
        return OpenVinoSession(compiled.create_infer_request(), spec, deployment.batch)


@dataclass(frozen=True, slots=True)
class Counters:
    """The profiler's counters after some calls."""

    calls: int
    """Since the counters were last read."""
    nodes: Sequence[Any]
    """The operators that ran."""
    ms: Mapping[str, float]
    """By operator, the mean over all calls since the network was loaded."""


def _counters(session: OpenVinoSession, inputs: Inputs, seconds: float) -> Counters:
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1
        session.run(inputs)

    run_for(seconds, time.perf_counter, call)
    nodes = [n for n in session.request.profiling_info if str(n.status) == "Status.EXECUTED"]
    # They are cut to whole microseconds: half of one is lost on average.
    return Counters(calls, nodes, {n.node_name: n.real_time.total_seconds() * 1e3 + HALF_US for n in nodes})


def since(early: Counters, late: Counters, operator: str) -> float:
    """Mean of an operator's milliseconds in the calls between two readings of the counters; half a microsecond at
    least. One that did not run before the first reading has the mean of the second."""
    if operator not in early.ms:
        return late.ms[operator]
    total = (early.calls + late.calls) * late.ms[operator] - early.calls * early.ms[operator]
    return max(HALF_US, total / late.calls)


def _declared(path: Path, network: Any) -> OnnxInput:
    """The network's input as its file declares it. Raises `UserError` for a type that no network of ours takes."""
    entry = network.inputs[0]
    name = entry.get_element_type().get_type_name()
    # Only integers have more to tell, which costs another reading of the file.
    kind = input_type(_TYPES.get(name, name), {} if name == "f32" else _metadata(path, network))
    if kind is None:
        raise UserError(f"the input of {path.name} is of type {name}", f"export it with one of {', '.join(DTYPES)}")
    sizes = entry.get_partial_shape()
    shape = tuple(size.get_length() if size.is_static else None for size in sizes)
    return OnnxInput(entry.get_node().get_friendly_name(), shape, *kind)


def _metadata(path: Path, network: Any) -> dict[str, str]:
    """The part of a file's metadata that is ours; quantised files keep what the ONNX file said."""
    if network.has_rt_info(VALUES_KEY):
        return {VALUES_KEY: str(network.get_rt_info(VALUES_KEY).value)}
    if path.suffix != ".onnx" or missing_modules(("onnx",), "pip install onnx") is not None:
        return {}
    values = read_input(path).values
    return {} if values is None else {VALUES_KEY: str(values)}


def compile_settings(deployment: Deployment, hint: str) -> dict[str, Any]:
    """Configuration of OpenVINO that the deployment is measured with and that its bundle runs with.

    The process is pinned from outside: a second pinning would put all processes on the first cores. `hint`: see
    `float_hint`.
    """
    return {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": deployment.threads,
        "INFERENCE_PRECISION_HINT": hint,
        "ENABLE_CPU_PINNING": False,
    }


def float_hint(precision: str) -> str:
    """The type of the layers that are computed in floating point.

    What an int8 network keeps in floating point runs in bf16 where the processor can: at 128 px on one
    Sapphire-Rapids core 1.75 against 1.94 ms for mobilenet_v3_large (resnet18: 1.22 against 1.26 ms), with the same
    correlation with fp32 (0.9999).
    """
    if precision == "bf16" or (precision == "int8" and _has_bf16()):
        return "bf16"
    return "f32"


@cache
def _core() -> Any:
    """The one core of this process, which is never released.

    The CPU plugin of each core replaces the stack that signals are handled on, and puts the former one back when it
    goes. Of two cores that go in the order they came, the second puts back what the first has freed: the next signal,
    a Ctrl-C for instance, then ends the process (OpenVINO 2026.4 on a processor with AVX-512).
    """
    import openvino

    core = openvino.Core()
    core.get_property("CPU", "FULL_DEVICE_NAME")  # loads the plugin, before any other core does
    return core


def _has_bf16() -> bool:
    return _offers_bf16() and computes_right("bf16")


def bf16_is_wrong() -> bool:
    """True if this processor computes in bf16, and OpenVINO is installed and does so wrongly."""
    return missing_modules(("openvino",), "pip install openvino") is None and _offers_bf16() and not _has_bf16()


def _offers_bf16() -> bool:
    return "BF16" in _core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


@cache
def computes_right(hint: str) -> bool:
    """False if products in the precision of that hint (`f32`, `bf16`) are wrong on this processor."""
    import openvino
    from openvino import opset13 as ops

    def multiply(left: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.float32]:
        input = ops.parameter(left.shape, np.float32)
        network = openvino.Model([ops.matmul(input, ops.constant(right), False, False)], [input])
        compiled = _core().compile_model(network, "CPU", {"INFERENCE_PRECISION_HINT": hint})
        product: NDArray[np.float32] = compiled([left])[0].copy()
        return product

    return products_are_right(multiply)


def _read(path: Path) -> Any:
    try:
        return _core().read_model(path)
    except RuntimeError as error:
        raise UserError(f"openvino cannot read {path}: {error}", "export the network again") from error


def _quantize(
    model: Path, staging: Path, inputs: Inputs, float_part: FloatPart | None, isa: Collection[str] | None
) -> Path:
    import openvino

    network = _read(model)
    batch_size = network.inputs[0].get_partial_shape()[0]
    batch = batch_size.get_length() if batch_size.is_static else 1
    whole = len(inputs) - len(inputs) % batch
    padded = inputs[:whole] if whole else np.resize(inputs, (batch, *inputs.shape[1:]))
    items = [padded[start : start + batch] for start in range(0, len(padded), batch)]
    staged = staging / "quantized.xml"
    with _silent():
        import nncf

        # One node of ONNX can become several: `conv` is then the addition of the bias, `conv/WithoutBiases` the rest.
        patterns = [f"^(?:{pattern})(?:/.*)?$" for pattern in float_part.patterns] if float_part is not None else []
        ignored = nncf.IgnoredScope(patterns=patterns, validate=False)
        # In a network on token ids what lies between layers of attention stays in floating point. Not where there are
        # none: such networks lose more so, and one of a single row was noise on one thread with AMX (2026.4.1).
        tokens = network.inputs[0].get_element_type().get_type_name() == "i64"
        attends = any(op.get_type_name() == "Softmax" for op in network.get_ops())
        options: dict[str, Any] = {"model_type": nncf.ModelType.TRANSFORMER} if tokens and attends else {}
        if saturates_int8(isa):
            # By default the weights of the first layer alone have 7 bits.
            options["advanced_parameters"] = nncf.AdvancedQuantizationParameters(overflow_fix=nncf.OverflowFix.ENABLE)
        quantized = nncf.quantize(
            network, nncf.Dataset(items), subset_size=len(items), ignored_scope=ignored, **options
        )
    for key, value in _metadata(model, network).items():
        quantized.set_rt_info(value, key)
    openvino.save_model(quantized, staged, compress_to_fp16=False)
    return staged


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """NNCF logs and draws progress bars, on stdout too; none of it is for our user."""
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(logging.NOTSET)
