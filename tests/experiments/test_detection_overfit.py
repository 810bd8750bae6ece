"""The overfitting experiment: it goes on where it was stopped, and stops when it has learnt enough."""

from pathlib import Path

import pytest

from experiments.detection_overfit import everything, overfit
from nas.data.images import Preprocess
from nas.errors import UserError
from nas.tasks.detection.data.values import DetectionData
from nas.tasks.recipes import recipe_named
from nas.training.recipe import Recipe
from nas.training.result import EpochRecord
from tests.nas.tasks.detection.rectangles import TinyDetector, rectangles

IMAGES = rectangles(24, seed=0)
RECIPE = recipe_named(
    "detection-overfit", ["epochs=4", "precision=fp32", "channels_last=true", "schedule.warmup_epochs=0"]
)


def curve(folder: Path, recipe: Recipe = RECIPE, *, until: float = 2.0) -> list[EpochRecord]:
    preprocess = Preprocess.fit(IMAGES.images)
    return overfit(TinyDetector(), IMAGES, preprocess, (2,), recipe, folder, until=until)


def test_it_stops_when_it_knows_enough_and_goes_on_to_the_same_end(tmp_path: Path) -> None:
    whole = curve(tmp_path / "whole")
    assert [record.epoch for record in whole] == [1, 2, 3, 4]
    assert whole[-1].train_loss < whole[0].train_loss
    assert len(curve(tmp_path / "parts", until=0.0)) == 1
    rest = curve(tmp_path / "parts")
    assert [record.train_loss for record in rest] == [record.train_loss for record in whole]
    with pytest.raises(UserError, match="another recipe"):
        curve(tmp_path / "parts", RECIPE.changed(optimizer={"lr": 0.5}))


def test_held_out_training_images_take_part() -> None:
    val, test = rectangles(6, seed=1), rectangles(5, seed=2)
    data = DetectionData("r", ("a", "b"), IMAGES, val, test, 64, Preprocess.fit(IMAGES.images))
    images = everything(data, 32)
    assert len(images) == 30
    assert images.resolution == 32
    assert len(images.boxes[24]) == len(val.boxes[0])
