"""A user's script made of a bundle's own: it answers as the bundle does, and can be timed."""

import json
import shutil
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from experiments.pipeline_check import main, time_script, user_script
from nas.bundles.predictor import Predictor
from nas.deployment import Deployment
from tests.nas.small_bundles import write_bundle


@pytest.fixture(scope="module", params=["onnxruntime", "openvino"])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("check") / "bundle", Deployment(request.param, "fp32", 1))


def test_the_script_answers_as_the_bundle_does(bundle: Path) -> None:
    predictor = Predictor.open(bundle)
    text = user_script((bundle / "run.py").read_text(), predictor.receipt.deployment.runtime)
    namespace: dict[str, Any] = {"__file__": str(bundle / "run.py"), "__name__": "run"}
    exec(text, namespace)
    picture = Image.open(bundle / "sample.png").convert("RGB")
    for found, expected in zip(namespace["call"](picture), predictor.predict(picture), strict=True):
        assert found["label"] == expected["label"]
        assert found["score"] == pytest.approx(expected["score"], abs=1e-5)
    with pytest.raises(click.ClickException, match="no user's script"):
        user_script(text, "torch")


def test_accuracy_of_original_files_stands_beside_the_receipts(bundle: Path, tmp_path: Path) -> None:
    rng, predictor = np.random.default_rng(0), Predictor.open(bundle)
    for number in range(4):
        picture = Image.fromarray(rng.integers(0, 255, (40, 50, 3), dtype=np.uint8))
        label = predictor.predict(picture)[0]["label"] if number else "other"
        (tmp_path / label).mkdir(exist_ok=True)
        picture.save(tmp_path / label / f"{number}.png")
    receipt = json.loads((bundle / "receipt.json").read_text())
    receipt["pipeline"] = {"preprocess": 0.1, "network": 0.2, "postprocess": 0.1, "total": 0.4}
    (bundle / "receipt.json").write_text(json.dumps(receipt))
    done = CliRunner().invoke(main, [str(bundle), "--data", str(tmp_path)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert (found["accuracy"], found["images"]) == (0.75, 4)
    assert len(found["script_ms"]) == 3
    assert found["ratio"] == pytest.approx(sorted(found["script_ms"])[1] / 0.4)
    assert "ratio_in_one_run" not in found, "the receipt's latency is of the network alone"
    assert time_script(bundle) > 0


def test_the_product_measures_a_whole_pipeline_in_turns_with_the_script(bundle: Path, tmp_path: Path) -> None:
    bundle = shutil.copytree(bundle, tmp_path / "bundle")
    receipt = json.loads((bundle / "receipt.json").read_text())
    (bundle / "receipt.json").write_text(
        json.dumps(receipt | {"limit_on": "pipeline", "latency_ms": {**(receipt["latency_ms"] or {}), "p50": 0.4}})
    )
    done = CliRunner().invoke(main, [str(bundle)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    ratio = sorted(found["script_ms"])[1] / sorted(found["measured_again_ms"])[1]
    assert found["ratio_in_one_run"] == pytest.approx(ratio)
