"""A trained detector finds in its exported file what it finds in torch."""

from pathlib import Path

import pytest
import torch

from nas.data.images import ImageTraits, Preprocess, image_input
from nas.deploy.onnx import export_onnx
from nas.deployment import Deployment
from nas.runtimes import load_runtime
from nas.tasks.detection.evaluate import metrics_in_runtime, metrics_of
from nas.tasks.detection.task import Detection
from nas.tasks.examples import Examples
from nas.training.loop import train
from tests.nas.tasks.detection.rectangles import TinyDetector, rectangles

IMAGES = rectangles(96, seed=0)
PREPROCESS = Preprocess.fit(IMAGES.images)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """An ONNX file, and the mAP@50 of its network in torch.

    Trained until its boxes are good: of a poor detector many lie at the edge of a hit, where rounding decides.
    """
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = TinyDetector()
    recipe = Detection().recipe(epochs=20, precision="fp32", augmentation={"crop": "none"})
    examples = Examples(train=IMAGES, val=IMAGES, preprocess=PREPROCESS, size=(2,), traits=ImageTraits())
    train(network, Detection().objective(network, examples, recipe, device=torch.device("cpu")), recipe, device="cpu")
    path = export_onnx(network, image_input(64), tmp_path_factory.mktemp("trained") / "model.onnx")
    return path, metrics_of(network, IMAGES, PREPROCESS, device="cpu").map50


@pytest.mark.parametrize(
    ("runtime", "precision", "most"),
    [("onnxruntime", "fp32", 0.002), ("openvino", "fp32", 0.002), ("openvino", "bf16", 0.01)],
)
def test_it_finds_as_much_as_in_torch(runtime: str, precision: str, most: float, trained: tuple[Path, float]) -> None:
    path, in_torch = trained
    assert in_torch > 0.5, "it has learnt something that can be lost"
    used = load_runtime(runtime)
    if reason := used.missing():
        pytest.skip(reason)
    if reason := used.unsupported(precision):
        pytest.skip(reason)
    session = used.load(path, Deployment(runtime, precision, 1))
    found = metrics_in_runtime(session.run, IMAGES, PREPROCESS, head_kind="anchor-free").map50
    assert found == pytest.approx(in_torch, abs=most)
