"""Quantisation-aware training: the folded network learns with int8 rounding in place, and is exported with it.

What is rounded, and where, says `nas.training.rounding`. The exported ONNX file holds the ranges as
QuantizeLinear / DequantizeLinear pairs, which ONNX Runtime and OpenVINO execute in int8.
"""

import warnings
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.ao.quantization import FakeQuantize

from nas.deploy.deploy import PARITY_IMAGES
from nas.deploy.onnx import INPUT_NAME, OUTPUT_NAME, check_parity, export_onnx
from nas.deploy.quantised import FILE, QuantisedInTraining, write_quantised
from nas.deployment import Deployment
from nas.files.tensors import load_tensors
from nas.files.writing import staged_file
from nas.networks.description import NetworkDescription
from nas.runtimes import load_runtime
from nas.runtimes.cpu import largest_int8_weight
from nas.tasks import TaskData, task_of
from nas.tasks.examples import examples_of
from nas.training.folder import BEST, train_in
from nas.training.loop import Training
from nas.training.objective import Objective
from nas.training.recipe import EarlyStoppingSettings, Recipe, ScheduleSettings
from nas.training.rounding import fixed, ranges, rounded
from nas.training.setup import Setup
from nas.training.world import World
from search_spaces import TensorSpec
from search_spaces.modules import folded

PLAIN_FILE = "plain.onnx"
RUNTIMES = ("onnxruntime", "openvino")
_BATCH = 64


def calibrate(network: nn.Module, inputs: Iterable[torch.Tensor]) -> None:
    """Take the first ranges from batches of inputs, without rounding yet; afterwards rounding is on."""
    network.eval()
    for found in ranges(network):
        found.disable_fake_quant()
        found.enable_observer()
    with torch.no_grad():
        for batch in inputs:
            network(batch)
    for found in ranges(network):
        found.enable_fake_quant()
        found.disable_observer()


def calibration_inputs(objective: Objective, count: int, seed: int) -> Iterable[torch.Tensor]:
    """Batches of `count` random training examples (all, where there are fewer), in the order of the data."""
    chosen = np.sort(np.random.default_rng(seed).permutation(objective.train_examples)[:count])
    parts = (chosen[start : start + _BATCH] for start in range(0, len(chosen), _BATCH))
    return (objective.inputs(torch.from_numpy(part)) for part in parts)


def freeze_ranges(network: nn.Module) -> nn.Module:
    """Stop learning ranges, for evaluation and export."""
    for module in network.modules():
        if isinstance(module, FakeQuantize):
            module.disable_observer()
    return network


def train_quantized(
    network: nn.Module, description: NetworkDescription, data: TaskData, recipe: Recipe, setup: Setup, folder: Path,
    weights: Path,
) -> dict[str, Any]:  # fmt: skip
    """Train the folded network with rounding, export it, and measure it beside plain quantisation after training.

    `network` is not changed; its weights lie at `weights`. Runs on the CPU. Writes `model.onnx` (with its int8 ranges)
    into `folder`, and the record that `nas export` knows it by.

    Returns:
        Accuracy (fraction of the validation images) in each runtime and p50 latency, of both ways; how far the file's
        outputs are from those of the rounded network in torch.

    Raises:
        UserError: the training diverges, or the disk is full.
    """
    spec, world = description.signature.input, World(0, 1, torch.device("cpu"))
    stage = recipe.changed(
        epochs=recipe.qat.epochs,
        optimizer={"lr": recipe.qat.lr},
        schedule=ScheduleSettings().model_dump(),
        ema_decay=None,
        precision="fp32",
        distillation={"teacher": None},
        checkpoints={"average_epochs": 0, "deliver": "best"},
        early_stopping=EarlyStoppingSettings().model_dump(),
    )
    student = rounded(folded(network.cpu()), largest_weight=largest_int8_weight(None))
    examples = examples_of(data, spec, validate_on=recipe.validate_on)
    objective = task_of(data).objective(student, examples, stage, device=world.device)
    calibrate(student, calibration_inputs(objective, recipe.qat.calibration_images, recipe.seed))
    plain_setup = replace(setup, precision="fp32")
    training = Training(student, objective, stage, world=world, setup=plain_setup)
    train_in(folder, training)
    student.load_state_dict(load_tensors(folder / BEST)[0])
    exported = export_rounded(student, spec, folder / FILE)
    validation = data.for_input("val", spec).some(PARITY_IMAGES)
    agreement = partial(task_of(data).agreement, signature=description.signature)
    made = QuantisedInTraining(
        file=exported,
        epochs=len(training.curve),
        val_accuracy_torch=objective.validate(freeze_ranges(student), "fp32").accuracy,
        parity=check_parity(student, exported, data.inputs(validation), agreement),
    )
    write_quantised(made, weights)
    plain = export_onnx(network, spec, folder / PLAIN_FILE)
    return {
        **made.story(),
        "best_epoch": training.best_epoch,
        "deployments": _compared(exported, plain, data, description, folder),
    }


