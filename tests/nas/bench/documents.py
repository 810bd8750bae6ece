"""A bench's document as `run_bench` makes it, from made-up measurements."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nas.bench.cells import Cell, plan_cells
from nas.bench.document import SCHEMA, cell_document, model_document, operators_document
from nas.bench.models import BenchModel
from nas.data.images import image_input
from nas.deployment import Deployment
from nas.measure.job import SessionTiming
from nas.measure.measurement import Measurement, MeasureRequest, summarise
from nas.runtimes.nodes import NodeTime

DEPLOYMENTS = tuple(
    Deployment(runtime, precision, threads=2)
    for runtime, precision in (
        ("onnxruntime", "fp32"),
        ("onnxruntime", "int8"),
        ("openvino", "fp32"),
        ("openvino", "bf16"),
        ("openvino", "int8"),
    )
)
BASE_MS = {"onnxruntime-fp32": 4.0, "onnxruntime-int8": 1.6, "openvino-fp32": 4.2, "openvino-bf16": 1.1}
REASON = "model.onnx cannot be changed to batch 8: its output then has shape (1, 56)"


def made_up(cell: Cell, factor: float = 1.0, disturbance: str | None = None) -> Measurement:
    """Three sessions a few per cent apart; batches and streams pay a little."""
    saved = cell.deployment.batch**0.15 * cell.streams**0.4
    p50_ms = factor * BASE_MS.get(cell.deployment.name, 0.8) * cell.deployment.batch / saved
    sessions = [
        SessionTiming(
            p50_ms=p50_ms * drift,
            p90_ms=1.1 * p50_ms,
            p99_ms=1.4 * p50_ms,
            calls=100,
            reference_p50_ms=1.0,
            load_ms=5.0,
            memory_bytes=8_000_000,
            cpu_share=1.0,
            disturbance=disturbance,
        )
        for drift in (0.97, 1.0, 1.05)
    ]
    return summarise(MeasureRequest(Path("model.onnx"), cell.deployment, cell.streams), sessions, None, 1.0)


SPACED = {"onnxruntime": {"20/s": 4.25, "idle": 4.5}, "openvino": {"20/s": 9.75, "idle": None}}
"""Milliseconds with pauses, by runtime and pattern; None: it cannot be called so."""


def spaced(cell: Cell) -> dict[str, float | None]:
    """Of cells of single calls at the smallest batch alone."""
    one = cell.deployment.batch == cell.streams == 1
    return dict(SPACED[cell.deployment.runtime]) if one else {}


def document(names: Sequence[str] = ("runs/photos#1", "torchvision:resnet50")) -> dict[str, Any]:
    """Of the first network one cell is disturbed; batch 8 of the second's openvino-int8 could not be measured."""
    models = [
        BenchModel(name=name, input=image_input(128), torchvision="resnet50" if "torchvision" in name else None)
        for name in names
    ]
    cells = plan_cells(len(models), DEPLOYMENTS, (1, 8, 32), 2)
    measured = [
        REASON
        if cell.model == 1 and cell.deployment.name == "openvino-int8" and cell.deployment.batch == 8
        else made_up(cell, 1 + 4 * cell.model, "threads waited" if i == 0 else None)
        for i, cell in enumerate(cells)
    ]
    nodes = [NodeTime(f"/stages/{i}/conv/Conv", 0.1 * i) for i in range(8)]
    return {
        "schema": SCHEMA,
        "device": "A processor",
        "fingerprint": {"packages": [["onnxruntime", "1.31.1"]]},
        "threads": 2,
        "sessions": 3,
        "calls": ["continuous", *SPACED["onnxruntime"]],
        "models": [model_document(model) for model in models],
        "cells": [cell_document(c, models[c.model], m, spaced(c)) for c, m in zip(cells, measured, strict=True)],
        "blocks": [],
        "operators": [
            operators_document(cell, models[cell.model], nodes, 3)
            for cell in cells
            if cell.streams == 1 and cell.deployment.batch == 1
        ],
    }
