"""Bundles of pose networks: files find what torch finds, and the script draws limbs."""

import json
import runpy
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torch import nn

from experiments.stick_figures import SKELETON, figures
from nas.bundles.bundle import Claims, complete_bundle, deliver_files
from nas.bundles.predictor import Predictor
from nas.bundles.receipt import read_receipt
from nas.bundles.verify import check_sums
from nas.data.images import Preprocess
from nas.data_options import DataSource
from nas.deploy.deploy import deploy, deployed_accuracy
from nas.deploy.tried import Deployed
from nas.deployment import Deployment
from nas.networks.description import NetworkDescription
from nas.runtimes import load_runtime
from nas.scoring.offline import PredictRequest, predict_folder
from nas.tasks.pose.agreement import agreement
from nas.tasks.pose.data import PoseData, Poses
from nas.tasks.pose.decoding import FoundPoses
from nas.tasks.pose.evaluate import figures_of, found_by
from nas.tasks.pose.floors import mean_pose, pose_floors
from search_spaces import load_search_space
from search_spaces.modules import set_norm_statistics
from search_spaces.pose_network import PoseNetwork

SIZE = 128
DEPLOYMENTS = [
    Deployment(runtime, precision, 1)
    for runtime, precision in (("onnxruntime", "fp32"), ("openvino", "fp32"), ("onnxruntime", "int8"))
]


@pytest.fixture(scope="module")
def description() -> NetworkDescription:
    """The first options of all decisions of the space."""
    space = load_search_space("pose")
    return NetworkDescription.of_architecture(space, space.architecture([0] * len(space.decisions)), (1, 17))


@pytest.fixture(scope="module")
def network(description: NetworkDescription) -> nn.Module:
    """A random one whose cells find different things."""
    torch.manual_seed(0)
    found = description.build()
    assert isinstance(found, PoseNetwork)
    set_norm_statistics(found, torch.randn(8, 3, SIZE, SIZE))
    for prediction in found.predictions:
        for name, values in prediction.named_parameters():
            if name.endswith("weight"):
                nn.init.normal_(values, std=0.3)
    return found.eval()


@pytest.fixture(scope="module")
def data(network: nn.Module) -> PoseData:
    """Images on which the truth is what the network is surest of: it is right in torch, and may be wrong in a file."""
    images = figures(12, 0, SIZE)
    preprocess = Preprocess.fit(images.images)
    truth = tuple(truth_of(found) for found in found_by(network, images, preprocess))
    known = replace(images, boxes=truth)
    return PoseData("figures", ("person",), known, known.take(range(8)), known.take(range(4)), SIZE, preprocess)


def truth_of(found: FoundPoses, most: int = 3) -> Poses:
    xyxy = found.xyxy[:most]
    count = len(xyxy)
    area = np.maximum(np.prod(xyxy[:, 2:] - xyxy[:, :2], axis=1), 1).astype(np.float32)
    points = found.points[:most].copy()
    points[..., 2] = 2
    return Poses(xyxy, np.zeros(count, np.int64), np.zeros(count, np.bool_), points, area)


@pytest.fixture(scope="module")
def deployed(
    data: PoseData, description: NetworkDescription, network: nn.Module, tmp_path_factory: pytest.TempPathFactory
) -> Deployed:
    usable = [d for d in DEPLOYMENTS if load_runtime(d.runtime).missing() is None]
    folder = tmp_path_factory.mktemp("deployed")
    return deploy(network, description, data, usable, folder=folder, max_drop=1.0, upper_bound=lambda d: 1.0)


