"""The training loop: learns, repeats itself, stops when told to, and never raises on divergence."""

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from nas.data import ImageData, ImageSplit
from nas.errors import UserError
from nas.tasks.classification.data.registry import load_dataset
from nas.tasks.classification.evaluate import evaluate_accuracy
from nas.training.config import EpochLog, TrainConfig
from nas.training.loop import train
from tests.nas.training.conftest import small_network

FAST = TrainConfig(epochs=3, precision="fp32", lr=0.1)


def test_learns_and_reports(data: ImageData) -> None:
    network = small_network()
    result = train(network, data.train, data.val, FAST, preprocess=data.preprocess)
    assert result.accuracy > 0.9
    assert result.stopped is None
    assert [log.epoch for log in result.curve] == [1, 2, 3]
    assert result.curve[-1].train_loss < result.curve[0].train_loss
    assert result.curve[-1].val_accuracy == result.accuracy
    assert 0 < result.curve[-1].seconds <= result.seconds
    assert result.images_per_second > 0
    assert not network.training
    assert evaluate_accuracy(network, data.val, data.preprocess, device="cpu") == result.accuracy


@pytest.mark.parametrize("resolution", [32, 64])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("ema_decay", [None, 0.9])
def test_every_setting_learns(data: ImageData, resolution: int, precision: str, ema_decay: float | None) -> None:
    config = replace(FAST, epochs=6, precision=precision, ema_decay=ema_decay)
    parts = data.at("train", resolution), data.at("val", resolution)
    result = train(small_network(), *parts, config, preprocess=data.preprocess)
    assert result.precision == precision
    assert result.accuracy > 0.8


def test_averaged_weights_are_what_is_reported_and_kept(data: ImageData) -> None:
    networks = small_network(), small_network()
    averaged = train(networks[0], data.train, data.val, replace(FAST, ema_decay=0.9), preprocess=data.preprocess)
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
from nas.training.config import TrainConfig
from nas.training.loop import train
from tests.nas.training.conftest import blobs, small_network
from nas.data import Preprocess
torch.rand(int(sys.argv[2]))  # the caller's random state must not matter
network = small_network()
split = blobs(20, 0, int(sys.argv[3]))
config = TrainConfig(epochs=2, precision=sys.argv[1], ema_decay=0.9)
result = train(network, split, blobs(10, 1, int(sys.argv[3])), config, preprocess=Preprocess.fit(split.images))
weights = b"".join(t.numpy().tobytes() for t in network.state_dict().values())
print(hashlib.sha256(weights).hexdigest(), [(log.train_loss, log.val_accuracy) for log in result.curve])
"""


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("size", [32, 64])
def test_fresh_processes_agree_to_the_last_bit(precision: str, size: int) -> None:
    root = Path(__file__).parents[3]
    outputs = [
        subprocess.run(
            [sys.executable, "-c", _FRESH, precision, str(draws), str(size)],
            check=True, capture_output=True, text=True, cwd=root,
        ).stdout
        for draws in (1, 5)
    ]  # fmt: skip
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) > 64


def test_seed_matters_and_global_random_state_does_not_change(data: ImageData) -> None:
    state = torch.get_rng_state()
    results = [
        train(small_network(), data.train, data.val, replace(FAST, seed=seed), preprocess=data.preprocess)
        for seed in (0, 0, 1)
    ]
    losses = [result.curve[0].train_loss for result in results]
    assert losses[0] == losses[1] != losses[2]
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("lr", [1e9, 1e38])
def test_divergence_is_a_result(data: ImageData, lr: float) -> None:
    config = replace(FAST, lr=lr, clip_norm=1e6)
    result = train(small_network(), data.train, data.val, config, preprocess=data.preprocess)
    assert result.stopped == "diverged"
    assert result.accuracy == 0.0
    assert result.curve == ()


def test_callback_prunes(data: ImageData) -> None:
    seen: list[EpochLog] = []

    def stop_after_two(log: EpochLog) -> bool:
        seen.append(log)
        return log.epoch == 2

    config = replace(FAST, epochs=5)
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
    config = replace(FAST, epochs=10_000, time_limit_s=1.5)
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
    result = train(small_network(), few, data.val, replace(FAST, batch_size=2), preprocess=data.preprocess)
    assert result.stopped is None
    result = train(small_network(), few, data.val, replace(FAST, batch_size=64), preprocess=data.preprocess)
    assert result.stopped is None


def test_empty_splits_are_refused(data: ImageData) -> None:
    empty = ImageSplit(np.zeros((0, 32, 32, 3), np.uint8), np.zeros(0, np.int64))
    for parts in ((empty, data.val), (data.train, empty)):
        with pytest.raises(UserError, match="cannot train on"):
            train(small_network(), *parts, FAST, preprocess=data.preprocess)


def test_mosaic_is_not_for_classification(data: ImageData) -> None:
    with pytest.raises(UserError, match="'mosaic' is for detection"):
        train(small_network(), data.train, data.val, replace(FAST, augment="mosaic"), preprocess=data.preprocess)


def test_adamw_learns(data: ImageData) -> None:
    config = replace(FAST, optimizer="adamw", lr=0.005, weight_decay=0.05)
    assert train(small_network(), data.train, data.val, config, preprocess=data.preprocess).accuracy > 0.8


def test_wrong_settings_are_refused() -> None:
    wrong = {
        "epochs": 0,
        "batch_size": 1,
        "lr": 0.0,
        "warmup_fraction": 1.0,
        "augment": "heavy",
        "optimizer": "lamb",
        "time_limit_s": 0.0,
    }
    for name, value in wrong.items():
        with pytest.raises(UserError, match=f"training setting {name} = {value!r}") as caught:
            TrainConfig(**{name: value})  # type: ignore[arg-type]
        assert caught.value.hint


@pytest.mark.slow
def test_the_default_recipe_learns_the_digits() -> None:
    data = load_dataset("digits")
    config = TrainConfig(flip=data.flip_ok, precision="fp32")
    result = train(small_network(classes=10), data.train, data.val, config, preprocess=data.preprocess)
    assert result.accuracy > 0.9


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_trains_on_a_gpu_and_returns_the_network(data: ImageData) -> None:
    network = small_network()
    result = train(network, data.train, data.val, FAST, preprocess=data.preprocess, device="cuda")
    assert result.accuracy > 0.9
    assert next(network.parameters()).device.type == "cpu"
