"""Fine-tuning of detectors: the same loop, with boxes."""

import json
from pathlib import Path

import pytest
import torch

from nas.data import ImageSplit
from nas.data.images import image_input
from nas.errors import UserError
from nas.finetune.run import finetune
from nas.networks.description import NetworkDescription
from nas.tasks import task_named
from nas.tasks.detection.data import load_detection
from nas.tasks.detection.evaluate import metrics_of
from nas.tasks.examples import Examples, examples_of
from nas.tasks.recipes import recipe_named
from nas.training.recipe_files import load_recipe
from nas.training.setup import Setup
from search_spaces import load_search_space
from tests.nas.small_runs import write_run
from tests.nas.tasks.coco import write_coco
from tests.nas.tasks.detection.rectangles import TinyDetector
from tests.nas.training.kept import Kept, training_of

QUICK = ("epochs=1", "batch_size=4", "precision=fp32", "channels_last=true")
SETUP = Setup(precision="fp32", channels_last=True, batch_size=8)


class Killed(Exception):
    pass


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_coco(tmp_path_factory.mktemp("data") / "rectangles", {"train": 48, "val": 16, "test": 8}, size=64)


@pytest.fixture
def run_folder(pictures: Path, tmp_path: Path) -> Path:
    space = load_search_space("detect")
    arch = space.architecture([0] * len(space.decisions))
    folder = write_run(tmp_path / "run", NetworkDescription.of_architecture(space, arch, (2,)), pictures)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "task": "detection"}))
    return folder


def kept(pictures: Path, folder: Path, *settings: str, seed: int = 0) -> Kept:
    recipe = recipe_named("detection-overfit", ["epochs=4", *settings])
    examples = examples_of(load_detection(pictures), image_input(64), validate_on=recipe.validate_on)
    return Kept(training_of("detection", TinyDetector(seed=seed), examples, recipe, SETUP), folder)


def test_a_run_of_detection_is_trained_on_and_read_again(run_folder: Path) -> None:
    document = finetune(run_folder, overrides=QUICK)
    assert (document["recipe"], document["metric"]) == ("detection-fast", "mAP@50")
    (network,) = document["networks"]
    assert network["start"] == "trained"
    assert network["epochs"] == 1
    assert all(0 <= network["accuracy"][kind] <= 1 for kind in ("before", "after", "test"))
    assert finetune(run_folder, overrides=QUICK)["networks"][0]["reused"]


def test_it_learns_its_images_by_heart(pictures: Path, tmp_path: Path) -> None:
    done = kept(pictures, tmp_path, "epochs=25", "schedule.warmup_epochs=1", "optimizer.lr=0.005")
    result = done.run()
    assert result.accuracy == result.curve[-1].val_accuracy > 0.6
    data = load_detection(pictures)
    found = metrics_of(done.training.network, data.at("train", 64), data.preprocess, device="cpu")
    assert found.map50 == result.accuracy


@pytest.mark.parametrize("crop", ["none", "mosaic"])
def test_an_interrupted_training_ends_with_the_same_weights(pictures: Path, tmp_path: Path, crop: str) -> None:
    settings = (f"augmentation.crop={crop}", "ema_decay=0.9")

    def kill(record: object) -> None:
        raise Killed

    whole = kept(pictures, tmp_path / "whole", *settings)
    whole.run()
    with pytest.raises(Killed):
        kept(pictures, tmp_path / "parts", *settings).run(kill)
    resumed = kept(pictures, tmp_path / "parts", *settings, seed=5)
    resumed.run()
    mine, theirs = resumed.training.network.state_dict(), whole.training.network.state_dict()
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    assert [r.train_loss for r in resumed.training.curve] == [r.train_loss for r in whole.training.curve]


@pytest.mark.parametrize("name", ["detection", "detection-distill"])
def test_mosaics_end_before_the_training_does(name: str, pictures: Path) -> None:
    recipes = {crop: recipe_named(name, more) for crop, more in (("own", []), ("light", ["augmentation.crop=light"]))}
    examples = examples_of(load_detection(pictures), image_input(64))

    def batch(crop: str, progress: float) -> torch.Tensor:
        task = task_named("detection")
        objective = task.objective(TinyDetector(), examples, recipes[crop], device=torch.device("cpu"))
        return objective.batch(torch.arange(4), torch.Generator().manual_seed(0), progress)[0]

    assert not torch.equal(batch("own", 0.8), batch("light", 0.8))
    assert torch.equal(batch("own", 0.9), batch("light", 0.9))


def test_a_teacher_teaches(run_folder: Path) -> None:
    settings = [*QUICK, f"distillation.teacher={run_folder}#1", "distillation.logits_weight=1.0", "optimizer.lr=1e-6"]
    (network,) = finetune(run_folder, recipe="detection-distill", overrides=settings)["networks"]
    assert network["epochs"] == 1


@pytest.mark.parametrize(
    "setting", ["label_smoothing=0.1", "augmentation.mixup_alpha=0.2", "distillation.features_weight=1"]
)
def test_settings_of_classification_are_refused(pictures: Path, tmp_path: Path, setting: str) -> None:
    with pytest.raises(UserError, match=f"{setting.partition('=')[0]} = .* is for classification"):
        kept(pictures, tmp_path, setting)


def test_a_refused_recipe_leaves_nothing_behind(run_folder: Path) -> None:
    with pytest.raises(UserError, match=r"quantisation-aware training \(qat.epochs = \d+\) is for classification"):
        finetune(run_folder, recipe="classification-qat")
    with pytest.raises(UserError, match=r"label_smoothing = 0.1 is for classification"):
        finetune(run_folder, overrides=[*QUICK, "label_smoothing=0.1"])
    assert not (run_folder / "finetune").exists()
    with pytest.raises(UserError, match=r"augmentation.crop = mosaic is for detection"):
        task_named("classification").check_recipe(load_recipe("base", ["augmentation.crop=mosaic"]))


def test_mosaic_is_refused_for_classification(images: Examples[ImageSplit], tmp_path: Path) -> None:
    recipe = load_recipe("base", ["augmentation.crop=mosaic"])
    with pytest.raises(UserError, match=r"augmentation.crop = mosaic is for detection"):
        training_of("classification", TinyDetector(), images, recipe, SETUP)