def export_rounded(network: nn.Module, input: TensorSpec, path: Path) -> Path:
    """Write ONNX with the ranges inside, for one example of `input`."""
    with staged_file(path) as staged:
        _export(network, input, staged)
        _store_weights_in_bytes(staged)
    return path


def _export(network: nn.Module, input: TensorSpec, path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the exporter, as in nas.deploy.onnx
        torch.onnx.export(
            fixed(network),
            (torch.from_numpy(input.zeros(1)),),
            str(path),
            input_names=[INPUT_NAME],
            output_names=[OUTPUT_NAME],
            dynamo=False,
        )


def _store_weights_in_bytes(path: Path) -> None:
    """Replace weights that a file rounds again at every loading by the bytes that come out, a quarter of the size."""
    import onnx
    from onnx import numpy_helper

    model = onnx.load(path)
    graph = model.graph
    same = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "Identity"}
    stored = {tensor.name: tensor for tensor in graph.initializer}
    for node in [n for n in graph.node if n.op_type == "QuantizeLinear"]:
        names = [same.get(name, name) for name in node.input]
        if not all(name in stored for name in names):
            continue  # an activation
        weight, scale, zero = (numpy_helper.to_array(stored[name]) for name in names)
        axis = next(a.i for a in node.attribute if a.name == "axis")
        shape = [-1 if dimension == axis else 1 for dimension in range(weight.ndim)]
        steps = np.rint(weight / scale.reshape(shape)) + zero.reshape(shape)
        limits = np.iinfo(zero.dtype)
        values = np.clip(steps, limits.min, limits.max).astype(zero.dtype)
        graph.initializer.append(numpy_helper.from_array(values, node.output[0]))
        graph.node.remove(node)
    used = {name for node in graph.node for name in node.input}
    for tensor in [t for t in graph.initializer if t.name not in used]:
        graph.initializer.remove(tensor)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def _compared(
    exported: Path, plain: Path, data: TaskData, description: NetworkDescription, folder: Path
) -> list[dict[str, Any]]:
    """Quantisation-aware and plain int8 in each runtime, measured together in fresh sessions."""
    from nas.measure.host import usable_threads
    from nas.measure.measurement import MeasureRequest
    from nas.measure.protocol import measure

    signature = description.signature
    calibration = data.inputs(data.for_input("train", signature.input).some(128))
    rows: list[tuple[str, MeasureRequest]] = []
    for name in RUNTIMES:
        runtime, deployment = load_runtime(name), Deployment(name, "int8", usable_threads())
        if runtime.missing() is not None:
            continue
        rows.append(("after training", MeasureRequest(runtime.prepare(plain, "int8", folder, calibration), deployment)))
        rows.append(("quantisation-aware", MeasureRequest(exported, deployment)))
    val = data.for_input("val", signature.input)
    measured = measure([request for _, request in rows])
    found = []
    for (kind, request), measurement in zip(rows, measured, strict=True):
        session = load_runtime(request.deployment.runtime).load(request.path, request.deployment)
        found.append(
            {
                "deployment": request.deployment.name,
                "quantised": kind,
                "val_accuracy": task_of(data).accuracy_in_runtime(session.run, val, data.preprocess, signature),
                "p50_ms": None if measurement.failed is not None else float(np.round(measurement.p50_ms, 4)),
            }
        )
    return found
