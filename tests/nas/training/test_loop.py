"""The training loop: learns, repeats itself, stops when told to, and never raises on divergence."""

import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from nas.data import ImageData, ImageSplit, Preprocess
from nas.data.images import ImageTraits, image_input
from nas.errors import UserError
from nas.tasks import TASKS
from nas.tasks.classification.data.registry import load_dataset
from nas.tasks.classification.evaluate import evaluate_accuracy
from nas.tasks.examples import Examples, examples_of
from nas.training import loop
from nas.training.recipe import Recipe
from nas.training.result import EpochCallback, EpochRecord, TrainResult, Validates
from tests.nas.training.conftest import small_network

TASK = TASKS["classification"]
FAST = TASK.recipe(epochs=3, precision="fp32", optimizer={"lr": 0.1})


def train(
    network: nn.Module,
    train_split: ImageSplit,
    val_split: ImageSplit,
    recipe: Recipe,
    *,
    preprocess: Preprocess,
    callback: EpochCallback | None = None,
    device: str = "cpu",
    validates: Validates = "each",
) -> TrainResult:
    examples = Examples(train=train_split, val=val_split, preprocess=preprocess, size=(3,), traits=ImageTraits())
    objective = TASK.objective(network, examples, recipe, device=torch.device(device))
    return loop.train(network, objective, recipe, callback=callback, device=device, validates=validates)


def test_learns_and_reports(data: ImageData) -> None:
    network = small_network()
    result = train(network, data.train, data.val, FAST, preprocess=data.preprocess)
    assert result.accuracy > 0.9
    assert result.stopped is None
    assert [log.epoch for log in result.curve] == [1, 2, 3]
    assert result.curve[-1].train_loss < result.curve[0].train_loss
    assert result.curve[-1].val_accuracy == result.accuracy
    assert 0 < sum(record.seconds for record in result.curve) <= result.seconds
    assert all(record.examples_per_s > 0 for record in result.curve)
    assert result.image_s == pytest.approx(1 / sorted(record.examples_per_s for record in result.curve)[1])
    assert not network.training
    assert evaluate_accuracy(network, data.val, data.preprocess, device="cpu") == result.accuracy


@pytest.mark.parametrize("patience", [None, 2])
def test_validating_the_last_epoch_alone_changes_nothing_else(data: ImageData, patience: int | None) -> None:
    recipe = FAST.changed(early_stopping={"patience_epochs": patience})
    each, last = (
        train(small_network(), data.train, data.val, recipe, preprocess=data.preprocess, validates=validates)
        for validates in ("each", "last")
    )
    assert last.accuracy == each.accuracy == last.curve[-1].val_accuracy
    assert [log.train_loss for log in last.curve] == [log.train_loss for log in each.curve]
    assert [math.isnan(log.val_accuracy) for log in last.curve] == [patience is None] * 2 + [False]


def test_what_the_time_limit_ends_is_validated_too(data: ImageData) -> None:
    recipe = FAST.changed(epochs=1000, time_limit_s=1.0)
    found = train(small_network(), data.train, data.val, recipe, preprocess=data.preprocess, validates="last")
    assert found.stopped == "time limit"
    assert 0 < found.accuracy <= 1


@pytest.mark.parametrize("resolution", [32, 64])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("ema_decay", [None, 0.9])
def test_every_setting_learns(data: ImageData, resolution: int, precision: str, ema_decay: float | None) -> None:
    config = FAST.changed(epochs=6, precision=precision, ema_decay=ema_decay)
    parts = data.at("train", resolution), data.at("val", resolution)
    result = train(small_network(), *parts, config, preprocess=data.preprocess)
    assert result.precision == precision
    assert result.accuracy > 0.8


def test_averaged_weights_are_what_is_reported_and_kept(data: ImageData) -> None:
    networks = small_network(), small_network()
    averaged = train(networks[0], data.train, data.val, FAST.changed(ema_decay=0.9), preprocess=data.preprocess)
    train(networks[1], data.train, data.val, FAST, preprocess=data.preprocess)
    assert evaluate_accuracy(networks[0], data.val, data.preprocess, device="cpu") == averaged.accuracy
    pairs = zip(networks[0].parameters(), networks[1].parameters(), strict=True)
    assert not any(torch.equal(a, b) for a, b in pairs)
    # Training itself is not disturbed by the validations with averaged weights in between.
    assert averaged.curve[0].train_loss == pytest.approx(
        train(small_network(), data.train, data.val, FAST, preprocess=data.preprocess).curve[0].train_loss
    )


_FRESH = """
import hashlib, sys, torch
torch.set_num_threads(1)
from nas.tasks import TASKS
from nas.tasks.examples import Examples
from tests.nas.training.conftest import blobs, small_network
from nas.data import Preprocess
from nas.data.images import ImageTraits
from nas.training.loop import train
torch.rand(int(sys.argv[1]))  # the caller's random state must not matter
task = TASKS["classification"]
for size in (32, 64):
    split, val = blobs(20, 0, size), blobs(10, 1, size)
    examples = Examples(train=split, val=val, preprocess=Preprocess.fit(split.images), size=(3,), traits=ImageTraits())
    for precision in ("fp32", "bf16"):
        network, recipe = small_network(), task.recipe(epochs=2, precision=precision, ema_decay=0.9)
        objective = task.objective(network, examples, recipe, device=torch.device("cpu"))
        result = train(network, objective, recipe, device="cpu")
        weights = b"".join(t.numpy().tobytes() for t in network.state_dict().values())
        print(hashlib.sha256(weights).hexdigest(), [(log.train_loss, log.val_accuracy) for log in result.curve])
print("imported", sorted({"timm", "torchvision", "torch._dynamo", "scipy.stats"} & sys.modules.keys()))
"""


