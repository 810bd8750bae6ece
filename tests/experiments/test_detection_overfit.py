"""The overfitting experiment: it goes on where it was stopped, and stops when it has learnt enough."""

from dataclasses import replace
from itertools import islice
from pathlib import Path

import click
import pytest
import torch

from experiments.detection_overfit import everything, overfit
from nas.data.images import Preprocess
from nas.tasks.detection.data.values import DetectionData
from nas.tasks.detection.recipe import recipe
from nas.tasks.detection.train import DetectionLesson
from tests.nas.tasks.detection.rectangles import TinyDetector, rectangles

IMAGES = rectangles(24, seed=0)
CONFIG = recipe(epochs=4, augment="none", precision="fp32", ema_decay=None)


def begun(lr: float = CONFIG.lr) -> tuple[TinyDetector, DetectionLesson]:
    network = TinyDetector()
    config = replace(CONFIG, lr=lr)
    preprocess = Preprocess.fit(IMAGES.images)
    return network, DetectionLesson(network, IMAGES, IMAGES, config, preprocess, torch.device("cpu"))


def weights(network: TinyDetector) -> torch.Tensor:
    return torch.cat([t.float().flatten() for t in network.state_dict().values()])


def test_goes_on_to_the_same_end(tmp_path: Path) -> None:
    network, lesson = begun()
    curve = list(overfit(network, lesson, CONFIG, "fp32", tmp_path / "whole", every=1, until=1.0))
    assert [point.epoch for point in curve] == [1, 2, 3, 4]
    assert curve[-1].train_loss < curve[0].train_loss

    first, lesson = begun()
    list(islice(overfit(first, lesson, CONFIG, "fp32", tmp_path / "parts", every=1, until=1.0), 2))
    second, lesson = begun()
    rest = list(overfit(second, lesson, CONFIG, "fp32", tmp_path / "parts", every=1, until=1.0))
    assert [point.epoch for point in rest] == [3, 4]
    assert [point.train_loss for point in rest] == [point.train_loss for point in curve[2:]]
    assert rest[-1].cpu_minutes > rest[0].cpu_minutes > 0
    torch.testing.assert_close(weights(second), weights(network), rtol=0, atol=0)

    other, lesson = begun()
    with pytest.raises(click.UsageError, match="other settings"):
        list(overfit(other, lesson, replace(CONFIG, lr=0.5), "fp32", tmp_path / "parts", every=1, until=1.0))


def test_ends_when_it_knows_enough(tmp_path: Path) -> None:
    network, lesson = begun()
    assert len(list(overfit(network, lesson, CONFIG, "fp32", tmp_path, every=1, until=0.0))) == 1


def test_held_out_training_images_take_part() -> None:
    val, test = rectangles(6, seed=1), rectangles(5, seed=2)
    data = DetectionData("r", ("a", "b"), IMAGES, val, test, 64, Preprocess.fit(IMAGES.images))
    images = everything(data, 32)
    assert len(images) == 30
    assert images.resolution == 32
    assert len(images.boxes[24]) == len(val.boxes[0])
