"""Schedules, batches, set-up and distillation."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from timm.utils.model_ema import ModelEmaV3

from nas.data import ImageSplit
from nas.data.images import Preprocess, image_input
from nas.errors import UserError
from nas.tasks.classification.augment import Augmenter, erased
from nas.tasks.classification.objective import soft_label_loss
from nas.tasks.examples import Examples
from nas.tasks.images import teacher_images
from nas.training import setup as setting_up
from nas.training.average import MovingAverage
from nas.training.batches import Batches, seed_step
from nas.training.distill import Learner, Teacher, distilled
from nas.training.recipe import AugmentationSettings, DistillationSettings, Recipe
from nas.training.recipe_files import load_recipe
from nas.training.schedule import learning_rate
from nas.training.setup import Setup, choose_setup
from tests.nas.training.conftest import blobs, small_network


def rates(**schedule: object) -> list[float]:
    recipe = Recipe.model_validate({"epochs": 10, "schedule": schedule})
    return [learning_rate(recipe.schedule, 1.0, (step + 0.5) / 100, recipe.epochs) for step in range(100)]


def test_cosine_rises_and_falls() -> None:
    found = rates(name="cosine", warmup_epochs=2, final_lr_fraction=0.1)
    assert np.argmax(found) in (19, 20)
    assert all(np.diff(found[:20]) > 0)
    assert all(np.diff(found[20:]) < 0)
    assert found[-1] == pytest.approx(0.1, abs=0.01)


def test_the_longer_warm_up_counts() -> None:
    assert rates(warmup_fraction=0.2) == rates(warmup_epochs=2) == rates(warmup_fraction=0.2, warmup_epochs=1)


def test_steps() -> None:
    found = rates(name="step", step_epochs=[3, 6], step_factor=0.1)
    assert (found[0], found[29], found[30], found[60]) == pytest.approx((1.0, 1.0, 0.1, 0.01))


def test_one_cycle_starts_low_and_ends_at_nothing() -> None:
    found = rates(name="one-cycle", warmup_epochs=3)
    assert found[0] == pytest.approx(0.04, abs=0.01)
    assert np.argmax(found) in (29, 30)
    assert found[-1] < 0.001


def test_a_straight_line_falls_evenly() -> None:
    found = rates(name="linear", warmup_epochs=2, final_lr_fraction=0.1)
    assert found[:20] == rates(name="cosine", warmup_epochs=2)[:20]
    assert np.diff(found[20:]) == pytest.approx(np.full(79, -0.9 / 80))
    assert found[-1] == pytest.approx(0.1, abs=0.01)


def test_each_epoch_shows_every_image_once_in_its_own_order_to_some_process() -> None:
    parts = [Batches(21, 8, seed=1, rank=rank, world=2) for rank in range(2)]
    orders = [[indices for part in parts for indices, _ in part.epoch(epoch)] for epoch in (1, 2, 1)]
    assert all(sorted(torch.cat(order).tolist()) == list(range(21)) for order in orders)
    assert not torch.equal(torch.cat(orders[0]), torch.cat(orders[1]))
    assert torch.equal(torch.cat(orders[0]), torch.cat(orders[2]))
    assert {len(indices) for indices in orders[0]} <= {3, 4, 5}


STRONG = AugmentationSettings(
    randaugment_ops=2, erasing_probability=0.5, mixup_alpha=0.2, cutmix_alpha=1.0, mix_probability=1.0
)


@pytest.mark.parametrize("size", [32, 64])
def test_augmentation_hangs_on_the_step_alone(size: int) -> None:
    split = blobs(4, 0, size)
    images, targets = torch.from_numpy(split.images), torch.from_numpy(split.labels)
    augmenter = Augmenter(STRONG, 3, flip_ok=True)

    def once(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = seed_step(0, 1, step)
        pixels = augmenter.images(images, generator).float().permute(0, 3, 1, 2) / 255
        return augmenter.mixed(pixels, targets, generator)

    with torch.random.fork_rng():
        first, second, again = once(1), once(2), once(1)
    assert first[0].shape == (12, 3, size, size)
    assert first[1].shape == (12, 3)
    assert first[1].sum(1) == pytest.approx(torch.ones(12))
    assert torch.equal(first[0], again[0])
    assert not torch.equal(first[0], second[0])


def test_images_are_mixed_in_long_trainings_of_large_networks() -> None:
    settings = AugmentationSettings(cutmix_alpha=1.0, mix_from_epochs=60, mix_from_weights=50)
    cases = {(60, 50.0): True, (59, 50.0): False, (60, 49.0): False}
    assert {case: settings.mixes(*case) for case in cases} == cases
    assert not AugmentationSettings().mixes(100, 100.0), "nothing says how"


@pytest.mark.parametrize(("progress", "asked", "mixes"), [
    (0.0, True, True), (0.75, True, True), (0.76, True, False), (0.0, False, False),
])  # fmt: skip
def test_images_are_mixed_until_the_end_begins(progress: float, asked: bool, mixes: bool) -> None:
    settings = AugmentationSettings(cutmix_alpha=1.0, mix_until=0.75)
    augmenter = Augmenter(settings, 3, flip_ok=True, mixes=asked)
    images, targets = torch.rand(8, 3, 32, 32), torch.arange(8) % 3
    with torch.random.fork_rng():
        mixed = augmenter.mixed(images, targets, seed_step(0, 1, 1), progress)
    assert (mixed[1].shape == (8, 3)) == mixes
    assert torch.equal(mixed[0], images) == (not mixes)


def test_digits_are_not_mirrored_unless_told() -> None:
    assert not Augmenter(AugmentationSettings(), 3, flip_ok=False).flip
    assert Augmenter(AugmentationSettings(flip=True), 3, flip_ok=False).flip


def test_erasing_takes_a_box_from_its_share_of_images() -> None:
    erased_images = erased(torch.ones(400, 3, 16, 16), 0.25, torch.Generator().manual_seed(0))
    lost = (erased_images[:, 0] == 0).flatten(1).float().mean(1)
    assert float((lost > 0).float().mean()) == pytest.approx(0.25, abs=0.07)
    assert float(lost.max()) < 0.5
    assert torch.equal(erased_images[:, 0], erased_images[:, 2])


def test_few_images_get_smaller_batches() -> None:
    recipe = Recipe(epochs=4, batch_size=64, least_steps=400)
    assert [recipe.batch_for(images) for images in (27_000, 6_400, 6_399, 2_000, 100, 10)] == [64, 64, 32, 32, 32, 10]
    assert recipe.changed(least_steps=0).batch_for(100) == 64
    assert recipe.changed(batch_size=8).batch_for(100) == 8


def test_what_the_recipe_says_is_not_measured(images: Examples[ImageSplit]) -> None:
    recipe = load_recipe("base", ["precision=fp32", "channels_last=no", "batch_size=7"])
    setup = choose_setup(recipe, small_network(), image_input(32), len(images.train), torch.device("cpu"))
    assert (setup.precision, setup.channels_last, setup.batch_size) == ("fp32", False, 7)


@pytest.mark.parametrize(
    ("bf16_ms", "channels_last_ms", "both_ms", "chosen"),
    [
        (100, 100, 100, ("fp32", False)), (95, 95, 95, ("fp32", False)), (80, 100, 80, ("bf16", False)),
        (100, 80, 100, ("fp32", True)), (70, 75, 72, ("bf16", False)), (70, 75, 50, ("bf16", True)),
    ],
)  # fmt: skip
def test_bf16_and_channels_last_have_to_be_a_tenth_faster(
    bf16_ms: int, channels_last_ms: int, both_ms: int, chosen: tuple[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {("bf16", False): bf16_ms, ("fp32", True): channels_last_ms, ("bf16", True): both_ms}

    def seconds(network: object, inputs: object, setup: Setup, device: object) -> float:
        return known.get((setup.precision, setup.channels_last), 100) / 1e3

    monkeypatch.setattr(setting_up, "step_seconds", seconds)
    found = choose_setup(load_recipe("base"), small_network(), image_input(32), 100, torch.device("cpu"))
    assert (found.precision, found.channels_last) == chosen


@pytest.mark.parametrize(("most", "gain", "expected"), [(128, 0.5, 128), (512, 0.5, 512), (512, 0.01, 32)])
def test_an_automatic_batch_grows_while_it_pays_and_fits(
    most: int, gain: float, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seconds(network: object, inputs: object, setup: Setup, device: object) -> float:
        if setup.batch_size > most:
            raise torch.OutOfMemoryError
        return float(setup.batch_size ** (1 - gain))

    monkeypatch.setattr(setting_up, "step_seconds", seconds)
    recipe = load_recipe("base", ["precision=fp32", "channels_last=yes", "batch_size=auto"])
    assert choose_setup(recipe, small_network(), image_input(32), 100_000, torch.device("cpu")).batch_size == expected


def test_automatic_batch_leaves_steps(images: Examples[ImageSplit]) -> None:
    recipe = load_recipe("base", ["precision=fp32", "channels_last=yes", "batch_size=auto"])
    assert choose_setup(recipe, small_network(), image_input(32), 40 * 20, torch.device("cpu")).batch_size == 32
    chosen = choose_setup(recipe, small_network(), image_input(32), 10_000, torch.device("cpu")).batch_size
    assert chosen in (32, 64, 128, 256)


def test_a_student_of_itself_has_nothing_to_learn() -> None:
    network = small_network().eval()
    settings = DistillationSettings(logits_weight=1.0)
    teacher = Teacher(small_network().eval(), "twin")
    images = torch.rand(4, 3, 32, 32)
    likeness = soft_label_loss(network(images), teacher(images, features=False)[0], settings.temperature)
    loss = distilled(torch.tensor(5.0), likeness, None, None, settings)
    assert float(loss) == pytest.approx(0.0, abs=1e-6)


def test_features_are_compared_through_a_learnt_map() -> None:
    settings = DistillationSettings(features_weight=1.0)
    larger = teacher_images(image_input(32), image_input(48), Preprocess((0.5,) * 3, (0.25,) * 3), None)
    teacher = Teacher(small_network(seed=1).eval(), "other", larger)
    learner = Learner(small_network(), teacher, settings)
    images = torch.rand(4, 3, 32, 32)
    (logits, features), (taught, theirs) = learner(images), teacher(images, features=True)
    loss = distilled(torch.tensor(0.0), soft_label_loss(logits, taught, 2.0), features, theirs, settings)
    loss.backward()  # type: ignore[no-untyped-call]
    assert learner.adapter is not None
    assert learner.adapter.weight.grad is not None
    assert float(learner.adapter.weight.grad.abs().sum()) > 0


def test_no_validation_images(images: Examples[ImageSplit]) -> None:
    with pytest.raises(UserError, match="cannot train on 90 and validate on 0 examples"):
        replace(images, val=images.val.take([]))


def test_the_moving_average_is_timms() -> None:
    network = small_network().train()
    mine, theirs = MovingAverage(network, 0.9, "power"), ModelEmaV3(network, 0.9, use_warmup=True)
    for step in range(1, 20):
        network(torch.rand(4, 3, 32, 32))  # moves statistics and their counters
        with torch.no_grad():
            for parameter in network.parameters():
                parameter += 0.1
        mine.update(step)
        theirs.update(network, step)
    found, expected = mine.module.state_dict(), theirs.module.state_dict()
    assert expected["1.num_batches_tracked"] == 19
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    assert not torch.equal(found["0.weight"], network.state_dict()["0.weight"])


_THREADS = """
import threading, torch
from nas.training.batches import Ahead

torch.set_num_threads(2)
with Ahead(iter([torch.get_num_threads] * 2), 2) as coming:
    ask = coming.take()
    with_items = coming._beside.submit(torch.get_num_threads).result()
    elsewhere = []
    other = threading.Thread(target=lambda: elsewhere.append(torch.get_num_threads()))
    other.start()
    other.join()
    print(ask(), with_items, *elsewhere)
"""


def test_only_the_thread_that_prepares_batches_computes_alone() -> None:
    """In a process that computed nothing before: torch gives a new thread the number that was set last, anywhere."""
    said = subprocess.run([sys.executable, "-c", _THREADS], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["2", "1", "2"]
