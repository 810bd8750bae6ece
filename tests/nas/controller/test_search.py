"""Whole searches: with real trainings, files and measurements, small enough for a test."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pandas as pd
import pytest
from PIL import Image

from nas.bundles.exporting import ExportRequest, export_bundle
from nas.bundles.receipt import read_receipt
from nas.bundles.verify import check_sums, verify_bundle
from nas.cli.main import run
from nas.controller.config import SearchConfig
from nas.controller.search import run_search
from nas.limits import Limits
from nas.runtimes.onnx_file import read_input
from nas.tasks import TASKS, TrainingShape
from nas.tasks.classification.data.registry import load_dataset
from nas.tasks.classification.task import Classification
from search_spaces import load_search_space
from tests.nas.brief import shorten
from tests.nas.killing import completed, stop_when


@pytest.mark.slow
@pytest.mark.usefixtures("cache", "impatient")
def test_search_from_data_to_files(
    colours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    few = {name: Classification().baselines[name] for name in ("resnet10_w50",)}
    monkeypatch.setattr(Classification, "baselines", few)  # nine trainings show no more than one
    shape = TrainingShape(short_epochs=(1, 2), min_short_images=512, final_epochs=(2, 2))
    shorten(monkeypatch, shape, sessions=3)
    out = tmp_path / "run"
    line = ["search", "--target", "fake", "--latency-ms", "200", "--max-trials", "2", "--out", str(out), "--json"]
    line += ["--data", str(colours), "--space", "mixed", "--max-params", "300000", "--baselines"]
    assert run(line) == 0
    document = json.loads(capfd.readouterr().out)
    check_document(document, out)
    measured = document["best"][0]["measured_latency_ms"]
    assert 0 < measured["p50"] <= measured["p90"] <= measured["p99"]
    assert len(document["best"][0]["session_p50_ms"]) >= 3
    (random,) = [b for b in document["baselines"] if b["kind"] == "random"]
    assert random["accuracy"]["deployed"] is not None
    assert {b["name"] for b in document["baselines"] if b["kind"] != "random"} == set(few)
    limited = [b for b in document["baselines"] if b["kind"] != "random"]
    assert [(b["missed"], b["within_limit"]) for b in limited] == [(["max_params"], False)], "far more parameters"
    assert (random["missed"], random["within_limit"]) == ([], True)
    best = document["best"][0]
    judged = [d["judged_ms"] for d in best["deployments"] if d["chosen"]]
    receipt = json.loads((out / best["receipt"]).read_text())
    assert judged == [best["judged_ms"]] == [receipt["judged_ms"]]
    assert best["judged_ms"] >= max(best["session_p50_ms"])
    won = {entry["key"] for entry in document["best"]}
    assert all((out / entry["folder"]).is_dir() and entry["key"] not in won for entry in document["finalists"])
    assert document["best"][0]["epochs"] == 2
    assert document["best"][0]["accuracy"]["test"] > 0.5, "colours are easy"

    assert run(line) == 0
    assert json.loads(capfd.readouterr().out) == document, "a finished run is read, not repeated"
    assert run([a if a != "200" else "100" for a in line]) == 1
    assert "another configuration" in capfd.readouterr().err


@pytest.mark.slow
def test_the_same_seed_proposes_the_same_candidates_in_fresh_processes(
    cache: Path, colours: Path, tmp_path: Path
) -> None:
    # A limit that rules networks out, and a budget that leaves any machine the time for two candidates.
    line = [
        "search",
        "--target",
        "elsewhere",
        "--latency-ms",
        "0.5",
        "--budget",
        "10m",
        "--no-baselines",
        "--seed",
        "3",
    ]
    line += ["--data", str(colours), "--estimator", "short", "--max-params", "400000"]
    proposed = []
    for out in (tmp_path / "first", tmp_path / "second"):
        command = [sys.executable, "-m", "tests.nas.brief", *line, "--out", str(out)]
        stop_when(lambda out=out: completed(out) >= 2, signal.SIGKILL, command, dict(os.environ))  # type: ignore[misc]
        proposed.append(keys(out))
    shared = min(map(len, proposed))
    assert shared >= 2
    assert proposed[0][:shared] == proposed[1][:shared]


def keys(out: Path) -> list[str]:
    study = optuna.load_study(study_name="search", storage=f"sqlite:///{out}/study.db")
    return [t.user_attrs["key"] for t in study.trials if "key" in t.user_attrs]


def check_document(document: dict[str, Any], out: Path) -> None:
    """What issue and README promise of every result."""
    for name in ("target", "limit_ms", "feasible", "space", "space_size", "candidates_scored", "candidates_evaluated"):
        assert document[name] is not None
    searched = load_search_space("mixed").restricted(document["restricted_to"])
    assert document["space_size"] == searched.size
    best = document["best"][0]
    assert best["within_limit"]
    assert load_search_space("mixed").from_json(best["architecture"]).key == best["key"]
    for name in ("onnx", "model", "receipt"):
        assert (out / best[name]).is_file()
    winner = out / "winners" / "1"
    assert check_sums(winner, read_receipt(winner)).status == "passed", "a winner is a bundle"
    assert {"run.py", "sample.png", "sample.json", "labels.json", "preprocess.json"} <= {
        p.name for p in winner.iterdir()
    }
    assert best["parity"]["agreement"] == 1.0
    assert next(d for d in best["deployments"] if d["chosen"])["accuracy"] == best["accuracy"]["deployed"]
    table = pd.read_parquet(out / "candidates.parquet")
    assert (table.state == "evaluated").sum() >= document["candidates_evaluated"]
    assert table.pareto.any()
    assert (out / "report.html").stat().st_size > 100_000
    assert not (out / "work").exists()
    assert len(list((out / "winners" / "1").glob("model*int8*"))) <= 2, "only what is delivered is kept"
    assert not list(out.rglob("*.partial"))


@pytest.mark.slow
@pytest.mark.usefixtures("brief", "trained_here")
def test_another_device_is_predicted_not_measured(cache: Path, colours: Path, tmp_path: Path) -> None:
    config = SearchConfig(
        target="elsewhere",
        limits=Limits.of(latency_ms=0.5, max_params=3e5),
        max_trials=2,
        out=tmp_path / "run",
        baselines=False,
        data=str(colours),
        precisions=("fp32",),
    )
    document = run_search(config).document
    best = document["best"][0]
    assert best["measured_latency_ms"] is None
    assert not best["measured"]
    assert best["predicted_latency_ms"] + 1.64 * best["predicted_std_ms"] <= 0.5
    assert any("not measured here" in note for note in document["notes"])


@pytest.mark.slow
@pytest.mark.usefixtures("impatient", "brief")
def test_a_profile_of_larger_calls_is_searched_exported_and_verified(
    cache: Path, colours: Path, tmp_path: Path
) -> None:
    """Everything that is measured and delivered has eight images in a call; any machine runs an image in a second."""
    out = tmp_path / "run"
    config = SearchConfig(
        target="eights", limits=Limits.of(throughput=1.0, max_memory_mb=1e6, max_params=3e5), max_trials=1,
        estimator="zero-cost", out=out, baselines=False, data=str(colours), precisions=("fp32",),
    )  # fmt: skip
    document = run_search(config).document
    best = document["best"][0]
    assert best["within_limit"]
    assert best["batch"] == 8
    assert best["images_per_s"] == pytest.approx(8e3 / np.median(best["session_p50_ms"]))
    assert any("a call has 8 images" in note for note in document["notes"])
    winner = out / "winners" / "1"
    assert read_input(out / best["onnx"]).shape[0] == read_receipt(winner).deployment.batch == 8
    assert {c.name: c.status for c in verify_bundle(winner) if c.status != "passed"} == {}
    exported = export_bundle(ExportRequest(model=f"{out}#1", runtimes=("onnxruntime",), max_drop=1.0))
    assert exported.receipt["batch"] == read_input(exported.folder / exported.receipt["model"]).shape[0] == 8
    assert exported.missed == ""


@pytest.mark.slow
@pytest.mark.usefixtures("impatient", "brief")
def test_a_limit_is_kept_for_the_calls_it_was_asked_for(cache: Path, colours: Path, tmp_path: Path) -> None:
    """What a profile lacks is timed; what is delivered was measured so, says so, and is verified so."""
    out = tmp_path / "run"
    config = SearchConfig(
        target="fake", limits=Limits.of(latency_ms=200.0, max_params=3e5), calls="20/s", max_trials=1, out=out,
        estimator="zero-cost", baselines=False, data=str(colours), precisions=("fp32",), limit_on="pipeline",
    )  # fmt: skip
    document = run_search(config).document
    (best,) = document["best"]
    assert (best["calls"], best["limit_on"], best["within_limit"]) == ("20/s", "pipeline", True)
    assert best["pipeline"]["total"] == best["measured_latency_ms"]["p50"]
    assert best["pipeline"]["total"] > best["pipeline"]["preprocess"] > 0
    assert any("the whole way from an example in memory to an answer" in note for note in document["notes"])
    assert list(best["latency_by_calls_ms"]) == ["20/s", "continuous"]
    assert best["latency_by_calls_ms"]["20/s"] == best["measured_latency_ms"]["p50"]
    assert best["predicted_latency_ms"] > 0
    assert any("calls at 20/s were timed on this host" in note for note in document["notes"])
    receipt = read_receipt(out / "winners" / "1")
    assert (receipt.deployment.interval_ms, receipt.deployment.covers) == (50.0, "pipeline")
    assert {c.name: c.status for c in verify_bundle(out / "winners" / "1") if c.status != "passed"} == {}
    exported = export_bundle(ExportRequest(model=f"{out}#1", runtimes=("onnxruntime",), max_drop=1.0))
    assert exported.receipt["calls"] == "20/s", "as its run was asked"
    assert exported.receipt["limit_on"] == "pipeline"
    assert SearchConfig(target="fake", limits=Limits.of(latency_ms=2), calls="20 / S").run_dir.name.endswith("20-per-s")


@pytest.mark.slow
@pytest.mark.usefixtures("brief")
def test_a_search_by_zero_cost_scores_calls_no_score_an_accuracy(cache: Path, colours: Path, tmp_path: Path) -> None:
    config = SearchConfig(
        target="elsewhere", limits=Limits.of(latency_ms=0.5, max_params=3e5), max_trials=3,
        estimator="zero-cost", out=tmp_path / "run", baselines=False, data=str(colours), precisions=("fp32",),
    )  # fmt: skip
    document = run_search(config).document
    assert document["estimator"]["name"] == document["estimator"]["asked"] == "zero-cost"
    assert document["estimator"]["unit"] == "standard deviations"
    assert document["recipe"]["short_s"] is None
    assert "short_training" not in document["seconds"]
    for best in document["best"]:
        assert best["estimate"]["unit"] == "standard deviations"
        assert best["estimate"]["interval"] is None
        assert best["estimate"]["seconds"] > 0
        assert best["accuracy"]["short"] is best["accuracy"]["estimate"] is None
        assert 0 <= best["accuracy"]["trained"] <= 1
    table = pd.read_parquet(tmp_path / "run" / "candidates.parquet")
    evaluated = table[table.state == "evaluated"]
    assert list(evaluated.estimator) == ["zero-cost"] * document["candidates_evaluated"]
    assert evaluated.estimate.notna().all()
    assert table.accuracy_estimate.isna().all()
    assert not (tmp_path / "run" / "evaluations").exists(), "nobody was started who trains candidates"


@pytest.mark.usefixtures("cache", "impatient")
def test_an_infeasible_limit_names_the_nearest_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["search", "--target", "fake", "--latency-ms", "0.0001", "--out", str(tmp_path / "run")]) == 3
    assert "the nearest feasible limit is" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def image_folder(root: Path, classes: dict[str, int]) -> Path:
    rng = np.random.default_rng(0)
    for name, count in classes.items():
        (root / name).mkdir(parents=True)
        for i in range(count):
            Image.fromarray(rng.integers(0, 255, (32, 32, 3), dtype=np.uint8)).save(root / name / f"{i}.png")
    return root


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--target", "locl"], ["unknown target 'locl'", "did you mean 'local'"]),
        (["--space", "mixd"], ["unknown search space 'mixd'", "did you mean 'mixed'"]),
        (["--data", "digts"], ["unknown data set 'digts'", "did you mean 'digits'"]),
        (["--latency-ms", "0"], ["0"]),
        (["--calls", "0/s"], ["--calls '0/s' calls nothing at all", "give continuous, 20/s or idle"]),
        (["--calls", "often"], ["--calls 'often' is no pattern of calls"]),
        (
            ["--target", "elsewhere", "--calls", "20/s"],
            ["does not know calls at 20/s", "nas profile elsewhere --calls"],
        ),
        (
            ["--target", "elsewhere", "--limit-on", "pipeline"],
            ["measured where pre-processing runs", "leave out --limit-on"],
        ),
        (["--latency-ms", "-3"], ["-3"]),
        (["--latency-ms", "fast"], ["fast"]),
        (["--data", "{empty}"], ["empty"]),
        (["--data", "{corrupt}"], ["broken.png"]),
        (["--data", "{single}"], ["class"]),
        (["--out", "{other}"], ["not empty"]),
        (["--out", "/proc/nas-run"], ["cannot be written"]),
        (["--resolution", "33"], ["33"]),
        (["--runtime", "tensorrt"], ["tensorrt"]),
    ],
)
@pytest.mark.usefixtures("cache", "impatient")
def test_bad_input_is_one_sentence_and_a_hint(
    tmp_path: Path, arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    image_folder(tmp_path / "corrupt", {"a": 4, "b": 4})
    (tmp_path / "corrupt" / "a" / "broken.png").write_bytes(b"not an image")
    image_folder(tmp_path / "single", {"a": 8})
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    places = {name: str(tmp_path / name) for name in ("empty", "corrupt", "single", "other")}
    given = [a.format(**places) for a in arguments]
    defaults = {"--target": "fake", "--latency-ms": "50", "--out": str(tmp_path / "run"), "--budget": "20s"}
    line = [x for name, value in defaults.items() if name not in given for x in (name, value)]
    assert run(["search", *line, *given]) == 1
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert "hint: " in said
    for word in words:
        assert word in said
    assert not (tmp_path / "run").exists()
    assert os.listdir(tmp_path / "other") == ["notes.txt"]


def test_resolutions_follow_the_data() -> None:
    space = load_search_space("mixed")
    assert TASKS["classification"].searchable(space, load_dataset("digits"), {}).restrictions == {"resolution": (32,)}
