"""The folder from which another server, Triton or OpenVINO Model Server, reads a bundle's network."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from nas.bundles.receipt import Receipt
from nas.errors import UserError
from nas.files.writing import staged_folder, write_json
from nas.networks.find import LABELS
from nas.runtimes.onnx_file import read_input
from nas.runtimes.ov import compile_settings, float_hint
from nas.serving.checks import checked_bundle, refuse_others, refuse_torch, served_name

_TRITON_TYPES: Mapping[str, str] = {"float32": "TYPE_FP32", "int64": "TYPE_INT64", "uint8": "TYPE_UINT8"}


def write_repository(bundle: str | Path, server: str, out: Path) -> Path:
    """Write the folder that another server reads its models from.

    Those servers run the network alone: clients send inputs as `preprocess.json` says, not files.

    Args:
        bundle: its folder, or `RUN#k`.
        server: a key of `SERVERS`.
        out: the folder; other models in it stay, this one is replaced.

    Raises:
        UserError: no bundle, or one that the server cannot run as it was measured.
    """
    folder, receipt = checked_bundle(bundle)
    refuse_torch(receipt)
    name = served_name(folder)
    if (out / name).exists():
        refuse_others(out / name, "1")
    out.mkdir(parents=True, exist_ok=True)
    SERVERS[server](folder, receipt, name, out)
    return out


def _triton(folder: Path, receipt: Receipt, name: str, out: Path) -> None:
    """https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/user_guide/model_repository.html"""
    deployment, labels = receipt.deployment, json.loads((folder / LABELS).read_text(encoding="utf-8"))
    with staged_folder(out / name) as staged:
        input_name, output_name = _place_model(folder, receipt, staged / "1")
        (staged / "labels.txt").write_text("".join(f"{label}\n" for label in labels), encoding="utf-8")
        is_openvino = deployment.runtime == "openvino"
        parameters = {"INFERENCE_NUM_THREADS" if is_openvino else "intra_op_thread_count": str(deployment.threads)}
        if is_openvino:
            parameters["INFERENCE_PRECISION_HINT"] = float_hint(deployment.precision)
        kind = 'backend: "openvino"' if is_openvino else 'platform: "onnxruntime_onnx"'
        input, batch = receipt.signature.input, deployment.batch
        lines = [
            f'name: "{name}"',
            kind,
            "max_batch_size: 0  # the file has one static shape, its batch included",
            f'input [{{ name: "{input_name}" data_type: {_TRITON_TYPES[input.dtype]} '
            f"dims: {list(input.batched(batch))} }}]",
            f'output [{{ name: "{output_name}" data_type: TYPE_FP32 '
            f'dims: {[batch, *receipt.signature.output.shape]} label_filename: "labels.txt" }}]',
            "instance_group [{ kind: KIND_CPU count: 1 }]",
            *(f'parameters {{ key: "{k}" value: {{ string_value: "{v}" }} }}' for k, v in parameters.items()),
        ]
        (staged / "config.pbtxt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _ovms(folder: Path, receipt: Receipt, name: str, out: Path) -> None:
    """https://docs.openvino.ai/2026/model-server/ovms_docs_models_repository.html"""
    deployment = receipt.deployment
    if deployment.runtime != "openvino" and deployment.precision != "fp32":
        raise UserError(
            f"'{folder}' is for {deployment.name}, and OpenVINO Model Server would not run it as it was measured",
            "export the network with --runtime openvino, or take --repository triton",
        )
    with staged_folder(out / name) as staged:
        _place_model(folder, receipt, staged / "1")
    config = {
        "name": name, "base_path": f"/models/{name}", "target_device": "CPU",
        "plugin_config": compile_settings(deployment, float_hint(deployment.precision)),
    }  # fmt: skip
    path = out / "config.json"
    known = json.loads(path.read_text(encoding="utf-8"))["model_config_list"] if path.is_file() else []
    others = [entry for entry in known if entry["config"]["name"] != name]
    document = {"model_config_list": [*others, {"config": config}]}
    write_json(path, document)


SERVERS: Mapping[str, Callable[[Path, Receipt, str, Path], None]] = {"triton": _triton, "ovms": _ovms}
"""Server -> writes a model into its repository."""


def _place_model(folder: Path, receipt: Receipt, out: Path) -> tuple[str, str]:
    """The deployed file under the name that servers look for; the names of its input and output."""
    out.mkdir(parents=True)
    model = folder / receipt.model
    placed = out / f"model{model.suffix}"
    shutil.copyfile(model, placed)
    weights = model.with_suffix(".bin")
    if model.suffix == ".xml":
        shutil.copyfile(weights, placed.with_suffix(".bin"))
    elif receipt.deployment.runtime == "openvino":  # Triton's OpenVINO looks for its own format
        import openvino

        openvino.save_model(openvino.Core().read_model(placed), out / "model.xml", compress_to_fp16=False)
        placed.unlink()
        placed = out / "model.xml"
    return _names_in(placed)


def _names_in(model: Path) -> tuple[str, str]:
    """Names of the input and the output of a network's file."""
    if model.suffix == ".xml":
        import openvino

        network = openvino.Core().read_model(model)
        return str(network.inputs[0].any_name), str(network.outputs[0].any_name)
    import onnx

    return read_input(model).name, str(onnx.load(model, load_external_data=False).graph.output[0].name)
