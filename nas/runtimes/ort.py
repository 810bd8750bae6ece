"""ONNX Runtime: fp32; on the CPU int8 by static quantisation (QDQ) or with ranges found in each call, on a GPU fp16."""

import contextlib
import io
import json
import logging
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nas.deployment import CPU, DYNAMIC_INT8, Deployment
from nas.errors import UserError
from nas.runtimes.base import (
    GPU_ONLY,
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
from nas.runtimes.devices import execution_providers, why_no_device, why_no_provider
from nas.runtimes.nodes import NodeTime, precision_of, run_for, typical
from nas.runtimes.onnx_file import OnnxInput, input_type, read_input
from search_spaces.signature import DTYPES, TensorSpec

_KERNEL_TIME = "_kernel_time"
"""Suffix that the profiler appends to the name of an operator."""
_TOKEN_LAYERS = ("MatMul", "Gemm", "Conv")
"""All that int8 computes in a network on token ids: between its layers are norms, softmax and changes of order, which
stay in floating point, and integers around them would only be converted."""


class OrtSession:
    """One loaded network; see `nas.runtimes.base.Session`."""

    def __init__(self, session: Any, input_name: str, input: TensorSpec, batch: int) -> None:
        self.session = session
        self._input_name = input_name
        self.input, self.batch = input, batch

    def run(self, inputs: Inputs) -> Outputs:
        return run_in_batches(self._call, inputs, self.batch)

    def _call(self, inputs: Inputs) -> Outputs:
        output: Outputs = self.session.run(None, {self._input_name: inputs})[0]
        return output


def session_settings(deployment: Deployment) -> tuple[dict[str, int], dict[str, str]]:
    """Attributes of ONNX Runtime's `SessionOptions`, and entries of their configuration, that the deployment is
    measured with and that its bundle runs with.

    Operators run one after the other, and only errors are logged. Worker threads stay spinning between operators (the
    library's default), because a network of small layers would otherwise pay a wake-up per operator: the fastest tenth
    of calls of mobilenet_v3_large at 128 px on two (busy) cores took 1.5-2.0 ms with and 2.1-2.2 ms without. They spin
    on for some 20 ms after a call. With one thread there is nobody to wake.
    """
    attributes = {"intra_op_num_threads": deployment.threads, "inter_op_num_threads": 1, "log_severity_level": 3}
    return attributes, {"session.intra_op.allow_spinning": "1" if deployment.threads > 1 else "0"}


class OnnxRuntime:
    """See `nas.runtimes.base.Runtime`."""

    name = "onnxruntime"
    precisions = ("fp32", "int8", DYNAMIC_INT8, "fp16")

    def missing(self) -> str | None:
        return missing_modules(("onnxruntime",), "pip install onnxruntime")

    def unsupported(self, precision: str, device: str = CPU) -> str | None:
        check_precision(self, precision)
        if device == CPU:
            return GPU_ONLY if precision == "fp16" else None
        if precision in ("int8", DYNAMIC_INT8):
            return "its integer networks are made for the instructions of processors"
        import onnxruntime as ort

        return why_no_device(device) or why_no_provider(device, ort.get_available_providers())

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
        if precision == "fp32":
            return model
        if precision == "fp16":
            with staging_folder(out_dir) as staging:
                return publish(_halve(model, staging), out_dir / f"{model.stem}.{self.name}-fp16.onnx")
        if precision == DYNAMIC_INT8:
            with staging_folder(out_dir) as staging:
                return publish(
                    _quantize_weights(model, staging, isa), out_dir / f"{model.stem}.{self.name}-{precision}.onnx"
                )
        inputs = check_calibration(self, calibration)
        final = out_dir / int8_name(model, self.name, float_part, ".onnx")
        with staging_folder(out_dir) as staging:
            return publish(_quantize(model, staging, inputs, float_part, isa), final)

    def load(self, path: Path, deployment: Deployment) -> Session:
        return self._load(path, deployment)

    def node_times(self, path: Path, deployment: Deployment, inputs: Inputs, seconds: float) -> list[NodeTime]:
        """See `nas.runtimes.nodes.NodeTimer`."""
        with tempfile.TemporaryDirectory(prefix="nas-nodes-") as folder:
            session = self._load(path, deployment, profile=Path(folder) / "nodes")
            run_for(seconds, time.perf_counter, lambda: session.run(inputs))
            events = json.loads(Path(session.session.end_profiling()).read_text())
        durations: dict[str, list[float]] = {}
        told: dict[str, dict[str, Any]] = {}
        for event in events:
            if event.get("cat") == "Node" and event["name"].endswith(_KERNEL_TIME):
                name = event["name"].removesuffix(_KERNEL_TIME)
                durations.setdefault(name, []).append(event["dur"])
                told[name] = event.get("args", {})
        return [
            NodeTime(name, typical(times) / 1e3, str(told[name].get("op_name", "")), _computed_in(told[name]))
            for name, times in durations.items()
        ]

    def _load(self, path: Path, deployment: Deployment, profile: Path | None = None) -> OrtSession:
        check_supported(self, deployment.precision, deployment.device)
        require(self)
        import onnxruntime as ort
        from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

        options = ort.SessionOptions()
        attributes, entries = session_settings(deployment)
        for name, value in attributes.items():
            setattr(options, name, value)
        for key, entry in entries.items():
            options.add_session_config_entry(key, entry)
        if profile is not None:
            options.enable_profiling = True
            options.profile_file_prefix = str(profile)
        try:
            providers = execution_providers(deployment.device, ort.get_available_providers(), deployment.precision)
            session = ort.InferenceSession(path, options, providers=providers)
        except (
            ort_errors.Fail,
            ort_errors.InvalidArgument,
            ort_errors.InvalidGraph,
            ort_errors.InvalidProtobuf,
            ort_errors.NoSuchFile,
            ort_errors.NotImplemented,
            ort_errors.RuntimeException,
        ) as error:
            raise UserError(f"onnxruntime cannot load {path}: {error}", "export the network again") from error
        if deployment.device != CPU and session.get_providers()[0] == "CPUExecutionProvider":
            raise UserError(  # ONNX Runtime falls back to the CPU where a library of CUDA is missing
                f"onnxruntime could not start its CUDA provider for {path.name}, and would run on the CPU",
                "install the CUDA and cuDNN libraries that its version needs",
            )
        inputs, outputs = session.get_inputs(), session.get_outputs()
        if len(inputs) != 1 or len(outputs) != 1:
            raise UserError(
                f"{path.name} has {len(inputs)} inputs and {len(outputs)} outputs", "export it with one of each"
            )
        entry = inputs[0]
        kind = input_type(entry.type.removeprefix("tensor(").removesuffix(")"), _metadata(session))
        if kind is None:
            raise UserError(f"the input of {path.name} is a {entry.type}", f"export it with one of {', '.join(DTYPES)}")
        shape = tuple(size if isinstance(size, int) else None for size in entry.shape)
        spec = check_input(path, OnnxInput(entry.name, shape, *kind), deployment)
        return OrtSession(session, entry.name, spec, deployment.batch)


def _computed_in(told: Mapping[str, Any]) -> str:
    """Precision of an operator by the type of its first input, which the profiler tells as `[{"float": [1, 8]}, ...]`.

    Of a conversion it is what it converts from.
    """
    first: Mapping[str, Any] = next(iter(told.get("input_type_shape", ())), {})
    return precision_of(next(iter(first), ""))


def _metadata(session: Any) -> dict[str, str]:
    found: dict[str, str] = session.get_modelmeta().custom_metadata_map
    return found


class _CalibrationInputs:
    """Feeds calibration inputs one batch at a time, in the form `onnxruntime.quantization` asks for."""

    def __init__(self, input_name: str, inputs: Inputs, batch: int) -> None:
        whole = len(inputs) - len(inputs) % batch
        # Fewer inputs than one batch: repeat them, so that a range is seen at all.
        self._inputs = inputs[:whole] if whole else np.resize(inputs, (batch, *inputs.shape[1:]))
        self._input_name = input_name
        self._batch = batch
        self._start = 0

    def get_next(self) -> dict[str, Inputs] | None:
        if self._start >= len(self._inputs):
            return None
        batch = self._inputs[self._start : self._start + self._batch]
        self._start += self._batch
        return {self._input_name: batch}


def _quantize(
    model: Path, staging: Path, inputs: Inputs, float_part: FloatPart | None, isa: Collection[str] | None
) -> Path:
    import onnx
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

    declared = read_input(model)
    reader = _CalibrationInputs(declared.name, inputs, batch=declared.shape[0] or 1)
    quantized = staging / "quantized.onnx"
    with _silent():
        inferred = _simplified(model, staging)
        graph = onnx.load(inferred, load_external_data=False).graph
        excluded = {n.name for n in graph.node if float_part is not None and float_part.contains(n.name)}
        options: dict[str, Any] = {}
        if declared.dtype == "int64":
            options["op_types_to_quantize"] = list(_TOKEN_LAYERS)
            excluded |= _products_of_maps(graph)
        quantize_static(
            inferred,
            quantized,
            reader,
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            # Unsigned activations with signed weights are what the processor's dot-product instructions multiply.
            # Signed activations are far slower: 7.0 against 2.5 ms (resnet18) and 5.8 against 1.8 ms
            # (mobilenet_v3_large) at 128 px on one Sapphire-Rapids core, with the same correlation
            # with fp32.
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            # Percentile ranges were as fast, agreed as well with fp32 (correlation 0.9988 and 0.9998 for both, on noise
            # and untrained weights; trained networks may differ), and need histograms of every activation.
            calibrate_method=CalibrationMethod.MinMax,
            nodes_to_exclude=[n.name for n in graph.node if n.name in excluded],
            reduce_range=saturates_int8(isa),
            **options,
        )
    return quantized


def _simplified(model: Path, staging: Path) -> Path:
    """The network after shape inference and constant folding, as the library asks before it quantises: batch norms
    folded into convolutions are not quantised twice."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    simplified = staging / "inferred.onnx"
    # Shapes are static, and of networks on token ids the symbolic inference does not know all.
    on_tokens = read_input(model).dtype == "int64"
    quant_pre_process(model, simplified, auto_merge=True, skip_symbolic_shape=on_tokens)
    return simplified


def _quantize_weights(model: Path, staging: Path, isa: Collection[str] | None) -> Path:
    """The network with int8 weights in its matrix products, whose other factor is rounded in each call.

    Its convolutions stay as they are, and so do products of two maps.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantized = staging / "quantized.onnx"
    with _silent():
        quantize_dynamic(
            _simplified(model, staging),
            quantized,
            op_types_to_quantize=["MatMul", "Gemm"],
            per_channel=True,
            weight_type=QuantType.QInt8,
            reduce_range=saturates_int8(isa),
        )
    return quantized


def _products_of_maps(graph: Any) -> set[str]:
    """Names of the matrix products that have no weights: those of attention, which int8 costs more than it saves."""
    constants = {tensor.name for tensor in graph.initializer}
    constants |= {output for node in graph.node if node.op_type == "Constant" for output in node.output}
    return {n.name for n in graph.node if n.op_type == "MatMul" and not constants.intersection(n.input)}


def _halve(model: Path, staging: Path) -> Path:
    """The network computing in fp16, its input and output still in fp32."""
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    halved = staging / "fp16.onnx"
    onnx.save(convert_float_to_float16(onnx.load(model), keep_io_types=True), halved)
    return halved


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """The quantiser prints and warns (through the root logger) what its user cannot act on."""
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(logging.NOTSET)