@pytest.mark.slow
def test_fresh_processes_agree_to_the_last_bit() -> None:
    root = Path(__file__).parents[3]
    outputs = [
        subprocess.run(
            [sys.executable, "-c", _FRESH, str(draws)],
            check=True, capture_output=True, text=True, cwd=root,
        ).stdout
        for draws in (1, 5)
    ]  # fmt: skip
    assert outputs[0].splitlines() == outputs[1].splitlines()
    *trained, imported = outputs[0].splitlines()
    assert len({line.split()[0] for line in trained}) == 4, "two sizes in two precisions"
    assert imported == "imported []", "each of these costs every process that trains a second or more"


def test_seed_matters_and_global_random_state_does_not_change(data: ImageData) -> None:
    state = torch.get_rng_state()
    results = [
        train(small_network(), data.train, data.val, FAST.changed(seed=seed), preprocess=data.preprocess)
        for seed in (0, 0, 1)
    ]
    losses = [result.curve[0].train_loss for result in results]
    assert losses[0] == losses[1] != losses[2]
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("lr", [1e9, 1e38])
def test_divergence_is_a_result(data: ImageData, lr: float) -> None:
    config = FAST.changed(optimizer={"lr": lr}, clip_norm=1e6)
    result = train(small_network(), data.train, data.val, config, preprocess=data.preprocess)
    assert result.stopped == "diverged"
    assert result.accuracy == 0.0
    assert result.curve == ()


def test_callback_prunes(data: ImageData) -> None:
    seen: list[EpochRecord] = []

    def stop_after_two(log: EpochRecord) -> bool:
        seen.append(log)
        return log.epoch == 2

    config = FAST.changed(epochs=5)
    result = train(small_network(), data.train, data.val, config, preprocess=data.preprocess, callback=stop_after_two)
    assert result.stopped == "pruned by callback"
    assert tuple(seen) == result.curve
    assert len(seen) == 2
    assert result.accuracy == seen[-1].val_accuracy


def test_callback_after_the_last_epoch_prunes_nothing(data: ImageData) -> None:
    result = train(
        small_network(), data.train, data.val, FAST, preprocess=data.preprocess, callback=lambda log: log.epoch == 3
    )
    assert result.stopped is None


def test_time_limit_holds_and_the_schedule_ends_with_it(data: ImageData) -> None:
    config = FAST.changed(epochs=10_000, time_limit_s=1.5)
    network = small_network()
    start = time.perf_counter()
    result = train(network, data.train, data.val, config, preprocess=data.preprocess)
    seconds = time.perf_counter() - start
    assert result.stopped == "time limit"
    assert 0.5 < seconds < 2.5  # one step and one validation take a few hundredths; the rest is room for busy machines
    assert result.accuracy > 0.9
    assert result.accuracy == evaluate_accuracy(network, data.val, data.preprocess, device="cpu")


def test_batch_larger_than_the_data(data: ImageData) -> None:
    few = data.train.take(list(range(3)))
    result = train(small_network(), few, data.val, FAST.changed(batch_size=2), preprocess=data.preprocess)
    assert result.stopped is None
    result = train(small_network(), few, data.val, FAST.changed(batch_size=64), preprocess=data.preprocess)
    assert result.stopped is None


def test_empty_splits_are_refused(data: ImageData) -> None:
    empty = ImageSplit(np.zeros((0, 32, 32, 3), np.uint8), np.zeros(0, np.int64))
    for parts in ((empty, data.val), (data.train, empty)):
        with pytest.raises(UserError, match="cannot train on"):
            train(small_network(), *parts, FAST, preprocess=data.preprocess)


def test_mosaic_is_not_for_classification(data: ImageData) -> None:
    recipe = FAST.changed(augmentation={"crop": "mosaic"})
    with pytest.raises(UserError, match="mosaic is for detection"):
        train(small_network(), data.train, data.val, recipe, preprocess=data.preprocess)


def test_adamw_learns(data: ImageData) -> None:
    config = FAST.changed(optimizer={"name": "adamw", "lr": 0.005, "weight_decay": 0.05})
    assert train(small_network(), data.train, data.val, config, preprocess=data.preprocess).accuracy > 0.8


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"epochs": -1}, "epochs = -1"),
        ({"batch_size": 1}, "batch_size = 1"),
        ({"optimizer": {"lr": 0.0}}, r"optimizer\.lr = 0\.0"),
        ({"schedule": {"warmup_fraction": 1.0}}, r"schedule\.warmup_fraction = 1\.0"),
        ({"augmentation": {"crop": "heavy"}}, r"augmentation\.crop = 'heavy'"),
        ({"optimizer": {"name": "sdg"}}, r"optimizer\.name = 'sdg'"),
        ({"time_limit_s": 0.0}, r"time_limit_s = 0\.0"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=f"training setting: {named}: ") as caught:
        FAST.changed(**settings)
    assert caught.value.hint


@pytest.mark.slow
def test_the_default_recipe_learns_the_digits() -> None:
    data = load_dataset("digits")
    recipe, network = TASK.recipe(precision="fp32"), small_network(classes=10)
    objective = TASK.objective(network, examples_of(data, image_input(32)), recipe, device=torch.device("cpu"))
    assert loop.train(network, objective, recipe, device="cpu").accuracy > 0.9


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_trains_on_a_gpu_and_returns_the_network(data: ImageData) -> None:
    network = small_network()
    result = train(network, data.train, data.val, FAST, preprocess=data.preprocess, device="cuda")
    assert result.accuracy > 0.9
    assert next(network.parameters()).device.type == "cpu"
