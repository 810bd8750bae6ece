"""A whole search for a pose network, small enough for a test, and what is done with its winner."""

import json
from pathlib import Path

import pytest
from PIL import Image
from pyarrow import parquet

from experiments.stick_figures import write_coco_figures
from nas.bundles.predictor import Predictor
from nas.cli.main import run
from nas.tasks import TrainingShape
from nas.tasks.pose.task import Pose
from tests.nas.brief import shorten


@pytest.mark.slow
@pytest.mark.usefixtures("cache", "impatient")
def test_pose_network_from_a_coco_folder_to_a_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shorten(monkeypatch)
    monkeypatch.setattr(Pose, "shape", TrainingShape(short_epochs=(1, 1), min_short_images=16, final_epochs=(2, 2)))
    monkeypatch.setattr(Pose, "floors", lambda task, data, seed: ())  # nothing is learnt in so few epochs
    data = write_coco_figures(tmp_path / "figures", {"train": 24, "val": 6, "test": 6})
    out = tmp_path / "run"
    line = f"search --task pose --data {data} --target poser --latency-ms 300 --max-trials 1 --no-baselines "
    line += f"--out {out} --json --resolution 128 --max-params 900000 --runtime onnxruntime"
    assert run(line.split()) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["task"], document["metric"], document["space"]) == ("pose", "OKS-mAP@50:95", "pose")
    best = document["best"][0]
    assert best["parity"]["agreement"] == 1.0
    assert list(best["test_figures"]) == ["OKS-mAP@50:95", "OKS-mAP@50", "box mAP@50"]
    names = [tried["name"] for tried in best["deployments"]]
    assert "onnxruntime-int8 (last layer in float)" in names
    assert "onnxruntime-int8" not in names, "predictions are in floating point from the start"
    (picture,) = document["pictures"]
    with Image.open(out / picture["file"]) as sheet:
        assert min(sheet.size) > 200
    assert "OKS-mAP@50:95" in (out / "report.html").read_text(encoding="utf-8")
    winner = out / "winners" / "1"
    assert isinstance(Predictor.open(winner).predict(data / "images" / "test" / "0.png"), list)
    assert run(["predict", str(winner), str(data), "--out", str(tmp_path / "rows.parquet")]) == 0
    rows = parquet.read_table(tmp_path / "rows.parquet").to_pylist()
    assert len(rows) == 36
    assert all(row["error"] is None for row in rows)
    assert all(len(row["points"] or ()) == len(row["boxes"]) for row in rows)