@pytest.fixture(scope="module")
def bundle(deployed: Deployed, data: PoseData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    tried = tuple(replace(t, chosen=t.deployment == DEPLOYMENTS[0]) for t in deployed.tried)
    chosen, folder = replace(deployed, tried=tried), tmp_path_factory.mktemp("pose") / "bundle"
    assert chosen.chosen is not None
    test = deployed_accuracy(chosen.chosen, data, "test", deployed.description)
    claims = Claims(
        command="nas export", source="model.network.json", target="elsewhere",
        data=DataSource(source="figures", seed=0), max_drop=1.0, limits={"latency_ms": 5.0, "percentile": 50},
        limits_text="at most 5 ms", within_limit=True, margin_pct=80.0, torch_accuracy=None, test_accuracy=test,
        predicted_ms=1.0,
    )  # fmt: skip
    complete_bundle(folder, deliver_files(chosen, folder), data, claims)
    return folder


def test_files_find_what_torch_finds(deployed: Deployed, data: PoseData, network: nn.Module) -> None:
    in_torch = figures_of(found_by(network, data.val, data.preprocess), data.val)
    assert in_torch.map50_95 > 0.5, "there is something that can be lost"
    assert deployed.parity is not None
    assert deployed.parity.agreement == 1.0
    for tried in deployed.tried:
        assert tried.accuracy is not None
        if tried.deployment.precision == "fp32":
            assert tried.accuracy == pytest.approx(in_torch.map50_95, abs=1e-3)
        else:
            assert tried.in_float == "last layer", "predictions are not rounded to int8"


def test_the_receipt_says_how_good_and_what_the_mean_pose_is_worth(bundle: Path) -> None:
    receipt = json.loads((bundle / "receipt.json").read_text())
    assert (receipt["task"], receipt["metric"]) == ("pose", "OKS-mAP@50:95")
    accuracy = receipt["accuracy"]
    assert accuracy["oks_map50"] >= accuracy["deployed"] >= 0
    assert 0 <= accuracy["mean_pose_in_found_boxes"] <= 1
    assert not accuracy["sigmas_assumed"]
    assert receipt["postprocess_ms"] > 0
    assert "skeleton.json" in receipt["sha256"]
    assert check_sums(bundle, read_receipt(bundle)).status == "passed"


def test_the_script_finds_what_the_predictor_finds_and_draws_it(
    bundle: Path, data: PoseData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Image.fromarray(data.train.images[0]).resize((256, 256)).save(tmp_path / "photo.png")
    monkeypatch.setattr(sys, "argv", [str(bundle / "run.py"), "photo.png"])
    runpy.run_path(str(bundle / "run.py"))
    printed = capsys.readouterr().out
    predictor = Predictor.open(bundle)
    answer = predictor.predict(tmp_path / "photo.png")
    assert [line.split(":")[0] for line in printed.splitlines() if line.startswith("person")] == [
        f"person {thing['score']:.0%}" for thing in answer
    ]
    assert json.loads(json.dumps(answer)) == answer
    with Image.open(tmp_path / "photo-poses.png") as drawn, Image.open(tmp_path / "photo.png") as photo:
        assert drawn.size == photo.size
        assert (np.asarray(drawn) != np.asarray(photo)).any() == bool(answer)
    if answer:
        assert len(answer[0]["points"]) == len(SKELETON)
        assert predictor.processor.drawn("photo.png", answer).startswith(b"\x89PNG")  # type: ignore[attr-defined]

    monkeypatch.setattr(sys, "argv", [str(bundle / "run.py")])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(bundle / "run.py"))
    assert ended.value.code in (0, False)


def test_a_folder_of_pictures_is_scored_with_points(bundle: Path, tmp_path: Path) -> None:
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for number in range(3):
        shutil.copy(bundle / "sample.png", pictures / f"{number}.png")
    out = tmp_path / "poses.parquet"
    document = predict_folder(PredictRequest(bundle=str(bundle), folder=pictures, out=out, workers=1)).document
    assert (document["scored"], document["bad"]) == (3, 0)
    predictor = Predictor.open(bundle)
    answer = predictor.predict(bundle / "sample.png")
    assert answer
    for row in pq.read_table(out).to_pylist():
        assert row["boxes"] == [found["xyxy"] for found in answer]
        assert row["points"] == [found["points"] for found in answer]


def test_outputs_agree_where_points_do(network: nn.Module, data: PoseData) -> None:
    with torch.inference_mode():
        raw = network(data.preprocess.tensor(torch.from_numpy(data.train.images[:4]))).numpy()
    raw[..., 4] += 3.0  # surely found
    assert agreement(raw, raw + np.float32(1e-5), resolution=SIZE) == 1.0
    moved = raw.copy()
    moved[..., 5::3] += 2.0
    moved[..., 7::3] += 9.0
    assert agreement(moved, raw, resolution=SIZE) < 1.0


def test_the_mean_pose_is_a_floor(data: PoseData) -> None:
    drawn = figures(16, 3, SIZE)
    pose = mean_pose(drawn)
    assert pose.shape == (17, 2)
    nose, hips = pose[0, 1], pose[11:13, 1].mean()
    assert nose < hips, "heads are above hips, mostly"
    floor, nothing = pose_floors(data.with_splits(train=drawn, val=figures(8, 4, SIZE), test=figures(8, 5, SIZE)))
    assert floor.accuracy < 0.2
    assert floor.test is not None
    assert nothing.accuracy > 0, "a network without a right pose is not delivered"
