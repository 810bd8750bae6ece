"""Real searches that are killed, interrupted and asked again with another limit."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nas.cli.main import run
from nas.files.writing import write_json
from tests.nas.killing import completed, stop_when

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.usefixtures("cache")]


def stamps(run_dir: Path, name: str) -> dict[str, int]:
    return {p.parent.name: p.stat().st_mtime_ns for p in run_dir.glob(f"finalists/*/{name}")}


@pytest.mark.usefixtures("brief")
def test_kill_interrupt_and_another_limit(tmp_path: Path, colours: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, environment = tmp_path / "run", dict(os.environ)
    line = [
        sys.executable,
        "-m",
        "tests.nas.brief",
        "search",
        "--target",
        "fake",
        "--latency-ms",
        "200",
        "--data",
        str(colours),
    ]
    line += ["--data", str(colours)]
    line += ["--budget", "10m", "--max-trials", "2", "--estimator", "short", "--no-baselines", "--precision", "fp32"]
    line += ["--max-params", "300000", "--json", "--out", str(out)]
    # Asked to end in the short trainings, as by Ctrl-C: the best so far is delivered, and the exit code says so.
    code, stdout, stderr = stop_when(lambda: completed(out) >= 1, signal.SIGTERM, line, environment)
    assert code == 130, stderr
    early: dict[str, Any] = json.loads(stdout)
    assert early["interrupted"]
    assert early["best"][0]["within_limit"]
    assert (out / early["best"][0]["model"]).is_file()
    assert "To continue, run: nas search" in stderr
    trials = completed(out)

    # Continued and killed as soon as the first finalist's training is recorded.
    old = stamps(out, "trained.json")
    code, _, _ = stop_when(
        lambda: stamps(out, "trained.json") != old and (out / "final.json").exists(),
        signal.SIGKILL,
        line,
        environment,
    )
    assert code == -signal.SIGKILL
    trained, shorts = stamps(out, "trained.json"), completed(out)
    assert shorts >= trials
    spent = json.loads((out / "account.json").read_text())["total"]

    # Continued to the end: nothing that was finished is done again.
    assert run(line[line.index("search") :]) == 0
    document = json.loads(capsys.readouterr().out)
    assert not document["interrupted"]
    assert completed(out) == shorts
    assert {k: stamps(out, "trained.json")[k] for k in trained} == trained
    assert document["seconds"]["total"] > spent, "the account goes on"
    assert set(document["estimate_s"]) >= {"prepare", "short_training", "final_training", "total"}
    assert not list(out.rglob("*.partial"))

    # Another limit: the same finalists are checked again, and nothing is trained.
    trained, measured = stamps(out, "trained.json"), stamps(out, "deployed.json")
    ask = ["search", "--run", str(out)]
    assert run([*ask, "--latency-ms", "100", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["limit_ms"] == 100
    assert answer["best"][0]["key"] == document["best"][0]["key"]
    assert any("nothing was trained" in note for note in answer["notes"])
    limits = out / "limits" / "100ms-300k-params"
    assert (limits / answer["best"][0]["model"]).is_file()
    assert stamps(limits, "trained.json") == trained
    assert stamps(limits, "deployed.json") == measured
    assert json.loads((out / "result.json").read_text()) == document

    # The same again after a kill: the budget goes on where it was, and so does what was learnt of the target.
    (limits / "result.json").unlink()
    write_json(limits / "account.json", {"prepare": 100.0, "total": 100.0})
    learnt = json.loads((limits / "target.json").read_text())
    write_json(limits / "target.json", {**learnt, "notes": [*learnt["notes"], "learnt for 100 ms"]})
    assert run([*ask, "--latency-ms", "100", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["seconds"]["total"] > 100
    assert "learnt for 100 ms" in json.loads((limits / "target.json").read_text())["notes"]
    assert again["best"][0]["key"] == answer["best"][0]["key"]

    # Once finished it is only read; of more winners there is another answer, and with a budget the search goes on.
    written = (limits / "result.json").stat().st_mtime_ns
    assert run([*ask, "--latency-ms", "100", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == again
    assert (limits / "result.json").stat().st_mtime_ns == written
    assert run([*ask, "--latency-ms", "100", "--top", "2", "--json"]) == 0
    assert (
        out / "limits" / "100ms-300k-params-top2" / json.loads(capsys.readouterr().out)["best"][0]["model"]
    ).is_file()
    more = [*ask, "--latency-ms", "100", "--max-trials", str(shorts + 1), "--json"]
    assert run(more) == 0
    searched = json.loads(capsys.readouterr().out)
    assert completed(limits) == shorts + 1
    assert completed(out) == shorts
    assert not any("nothing was trained" in note for note in searched["notes"])
    assert searched["seconds"]["total"] < 100, "the account is that of this search"
    assert run(more) == 0
    assert json.loads(capsys.readouterr().out) == searched

    assert run([*ask, "--latency-ms", "0.0001"]) == 3
    assert run([*ask, "--data", "cifar10"]) == 1
    assert "not data" in capsys.readouterr().err

    # The data changed: nothing goes on from the run, be it finished or not. Data that are gone are only told of.
    own, network = line[line.index("search") :], f"{out}#1"
    with one_image_more(colours):
        for command in (
            own, [*ask, "--latency-ms", "100", "--json"], [*ask, "--latency-ms", "90", "--json"],
            ["finetune", network, "--smoke"], ["export", network, "--out", str(tmp_path / "bundle")],
        ):  # fmt: skip
            assert run(command) == 1, command
            assert "changed by 1 image since" in capsys.readouterr().err, command
    assert not (out / "limits" / "90ms-300k-params").exists()
    assert run(own) == 0
    away = colours.rename(colours.with_name("away.npz"))
    capsys.readouterr()
    assert run([*own, "--space", "compact"]) == 0  # which is otherwise chosen by a look at the data
    assert json.loads(capsys.readouterr().out) == document
    away.rename(colours)


@contextmanager
def one_image_more(data: Path) -> Iterator[None]:
    """The set of arrays with one training image more, as long as the block lasts."""
    before = data.read_bytes()
    with np.load(data) as file:
        arrays = {name: file[name] for name in file.files}
    arrays["x_train"] = np.concatenate([arrays["x_train"], 255 - arrays["x_train"][:1]])
    arrays["y_train"] = np.append(arrays["y_train"], arrays["y_train"][0])
    np.savez(data, **arrays)
    try:
        yield
    finally:
        data.write_bytes(before)


@pytest.mark.usefixtures("impatient", "brief", "trained_here")
def test_a_front_under_size_and_memory(tmp_path: Path, colours: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [
        "search", "--target", "fake", "--objective", "pareto", "--max-size-mb", "3", "--data", str(colours),
        "--max-memory-mb", "400", "--percentile", "90", "--latency-ms", "200", "--max-trials", "3",
        "--no-baselines", "--json", "--max-params", "300000", "--price-per-hour", "36", "--runtime", "onnxruntime",
        "--out", str(tmp_path / "run"),
    ]  # fmt: skip
    assert run(command) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["objective"] == "pareto"
    assert document["cost_usd"] > 0
    best = document["best"]
    for b in best:
        assert b["size_bytes"] <= 3e6
        assert b["memory_bytes"] <= 400e6
        assert b["within_limit"]
    speeds = [b["measured_latency_ms"]["p90"] for b in best]  # what was limited is what the front is of
    accuracies = [b["accuracy"]["deployed"] for b in best]
    assert accuracies == sorted(accuracies, reverse=True)
    assert len(best) == 1 or speeds[0] > speeds[-1]
