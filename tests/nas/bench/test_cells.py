"""Planning and telling a bench: pure."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console
from rich.table import Table

from nas.bench.cells import Cell, plan_cells, stream_counts
from nas.bench.chart import chart_of, ticks
from nas.bench.document import (
    RANDOM_INPUTS,
    TRAINING_EXAMPLES,
    cell_document,
    deployment_name,
    fastest,
    fastest_called,
    operators_document,
)
from nas.bench.figure import check_plot_path, write_plot
from nas.bench.models import BenchModel, rebatched_name
from nas.bench.tables import bench_tables, calls_table, latency_table, names_in_tables, print_bench, remarks
from nas.data.images import image_input
from nas.deployment import Deployment
from nas.errors import UserError
from nas.runtimes.nodes import NodeTime
from tests.nas.bench.documents import DEPLOYMENTS, REASON, document, made_up

INT8 = Deployment("onnxruntime", "int8", threads=2, batch=8)
MODEL = BenchModel(name="model.onnx", input=image_input(64), onnx=Path("model.onnx"))


def test_every_network_is_planned_in_every_way_beside_the_others() -> None:
    cells = plan_cells(3, DEPLOYMENTS[:2], (8, 1, 8), max_streams=2)
    assert len(cells) == len(set(cells)) == 3 * 2 * 3
    assert [c.model for c in cells[:3]] == [0, 1, 2]
    assert len({(c.deployment, c.streams) for c in cells[:3]}) == 1
    assert {(c.deployment.batch, c.streams) for c in cells} == {(1, 1), (8, 1), (1, 2)}


@pytest.mark.parametrize(("most", "counts"), [(1, []), (2, [2]), (4, [2, 4]), (6, [2, 4, 6]), (9, [2, 4, 8, 9])])
def test_stream_counts(most: int, counts: list[int]) -> None:
    assert stream_counts(most) == counts


def test_a_cell_says_what_was_measured_or_why_not() -> None:
    cell = Cell(0, INT8)
    measured = made_up(cell)
    found = cell_document(cell, MODEL, measured)
    assert found["images_per_s"] == pytest.approx(8e3 / measured.p50_ms)
    assert found["int8_calibrated_on"] == RANDOM_INPUTS
    assert deployment_name(found) == "onnxruntime-int8*"
    bundle = replace(MODEL, delivered={("onnxruntime", "int8"): Path("int8.onnx")})
    for file, images in (
        (rebatched_name(Path("int8.onnx"), 8), TRAINING_EXAMPLES),
        ("b8.ort-int8.onnx", RANDOM_INPUTS),
    ):
        of_file = replace(measured, request=replace(measured.request, path=Path("work") / file))
        assert cell_document(cell, bundle, of_file)["int8_calibrated_on"] == images
    for failed in ("no such thing", replace(measured, failed="no such thing")):
        entry = cell_document(cell, MODEL, failed)
        assert entry["not_measured"] == "no such thing"
        assert entry["images_per_s"] is entry["p50_ms"] is entry["verdict"] is None


def test_streams_have_a_throughput_but_no_latency() -> None:
    cell = Cell(0, INT8, streams=2)
    found = cell_document(cell, MODEL, made_up(cell))
    assert found["p50_ms"] is None
    assert found["images_per_s"] > 0


def test_the_time_on_a_gpu_alone_is_a_column_where_one_was_measured() -> None:
    cell = Cell(0, Deployment("torch", "fp16", 1, device="cuda:0"))
    on_cpu = made_up(Cell(0, INT8))
    sessions = tuple(
        replace(session, device_ms=ms) for session, ms in zip(on_cpu.sessions, (0.2, 0.3, 0.1), strict=True)
    )
    assert cell_document(cell, MODEL, on_cpu)["device_ms"] is None
    found = cell_document(cell, MODEL, replace(on_cpu, sessions=sessions))
    assert found["device_ms"] == 0.2
    whole = document()
    assert "GPU alone" not in [str(column.header) for column in latency_table(whole).columns]
    table = latency_table({**whole, "cells": [*whole["cells"], {**found, "batch": 1, "model": "runs/photos#1"}]})
    (column,) = [column for column in table.columns if column.header == "GPU alone"]
    assert [cell for cell in column.cells if cell != "-"] == ["0.200"]


def test_operators_are_the_slowest_with_their_share() -> None:
    nodes = [NodeTime("a", 1.0), NodeTime("b", 3.0), NodeTime("c", 4.0)]
    found = operators_document(Cell(0, INT8), MODEL, nodes, most=2)
    assert [(o["name"], o["share"]) for o in found["slowest"]] == [("c", 0.5), ("b", 0.375)]
    assert (found["total_ms"], found["operators_in_all"]) == (8.0, 3)


def test_tables_fit_100_columns_and_tell_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    long = document(("runs/classification-local-10ms#1", "torchvision:mobilenet_v3_large"))
    print_bench(long)
    text = capsys.readouterr().out
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 100
    assert REASON in " ".join(text.split())
    assert "1 of 39 measurements, the first because threads waited" in " ".join(text.split())
    assert "* calibrated on random inputs" in text
    assert "untrained, random weights: torchvision:mobilenet_v3_large" in text
    assert "openvino-int8  /stages/7/conv/Conv" in text  # the fastest deployment's operators alone
    assert "openvino-fp32  /stages" not in text
    wide = Console(width=200, record=True, quiet=True)
    print_bench(long, wide)
    json.dumps(long, allow_nan=False)


def test_a_file_that_keeps_its_batch_is_one_line() -> None:
    """In every runtime and precision and at every other batch, whose reasons name other files and numbers."""
    found = document(("fixed.onnx", "runs/photos#1"))
    for cell in found["cells"]:
        if cell["model"] == "fixed.onnx" and cell["batch"] > 1:
            file = f"b1.{cell['runtime']}-{cell['precision']}.onnx"
            why = f"its output has shape ({cell['batch']}, 3)"
            cell["not_measured"] = f"{file} cannot be changed to batch {cell['batch']}: {why}"
            cell["p50_ms"] = cell["images_per_s"] = None
    (line,) = [text for text in remarks(found) if "fixed.onnx in" in text]
    assert "at batch 8 and 32: " in line
    assert line.count("cannot be changed") == 1


def test_one_way_of_calling_is_one_table() -> None:
    whole = document()
    quick = {**whole, "cells": [c for c in whole["cells"] if (c["batch"], c["streams"]) == (1, 1)], "operators": []}
    titles = [str(part.title) for part in bench_tables(quick) if isinstance(part, Table)]
    assert titles == [
        "Latency at batch 1, ms per call (continuous calls, median of 3 fresh sessions; p50 with pauses: 20/s and "
        "idle, one session)",
        "Fastest deployment by pattern of calls, p50 ms",
    ]
    continuous = [part for part in bench_tables({**quick, "calls": ["continuous"]}) if isinstance(part, Table)]
    assert [part.title for part in continuous] == [
        "Latency at batch 1, ms per call (continuous calls, median of 3 fresh sessions)"
    ]
    assert [str(column.header) for column in latency_table(quick).columns][-1] == "images/s"
    assert len([part for part in bench_tables(whole) if isinstance(part, Table)]) == 4


def test_who_is_fastest_depends_on_the_pattern_of_calls() -> None:
    found = document()
    name = "runs/photos#1"
    by_pattern = {calls: fastest_called(found["cells"], name, calls) for calls in found["calls"]}
    names = {calls: cell["runtime"] for calls, cell in by_pattern.items() if cell is not None}
    assert names == {"continuous": "openvino", "20/s": "onnxruntime", "idle": "onnxruntime"}
    table = calls_table(found)
    rows = [str(cell) for column in table.columns for cell in column.cells]
    assert any(row.startswith("onnxruntime") and row.endswith(" 4.25") for row in rows)
    assert fastest_called(found["cells"], name, "30/s") is None


def test_the_fastest_cell_is_one_call_at_the_smallest_batch() -> None:
    best = fastest(document()["cells"], "runs/photos#1")
    assert best is not None
    assert (best["precision"], best["batch"], best["streams"]) == ("int8", 1, 1)
    assert fastest(document()["cells"], "another") is None


def test_the_chart_shows_spread_and_leaves_out_what_was_not_measured() -> None:
    chart = chart_of(document())
    assert len(chart.latencies) == 10
    assert all(row.low_ms < row.p50_ms < row.high_ms for row in chart.latencies)
    assert [row.disturbed for row in chart.latencies].count(True) == 1
    missing = next(t for t in chart.throughputs if t.model.startswith("torch") and t.deployment == "openvino-int8")
    assert [batch for batch, _ in missing.points] == [1, 32]
    assert ticks(0.3, 12) == [0.5, 1.0, 2.0, 5.0, 10.0]


def test_plots_are_written(tmp_path: Path) -> None:
    for names in (("a",), ("a", "b", "c", "d")):
        write_plot(document(names), tmp_path / "plot.png")
        with Image.open(tmp_path / "plot.png") as image:
            assert image.width == 2000
            assert len(image.getcolors(10**6) or ()) > 10
    write_plot(document(names), tmp_path / "plot.html")
    assert "onnxruntime-int8" in (tmp_path / "plot.html").read_text()


@pytest.mark.parametrize("name", ["plot.pdf", "absent/plot.png", "."])
def test_a_plot_that_cannot_be_written_is_refused_at_once(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        check_plot_path(tmp_path / name)
    assert error.value.hint


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["/a/long/way/to/model.onnx"], ["model.onnx"]),
        (["runs/one/model.onnx", "runs/two/model.onnx"], ["one/model.onnx", "two/model.onnx"]),
        (["winners/1/", "torchvision:resnet18", "run#2"], ["1", "torchvision:resnet18", "run#2"]),
        (["model.onnx", "./model.onnx"], ["model.onnx", "./model.onnx"]),
    ],
)
def test_a_table_shows_the_parts_of_paths_that_tell_networks_apart(given: list[str], shown: list[str]) -> None:
    assert list(names_in_tables(given).items()) == list(zip(given, shown, strict=True))
