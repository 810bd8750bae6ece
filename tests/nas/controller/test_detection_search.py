"""A whole search of a detector, small enough for a test."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from nas.bundles.receipt import read_receipt
from nas.bundles.verify import check_sums
from nas.cli.main import run
from nas.controller.baselines import ZooRound, training_note
from nas.controller.planning.budget import Budget
from nas.controller.runs.records import trained_network
from nas.data.images import image_input
from nas.deploy.deploy import deploy
from nas.measure import protocol
from nas.measure.site import this_host
from nas.progress import SilentProgress
from nas.tasks import TASKS, TrainingShape
from search_spaces import load_search_space
from tests.nas.brief import shorten
from tests.nas.detectors import ORT, RESOLUTION, rectangle_data, smallest
from tests.nas.tasks.coco import write_coco


@pytest.mark.slow
@pytest.mark.usefixtures("cache", "impatient")
def test_detector_from_a_coco_folder_to_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shorten(monkeypatch, TrainingShape(short_epochs=(2, 2), min_short_images=48, final_epochs=(10, 10)))
    data = write_coco(tmp_path / "shapes", {"train": 48, "val": 16, "test": 16})
    out = tmp_path / "run"
    line = f"search --task detection --data {data} --target detector --latency-ms 300 --max-trials 1 --no-baselines "
    line += f"--out {out} --json --resolution 128 --max-params 700000"
    assert run(line.split()) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["task"], document["metric"], document["space"]) == ("detection", "mAP@50", "detect")
    assert document["data"]["name"] == "shapes"
    assert document["estimator"]["name"] in ("short", "zero-cost")
    best = document["best"][0]
    assert load_search_space("detect").from_json(best["architecture"]).key == best["key"]
    assert best["parity"]["agreement"] == 1.0
    assert list(best["test_figures"])[:2] == ["mAP@50", "mAP@50:95"]
    assert best["test_figures"]["mAP@50"] == best["accuracy"]["test"] > 0
    assert best["postprocess_ms"] > 0
    (picture,) = document["pictures"]
    with Image.open(out / picture["file"]) as sheet:
        assert min(sheet.size) > 200
    winner = out / "winners" / "1"
    assert check_sums(winner, read_receipt(winner)).status == "passed", "a winner is a bundle"
    assert (pd.read_parquet(out / "candidates.parquet").state == "evaluated").any()
    assert "mAP@50" in (out / "report.html").read_text(encoding="utf-8")
    assert run(line.split()) == 0
    assert json.loads(capsys.readouterr().out) == document, "a finished run is read, not repeated"


def test_the_note_of_a_baseline_says_why_its_training_ended(tmp_path: Path) -> None:
    recipe = TASKS["detection"].recipe(
        epochs=3,
        batch_size=8,
        precision="fp32",
        optimizer={"lr": 1e9},
        clip_norm=1e6,
        schedule={"warmup_fraction": 0.0},
        ema_decay=None,
    )
    _, outcome = trained_network(tmp_path, smallest(), rectangle_data(), recipe)
    note = f"{outcome.epochs} of 3 epochs: its training diverged, so its accuracy is 0"
    assert outcome.stopped == "diverged"
    assert training_note(outcome, recipe) == note
    _, again = trained_network(tmp_path, smallest(), rectangle_data(), recipe)
    assert again.reused
    assert training_note(again, recipe) == note, "read, not trained"
    _, other = trained_network(tmp_path, smallest(), rectangle_data(), recipe.changed(time_limit_s=1e5))
    assert not other.reused, "what did not come to its end might get further in another time"
    assert training_note(outcome, recipe.changed(time_limit_s=1e6)) == note
    ended = training_note(replace(outcome, stopped="time limit"), recipe)
    assert ended == f"{outcome.epochs} of 3 epochs: the time limit ended its training"
    assert training_note(replace(outcome, epochs=3, accuracy=0.4), recipe) == "3 epochs"


@pytest.mark.slow
def test_well_known_detectors_are_baselines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "REPEATS", 0)
    monkeypatch.setitem(deploy.__kwdefaults__, "sessions", 1)
    monkeypatch.setattr(ZooRound, "_training_s", lambda self, name: 0.0 if name.startswith("ssd") else math.inf)
    task = TASKS["detection"]
    zoo = ZooRound(
        data=rectangle_data(), input=image_input(RESOLUTION), deployments=(ORT,), quick=ORT, max_drop=0.01,
        recipe=task.recipe(epochs=1, batch_size=8, precision="fp32"), folder=tmp_path, site=this_host(),
    )  # fmt: skip
    with SilentProgress().stage("zoo") as bar:
        trained, *others = zoo.run(Budget(1e9), 1e9, bar)
    assert [trained.name, *(b.name for b in others)] == list(task.baselines)
    assert all(b.deployed.chosen is not None and b.deployed.chosen.p50_ms > 0 for b in (trained, *others))
    assert trained.note == "1 epochs"
    assert trained.test is not None
    assert list(trained.test)[:2] == ["mAP@50", "mAP@50:95"]
    assert {b.note for b in others} == {"latency only: the budget does not allow its training"}
    assert {b.test for b in others} == {None}
