"""A whole search of a detector, small enough for a test."""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from nas.delivery.verify import check_sums
from nas.export.receipt import read_receipt
from search_spaces import load_search_space
from tests.nas.fake_device import fake_profile, save_fake_profile
from tests.nas.tasks.coco import write_coco


@pytest.mark.slow
@pytest.mark.alone
def test_detector_from_a_coco_folder_to_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    save_fake_profile(tmp_path / "cache", fake_profile(networks=60, spaces=("mixed", "detect")))
    data = write_coco(tmp_path / "shapes", {"train": 48, "val": 16, "test": 16})
    out = tmp_path / "run"
    line = f"search --task detection --data {data} --target fake --latency-ms 300 --budget 60s --out {out} --json"
    command = [sys.executable, "-m", "nas", *line.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
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
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert json.loads(again.stdout) == document, "a finished run is read, not repeated"
