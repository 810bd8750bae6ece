"""The loop: it learns, it goes on to the same end, and says what is wrong."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from nas.data.images import image_input
from nas.errors import UserError
from nas.files.tensors import load_tensors, save_tensors
from nas.finetune.finished import finish
from nas.finetune.images import Images
from nas.training.distill import Teacher, last_linear
from nas.training.logs import EpochRecord
from nas.training.precision import autocast
from nas.training.recipe_files import load_recipe
from nas.training.schedule import learning_rate
from nas.training.setup import Setup
from nas.training.trainer import BEST, STATE, Trainer, epochs_without_gain
from tests.nas.small_runs import ALONE, small_description
from tests.nas.training.conftest import small_network

SETUP = Setup(precision="fp32", channels_last=True, batch_size=16)
STRONG = ("augmentation.mixup_alpha=0.2", "augmentation.randaugment_ops=1", "augmentation.erasing_probability=0.3")


class Killed(Exception):
    pass


def trainer(images: Images, folder: Path, *settings: str, base: str = "base", seed: int = 0) -> Trainer:
    recipe = load_recipe(base, ["precision=fp32", "epochs=4", "checkpoints.average_epochs=2", *settings])
    assert recipe.precision != "auto"
    setup = replace(SETUP, precision=recipe.precision)
    return Trainer(small_network(seed=seed), images, recipe, setup, folder=folder, world=ALONE)


def kill_after(epoch: int):  # type: ignore[no-untyped-def]
    def on_epoch(record: EpochRecord) -> None:
        if record.epoch == epoch:
            raise Killed

    return on_epoch


@pytest.mark.parametrize(
    "settings",
    [
        STRONG,
        ("optimizer.name=adamw", "optimizer.lr=0.01", "schedule.name=one-cycle", "accumulate_steps=2"),
        ("optimizer.momentum=0", "ema_decay=null", "augmentation.crop=none"),
        ("precision=fp16", "optimizer.name=adamw", "optimizer.lr=0.01"),
        *(
            (f"optimizer.name={name}", "optimizer.lr=1e-3", "schedule.name=step", "schedule.step_epochs=[2]")
            for name in ("adam", "nadamw", "rmsprop", "lamb", "lion")
        ),
    ],
)
def test_an_interrupted_training_ends_with_the_same_weights(
    settings: tuple[str, ...], images: Images, tmp_path: Path
) -> None:
    whole = trainer(images, tmp_path / "whole", *settings)
    whole.run()
    with pytest.raises(Killed):
        trainer(images, tmp_path / "parts", *settings).run(kill_after(2))
    # Other first weights and another random state: all that counts lies in the folder.
    torch.rand(7)
    resumed = trainer(images, tmp_path / "parts", *settings, seed=5)
    resumed.run()
    for mine, theirs in ((resumed.network.state_dict(), whole.network.state_dict()),
                         (resumed.averaged() or {}, whole.averaged() or {})):  # fmt: skip
        assert mine
        assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    figures = [[(r.epoch, r.lr, r.train_loss, r.val_accuracy) for r in t.curve] for t in (resumed, whole)]
    assert figures[0] == figures[1]
    with open(tmp_path / "parts" / "log.csv") as file:
        assert [int(row["epoch"]) for row in csv.DictReader(file)] == [1, 2, 3, 4]


def test_it_learns_and_leaves_the_random_state_alone(images: Images, tmp_path: Path) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    done = trainer(images, tmp_path, "epochs=6")
    done.run()
    assert torch.equal(torch.get_rng_state(), before)
    assert done.curve[-1].val_accuracy > 0.9
    assert all(0 <= r.data_wait_share < 1 and r.images_per_s > 0 for r in done.curve)
    assert list((tmp_path / "tensorboard").iterdir())


def test_batches_made_beside_the_gradients_change_nothing(images: Images, tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    beside, after = (trainer(images, tmp_path / name, *STRONG) for name in ("beside", "after"))
    beside._train_epoch(1)
    assert torch.get_num_threads() == threads
    after.learner.train()
    # Dropout in the network and augmentation draw from one random state.
    for step, batch in enumerate(after._prepared(1)):
        after.optimizer.zero_grad()
        after._loss(*batch).backward()  # type: ignore[no-untyped-call]
        after._update(learning_rate(after.recipe, after.peak_lr, step, after.steps_per_epoch), step + 1)
    expected = after.learner.state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in beside.learner.state_dict().items())


def test_it_stops_where_nothing_gets_better(images: Images, tmp_path: Path) -> None:
    done = trainer(images, tmp_path, "epochs=50", "early_stopping.patience_epochs=2")
    done.run()
    assert done.stopped
    assert len(done.curve) == done.best_epoch + 2 < 50
    resumed = trainer(images, tmp_path, "epochs=50", "early_stopping.patience_epochs=2")
    resumed.run(kill_after(len(done.curve) + 1))
    assert len(resumed.curve) == len(done.curve)


def test_the_best_weights_are_kept_whatever_counts_as_a_gain(images: Images, tmp_path: Path) -> None:
    done = trainer(images, tmp_path, "early_stopping.min_gain=0.9", "early_stopping.patience_epochs=4")
    accuracies = iter([0.3, 0.5, 0.4, 0.45])
    done.accuracy = lambda network: next(accuracies)  # type: ignore[method-assign]
    done.run()
    assert (done.best_epoch, done.stopped) == (2, False)
    assert load_tensors(tmp_path / BEST)[1] == {"epoch": 2}
    assert epochs_without_gain([0.3, 0.35, 0.39, 0.41, 0.41], 0.1) == 1
    assert epochs_without_gain([0.3, 0.3], 0.0) == 1
    assert epochs_without_gain([], 0.0) == 0


def test_all_that_is_random_at_the_start_hangs_on_the_seed(images: Images, tmp_path: Path) -> None:
    teacher = Teacher(small_network(seed=1).eval(), image_input(32), "other")

    def adapter(seed: int) -> torch.Tensor:
        recipe = load_recipe("base", [f"seed={seed}", "distillation.features_weight=1"])
        made = Trainer(small_network(), images, recipe, SETUP, folder=tmp_path, world=ALONE, teacher=teacher)
        assert made.learner.adapter is not None
        return made.learner.adapter.weight.detach()

    first = adapter(3)
    torch.rand(7)
    before = torch.get_rng_state()
    assert torch.equal(adapter(3), first)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(adapter(4), first)


def test_norms_and_biases_have_no_weight_decay(images: Images, tmp_path: Path) -> None:
    groups = trainer(images, tmp_path).optimizer.param_groups
    decayed = {id(p) for g in groups if g["weight_decay"] for p in g["params"]}
    network = trainer(images, tmp_path).learner.network
    assert len(decayed) == sum(p.ndim > 1 for p in network.parameters())
    assert {p.ndim for g in groups if not g["weight_decay"] for p in g["params"]} == {1}


def test_the_rate_is_scaled_to_the_batch(images: Images, tmp_path: Path) -> None:
    assert trainer(images, tmp_path, "optimizer.lr=0.1").peak_lr == pytest.approx(0.05)
    assert trainer(images, tmp_path, "optimizer.lr=0.1", "accumulate_steps=2").peak_lr == pytest.approx(0.1)
    assert trainer(images, tmp_path, "optimizer.lr=0.1", "optimizer.lr_batch_size=null").peak_lr == 0.1


def test_accumulated_gradients_are_those_of_the_whole_batch(images: Images, tmp_path: Path) -> None:
    plain = ("augmentation.crop=none", "augmentation.flip=no", "clip_norm=null", "optimizer.lr_batch_size=null")
    parts = trainer(images, tmp_path, *plain, "accumulate_steps=6")
    # Dropout and batch norm look at single batches: leave them out.
    parts.learner.eval()
    loss = sum(parts._loss(*batch) for batch in parts._prepared(1)) / 6
    assert isinstance(loss, torch.Tensor)
    expected = torch.autograd.grad(loss, list(parts.learner.parameters()))
    parts.learner.train = lambda mode=True: parts.learner  # type: ignore[method-assign]
    parts._update = lambda rate, step: None  # type: ignore[method-assign]
    assert parts.batches.per_epoch == 6
    parts._train_epoch(1)
    for parameter, gradient in zip(parts.learner.parameters(), expected, strict=True):
        assert parameter.grad is not None
        assert torch.allclose(parameter.grad, gradient, atol=1e-5)


def test_a_training_that_diverges_is_refused(images: Images, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="diverged in epoch"):
        trainer(images, tmp_path, "optimizer.lr=1e30", "clip_norm=null").run()


def test_a_state_of_another_training_is_refused(images: Images, tmp_path: Path) -> None:
    trainer(images, tmp_path, "epochs=1").run()
    with pytest.raises(UserError, match="another recipe"):
        trainer(images, tmp_path, "epochs=2").run()
    tensors, story = load_tensors(tmp_path / STATE)
    tensors["learner.network.0.weight"] = torch.zeros(1)
    save_tensors(tmp_path / STATE, tensors, story)
    with pytest.raises(UserError, match="another network"):
        trainer(images, tmp_path, "epochs=1").run()
    (tmp_path / STATE).write_bytes((tmp_path / STATE).read_bytes()[:-100])
    with pytest.raises(UserError, match="not a whole safetensors"):
        trainer(images, tmp_path, "epochs=1").run()


def test_a_finished_network_is_judged_in_fp32(images: Images, tmp_path: Path) -> None:
    ones = replace(images, val=images.val.take(np.flatnonzero(images.val.labels == 1)))
    recipe = load_recipe("base", ["epochs=0", "ema_decay=null"])
    network = small_network()
    last = last_linear(network)
    with torch.no_grad():
        last.weight.zero_()
        last.bias.copy_(torch.tensor([1.0, 1.001, 0.0]))  # the first two are one number in bf16
    setup = Setup(precision="bf16", channels_last=False, batch_size=16)
    trained = Trainer(network, ones, recipe, setup, folder=tmp_path, world=ALONE)
    trained.run()
    assert trained.accuracy(trained.network) == 0.0
    assert finish(trained, small_description(), ("a", "b", "c"), tmp_path).accuracy == 1.0


def test_bf16_forward_passes_learn_too(images: Images, tmp_path: Path) -> None:
    recipe = load_recipe("base", ["epochs=6", "distillation.teacher=null"])
    setup = Setup(precision="bf16", channels_last=False, batch_size=16)
    done = Trainer(small_network(), images, recipe, setup, folder=tmp_path, world=ALONE)
    done.run()
    assert done.curve[-1].val_accuracy > 0.9
    with autocast(ALONE.device, "bf16"):
        assert done.learner.network(torch.rand(1, 3, 32, 32)).dtype == torch.bfloat16


def test_fp16_scales_losses_and_remembers_by_how_much(images: Images, tmp_path: Path) -> None:
    done = trainer(images, tmp_path, "precision=fp16", "epochs=6")
    # As large as a scale must not be: the first steps overflow and are left out, until it is small enough.
    done.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**30)
    done.run()
    assert done.curve[-1].val_accuracy > 0.9
    assert done.scaler.get_scale() < 2.0**30
    resumed = trainer(images, tmp_path, "precision=fp16", "epochs=6")
    resumed.run()
    assert resumed.scaler.get_scale() == done.scaler.get_scale()
