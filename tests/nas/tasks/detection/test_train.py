"""Training detectors: they learn what is drawn, repeat themselves, and keep the promises of the one training loop."""

import numpy as np
import pytest
import torch
from torch import nn

from nas.data.images import ImageTraits, Preprocess
from nas.errors import UserError
from nas.tasks import TASKS
from nas.tasks.detection.augment import MOSAIC_UNTIL, augmentation_at
from nas.tasks.detection.data.values import Boxes, DetectionSplit
from nas.tasks.detection.evaluate import metrics_of
from nas.tasks.examples import Examples
from nas.training import loop
from nas.training.recipe import Crop, Recipe
from nas.training.result import EpochCallback, EpochRecord, TrainResult
from tests.nas.tasks.detection.rectangles import TinyDetector, rectangles

TRAIN, VAL = rectangles(96, seed=0), rectangles(32, seed=1)
PREPROCESS = Preprocess.fit(TRAIN.images)
TASK = TASKS["detection"]
FAST = TASK.recipe(epochs=2, precision="fp32", augmentation={"crop": "light"})
EMPTY = Boxes(np.zeros((0, 4), np.float32), np.zeros(0, np.int64), np.zeros(0, bool))


def train(
    network: nn.Module,
    train_split: DetectionSplit,
    val_split: DetectionSplit,
    recipe: Recipe,
    *,
    preprocess: Preprocess,
    callback: EpochCallback | None = None,
) -> TrainResult:
    examples = Examples(train=train_split, val=val_split, preprocess=preprocess, size=(2,), traits=ImageTraits())
    objective = TASK.objective(network, examples, recipe, device=torch.device("cpu"))
    return loop.train(network, objective, recipe, callback=callback, device="cpu")


def without_boxes(split: DetectionSplit, images: slice) -> DetectionSplit:
    boxes = list(split.boxes)
    boxes[images] = [EMPTY] * len(boxes[images])
    return DetectionSplit(split.images, tuple(boxes), split.extents)


def as_crowd(split: DetectionSplit) -> DetectionSplit:
    boxes = tuple(Boxes(b.xyxy, b.classes, np.ones(len(b), bool)) for b in split.boxes)
    return DetectionSplit(split.images, boxes, split.extents)


def test_learns_to_find_rectangles() -> None:
    network = TinyDetector()
    before = metrics_of(network, VAL, PREPROCESS, device="cpu").map50
    config = FAST.changed(epochs=12, augmentation={"crop": "none"})
    result = train(network, TRAIN, VAL, config, preprocess=PREPROCESS)
    assert before < 0.1
    assert result.accuracy > 0.5
    assert result.stopped is None
    assert len(result.curve) == 12
    assert result.curve[-1].train_loss < result.curve[0].train_loss
    found = metrics_of(network, VAL, PREPROCESS, device="cpu")
    assert (found.map50, found.map50_95) == (result.accuracy, result.details["mAP@50:95"])
    assert not network.training


@pytest.mark.parametrize("augment", ["light", "mosaic"])
def test_learns_from_changed_images(augment: Crop) -> None:
    """Validated on pictures that no augmentation has touched, so boxes and pixels have to agree."""
    config = FAST.changed(epochs=10, augmentation={"crop": augment})
    assert train(TinyDetector(), TRAIN, VAL, config, preprocess=PREPROCESS).accuracy > 0.3


@pytest.mark.parametrize("augment", ["none", "mosaic"])
def test_the_seed_alone_decides(augment: Crop) -> None:
    state = torch.get_rng_state()
    networks = [TinyDetector() for _ in range(3)]
    results = [
        train(network, TRAIN, VAL, FAST.changed(seed=seed, augmentation={"crop": augment}), preprocess=PREPROCESS)
        for network, seed in zip(networks, (0, 0, 1), strict=True)
    ]
    weights = [torch.cat([p.detach().flatten() for p in network.parameters()]) for network in networks]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert results[0].curve[-1].val_accuracy == results[1].curve[-1].val_accuracy
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("lr", [1e9, 1e38])
def test_divergence_is_a_result(optimizer: str, lr: float) -> None:
    config = FAST.changed(optimizer={"name": optimizer, "lr": lr}, clip_norm=1e6, ema_decay=None)
    result = train(TinyDetector(), TRAIN, VAL, config, preprocess=PREPROCESS)
    assert result.stopped == "diverged"
    assert result.accuracy == 0.0


def test_callback_prunes_and_time_limit_ends() -> None:
    def stop(log: EpochRecord) -> bool:
        return log.epoch == 1

    pruned = train(TinyDetector(), TRAIN, VAL, FAST, preprocess=PREPROCESS, callback=stop)
    assert pruned.stopped == "pruned by callback"
    assert len(pruned.curve) == 1
    limited = FAST.changed(epochs=10_000, time_limit_s=2.0)
    assert train(TinyDetector(), TRAIN, VAL, limited, preprocess=PREPROCESS).stopped == "time limit"


@pytest.mark.parametrize("augment", ["none", "light", "mosaic"])
def test_images_and_whole_batches_without_boxes(augment: Crop) -> None:
    config = FAST.changed(batch_size=2, epochs=1, augmentation={"crop": augment})
    split = without_boxes(TRAIN.take(range(20)), slice(2, None))
    result = train(TinyDetector(), split, VAL, config, preprocess=PREPROCESS)
    assert result.stopped is None
    assert np.isfinite(result.curve[0].train_loss)


@pytest.mark.parametrize("augment", ["none", "mosaic"])
def test_crowds_are_not_learnt(augment: Crop) -> None:
    """Rectangles of the second class are all crowds: nothing teaches the network to tell them apart."""
    boxes = tuple(Boxes(b.xyxy, b.classes, b.classes == 1) for b in TRAIN.boxes)
    split = DetectionSplit(TRAIN.images, boxes, TRAIN.extents)
    network = TinyDetector()
    train(network, split, VAL, FAST.changed(epochs=8, augmentation={"crop": augment}), preprocess=PREPROCESS)
    first, second = metrics_of(network, VAL, PREPROCESS, device="cpu").per_class_ap50
    assert first > 0.3
    assert second < first / 2


def test_data_without_objects_are_refused() -> None:
    nothing = without_boxes(VAL, slice(None))
    for parts, named in (
        ((nothing, VAL), "training"),
        ((TRAIN, nothing), "validation"),
        ((TRAIN, as_crowd(VAL)), "val"),
    ):
        with pytest.raises(UserError, match=f"none of the .* {named}.* has an object"):
            train(TinyDetector(), *parts, FAST, preprocess=PREPROCESS)
    with pytest.raises(UserError, match="cannot train on 0"):
        train(TinyDetector(), TRAIN.take([]), VAL, FAST, preprocess=PREPROCESS)


def test_the_last_steps_see_whole_pictures() -> None:
    assert augmentation_at("mosaic", 0.0) == "mosaic"
    assert augmentation_at("mosaic", MOSAIC_UNTIL) == "light"
    assert augmentation_at("light", 0.0) == augmentation_at("light", 1.0) == "light"
    assert augmentation_at("none", 1.0) == "none"
    assert 0.8 <= MOSAIC_UNTIL <= 0.85
