"""A whole search of a detector, small enough for a test."""

import json
from pathlib import Path

import pandas as pd
import pytest

from nas.cli.main import run
from nas.delivery.verify import check_sums
from nas.export.receipt import read_receipt
from search_spaces import load_search_space
from tests.nas.tasks.coco import write_coco


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.usefixtures("cache", "impatient")
def test_detector_from_a_coco_folder_to_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_coco(tmp_path / "shapes", {"train": 48, "val": 16, "test": 16})
    out = tmp_path / "run"
    line = f"search --task detection --data {data} --target detector --latency-ms 300 --budget 60s --out {out} --json"
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
    winner = out / "winners" / "1"
    assert check_sums(winner, read_receipt(winner)).status == "passed", "a winner is a bundle"
    assert (pd.read_parquet(out / "candidates.parquet").state == "evaluated").any()
    assert "mAP@50" in (out / "report.html").read_text(encoding="utf-8")
    assert run(line.split()) == 0
    assert json.loads(capsys.readouterr().out) == document, "a finished run is read, not repeated"
