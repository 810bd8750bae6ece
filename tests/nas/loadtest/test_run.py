"""Whole load tests, from the command line to the document."""

import json
from pathlib import Path

import pytest
from PIL import Image
from pyarrow import parquet

from experiments.known_server import known_server
from nas.cli.main import run
from nas.loadtest import run as load_run
from tests.nas.small_bundles import write_bundle

SHORT = ["--seconds", "0.5", "--sessions", "1", "--quiet"]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for name, value in (("a.png", 0), ("b.jpg", 200)):
        Image.new("RGB", (32, 32), (value, 0, 0)).save(folder / name)
    return folder


def test_a_running_server_under_load(tmp_path: Path, photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("- {name: box, price_per_hour: 1, currency: EUR, date: 2026-11-01, source: invented, cores: 2}")
    outputs = ["--plot", str(tmp_path / "plot.png"), "--latencies", str(tmp_path / "all.parquet")]
    loads = ["--clients", "2,3", "--rate", "100", "--prices", str(prices), "--images", str(photos)]
    with known_server() as server:
        assert run(["bench", "--url", server.url, *loads, *outputs, *SHORT, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (found,) = document["servers"]
    assert [row["clients"] for row in found["closed"]] == [2, 3]
    assert [row["rate"] for row in found["open"]] == [100.0]
    assert found["images_per_s"] == max(row["images_per_s"] for row in found["closed"]) > 0
    assert (found["images"]["count"], found["speaks"], found["not_measured"]) == (2, "POST /predict", None)
    assert found["answers_checked_against"] == "its own, asked alone"
    assert found["cost"][0]["per_million"] == pytest.approx(1e6 / 3600 / found["images_per_s"])
    assert {trial["purpose"] for trial in found["trials"]} == {"clients", "rate"}
    table = parquet.read_table(tmp_path / "all.parquet")
    assert table.num_rows == sum(trial["n"] for trial in found["trials"])
    assert set(table["result"].to_pylist()) == {"200"}
    with Image.open(tmp_path / "plot.png") as drawn:
        assert drawn.size[0] > 1000


def test_a_limit_that_is_kept_and_one_that_cannot_be(
    photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(load_run, "SEARCH_TRIALS", 2)
    with known_server(service_s=0.002) as server:
        options = ["--url", server.url, "--images", str(photos), "--clients", "4", *SHORT]
        assert run(["bench", *options, "--slo-ms", "1.9"]) == 0
        said = capsys.readouterr().out
        assert "Largest rate at which 99 % are answered within 1.9 ms" in said
        assert "none" in said
        assert run(["bench", *options, "--slo-ms", "2000", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["servers"]
    assert found["at_slo"]["confirmed_by"] == 1
    assert found["images_per_s"] == found["at_slo"]["images_per_s"] > 50
    assert {trial["purpose"] for trial in found["trials"]} == {"clients", "search", "confirm"}


def test_a_server_that_dies_is_a_row_with_the_reason(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with known_server(exit_after=60) as server:
        options = ["--url", server.url, "--images", str(photos), "--clients", "2", "--seconds", "30", "--quiet"]
        assert run(["bench", *options]) == 0
    said = capsys.readouterr().out
    assert "was gone in the middle of a trial" in said
    assert "not to be relied on: the server was gone before the end" in said


def test_nothing_measured_is_exit_code_1(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "--url", "http://127.0.0.1:1", "--images", str(photos), *SHORT]) == 1
    assert "nothing answers at http://127.0.0.1:1/predict" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--rate", "0"], 1, "the rates '0' are no numbers above 0"),
        (["--rate", "-5"], 1, "the rates '-5' are no numbers above 0"),
        (["--rate", "fast"], 1, "the rates 'fast' are no numbers above 0"),
        (["--rate", "10,nan"], 1, "the rates '10,nan' are no numbers above 0"),
        (["--clients", "0"], 1, "the clients '0' are no whole numbers above 0"),
        (["--clients", "1.5"], 1, "the clients '1.5' are no whole numbers above 0"),
        (["--clients", "20000"], 1, "--clients 20000 makes no sense"),
        (["--slo-ms", "0"], 1, "the limit on latency '0' is not a number above 0"),
        (["--seconds", "inf"], 1, "is not a number above 0"),
        (["--send", "tensors"], 2, "'tensors' is not one of"),
        (["--prices", "none.yaml"], 1, "cannot read the prices 'none.yaml'"),
        (["--images", "none"], 1, "no such folder of images: 'none'"),
        ([], 1, "nothing says which images to send to http://127.0.0.1:1"),
        (["--latencies", "none/all.parquet"], 1, "'none/all.parquet' cannot be written"),
        (["--replicas", "2"], 2, "--replicas is of servers that are started here"),
        (["--runtime", "openvino"], 2, "a load test measures whole servers"),
        (["--serve"], 2, "give one of them"),
        (["--plot", "chart.gif"], 1, "cannot draw 'chart.gif'"),
    ],
)
def test_options_without_sense_are_refused(
    options: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", "--url", "http://127.0.0.1:1", *options]) == code
    assert said in capsys.readouterr().err


def test_a_load_without_a_server_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "model.onnx", "--clients", "4"]) == 2
    assert "--clients is of load tests: give --serve or --url with it" in capsys.readouterr().err
    assert run(["bench", "--serve"]) == 1
    assert "there is nothing to put load on" in capsys.readouterr().err
    assert run(["bench"]) == 2
    assert run(["bench", "--url", "http://127.0.0.1:1", "one", "two"]) == 1
    assert "2 bundles cannot all say" in capsys.readouterr().err


@pytest.mark.slow
def test_a_bundle_is_served_and_its_answers_are_those_of_its_predictor(
    tmp_path: Path, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = write_bundle(tmp_path / "bundle")
    options = ["--replicas", "1", "--threads", "1", "--clients", "4", "--images", str(photos), *SHORT, "--json"]
    for sent, speaks in (([], "POST /predict"), (["--send", "pixels"], "Open Inference Protocol, 'pixels'")):
        assert run(["bench", "--serve", str(bundle), *options, *sent]) == 0
        (found,) = json.loads(capsys.readouterr().out)["servers"]
        assert (found["speaks"], found["not_measured"]) == (speaks, None)
        assert found["answers_checked_against"] == "the bundle's predictions"
        (row,) = found["closed"]
        assert row["failures"] == {}
        assert row["images_per_s"] > 0
        assert found["settings"]["replicas"] == 1
    assert run(["bench", "--serve", str(bundle), "--threads", "64", *SHORT]) == 1
    assert "cores" in capsys.readouterr().err
