"""One real bench from the command line to its document."""

import errno
import json
from pathlib import Path

import pytest

from nas.bench import bench, blocks, figure
from nas.bench.tables import print_bench
from nas.cli.main import run
from nas.measure import protocol
from tests.nas.detectors import RESOLUTION, smallest, write_detector
from tests.nas.small_bundles import save_pair
from tests.nas.tiny import write_tiny_network


def test_two_networks_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(protocol, "REPEATS", 0)  # a busy machine must not make this slow
    monkeypatch.setattr(bench, "PROFILING_S", 0.02)
    good = write_tiny_network(tmp_path / "good.onnx")
    bad = write_tiny_network(tmp_path / "bad.onnx", scale=float("nan"))
    options = ["--runtime", "onnxruntime", "--batch", "1", "--batch", "2", "--threads", "1", "--sessions", "1"]
    plot = ["--plot", str(tmp_path / "plot.html"), "--operators", "2", "--precision", "fp32"]
    assert run(["bench", str(good), str(bad), *options, *plot, "--json", "--quiet"]) == 0
    document = json.loads(capsys.readouterr().out)
    cells = {(Path(c["model"]).name, c["batch"]): c for c in document["cells"]}
    assert cells["good.onnx", 2]["images_per_s"] > 0
    assert cells["good.onnx", 1]["p50_ms"] <= cells["good.onnx", 1]["p99_ms"]
    assert cells["good.onnx", 1]["calls_per_session"] > 0
    assert {cells["bad.onnx", batch]["not_measured"] for batch in (1, 2)} == {"its output is not finite"}
    (operators,) = document["operators"]
    assert (operators["model"], len(operators["slowest"])) == (str(good), 2)
    assert document["fingerprint"]["cpu_model"] == document["device"]
    assert (tmp_path / "plot.html").stat().st_size > 10_000


def test_blocks_of_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(protocol, "REPEATS", 0)
    monkeypatch.setattr(blocks, "PROFILED_S", 0.05)
    network, graph = save_pair(tmp_path / "pair"), write_tiny_network(tmp_path / "graph.onnx")
    options = ["--batch", "1", "--threads", "1", "--sessions", "1", "--calls", "continuous", "--blocks"]
    deployments = ["--runtime", "onnxruntime", "--runtime", "openvino", "--precision", "fp32"]
    assert run(["bench", str(network), str(graph), *options, *deployments, "--json", "--quiet"]) == 0
    document = json.loads(capsys.readouterr().out)
    known, unknown = document["blocks"]
    assert known["units"][-1]["output_shape"] == [10]
    assert {d["runtime"] for d in known["deployments"]} == {"onnxruntime", "openvino"}
    for deployment in known["deployments"]:
        assert len(deployment["ms"]) == len(known["units"])
        assert all(ms is None or ms >= 0 for ms in deployment["ms"])
        assert sum(ms or 0 for ms in deployment["ms"]) > 0
    assert sum(ms is not None and ms > 0 for ms in known["deployments"][0]["ms"]) > len(known["units"]) / 2
    assert "is a graph without its network" in unknown["not_split"]
    print_bench(document)
    said = capsys.readouterr().out
    assert "Blocks of " in said
    assert "no blocks: " in said


@pytest.mark.slow
def test_a_detector_is_measured_like_any_other_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(protocol, "REPEATS", 0)
    bundle = write_detector(tmp_path / "bundle", smallest())
    options = ["--batch", "1", "--batch", "2", "--threads", "1", "--sessions", "1", "--operators", "0"]
    deployments = ["--runtime", "onnxruntime", "--runtime", "openvino", "--precision", "fp32", "--precision", "int8"]
    assert run(["bench", str(bundle), *options, *deployments, "--json", "--quiet"]) == 0
    document = json.loads(capsys.readouterr().out)
    (model,) = document["models"]
    assert (model["weights"], model["input"]["shape"]) == ("as given", [3, RESOLUTION, RESOLUTION])
    assert {c["not_measured"] for c in document["cells"]} == {None}
    found = {(c["runtime"], c["precision"], c["batch"]) for c in document["cells"]}
    assert found == {(r, p, b) for r in ("onnxruntime", "openvino") for p in ("fp32", "int8") for b in (1, 2)}


def test_where_nothing_is_measured_the_exit_code_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(protocol, "REPEATS", 0)
    bad = write_tiny_network(tmp_path / "bad.onnx", scale=float("nan"))
    options = ["--runtime", "onnxruntime", "--precision", "fp32", "--batch", "1", "--threads", "1", "--sessions", "1"]
    assert run(["bench", str(bad), *options, "--plot", str(tmp_path / "plot.png"), "--quiet"]) == 1
    assert "its output is not finite" in capsys.readouterr().out
    assert not (tmp_path / "plot.png").exists()


def test_what_was_measured_is_printed_where_the_plot_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(document: object, path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(protocol, "REPEATS", 0)
    monkeypatch.setattr(figure, "write_plot", full)
    network = write_tiny_network(tmp_path / "good.onnx")
    options = ["--runtime", "onnxruntime", "--precision", "fp32", "--batch", "1", "--threads", "1", "--sessions", "1"]
    plot = ["--operators", "0", "--plot", str(tmp_path / "plot.png")]
    assert run(["bench", str(network), *options, *plot, "--json", "--quiet"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["cells"][0]["p50_ms"] > 0
    assert "No space left on device" in captured.err


def test_a_missing_network_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "absent.onnx"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("Error: no such network: 'absent.onnx'")
    assert "hint: give an ONNX file" in error


def test_ceilings_are_in_the_document_where_they_were_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(protocol, "REPEATS", 0)
    monkeypatch.setattr("nas.compare.roofline.ceilings", lambda deployments, _: {})
    network = write_tiny_network(tmp_path / "tiny.onnx")
    options = ["--runtime", "onnxruntime", "--precision", "fp32", "--threads", "1", "--sessions", "1", "--quiet"]
    for given in ([], ["--roofline"]):
        assert run(["bench", str(network), *options, *given, "--calls", "continuous", "--json"]) == 0
        roofline = json.loads(capsys.readouterr().out)["roofline"]
        assert (roofline is not None) == bool(given)
    assert [len(entry["products"]) for entry in roofline["networks"]] == [2]
    assert roofline["ceilings"][0]["gmacs_per_s"] is None, "there is none that was not measured"
