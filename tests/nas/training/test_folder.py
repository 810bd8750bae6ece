"""The loop: it learns, it goes on to the same end, and says what is wrong."""

import csv
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from nas.data import ImageData, ImageSplit
from nas.errors import UserError
from nas.files.tensors import load_tensors, save_tensors
from nas.finetune.finished import finish
from nas.tasks import TASKS
from nas.tasks.examples import Examples
from nas.training.distill import Teacher, last_linear
from nas.training.folder import BEST, STATE, train_in
from nas.training.loop import Training, epochs_without_gain
from nas.training.objective import Validation
from nas.training.precision import autocast
from nas.training.recipe_files import load_recipe
from nas.training.result import EpochRecord
from nas.training.setup import Setup
from nas.training.state import TrainingState, restore, state_of
from nas.training.world import World
from tests.nas.small_runs import ALONE, small_description
from tests.nas.training.conftest import small_network
from tests.nas.training.kept import Kept, training_of

SETUP = Setup(precision="fp32", channels_last=True, batch_size=16)
STRONG = ("augmentation.mixup_alpha=0.2", "augmentation.randaugment_ops=1", "augmentation.erasing_probability=0.3")


class Killed(Exception):
    pass


def training(images: Examples[ImageSplit], *settings: str, seed: int = 0) -> Training:
    recipe = load_recipe("base", ["precision=fp32", "epochs=4", "checkpoints.average_epochs=2", *settings])
    assert recipe.precision != "auto"
    setup = replace(SETUP, precision=recipe.precision)
    return training_of("classification", small_network(seed=seed), images, recipe, setup)


def kept(images: Examples[ImageSplit], folder: Path, *settings: str, seed: int = 0) -> Kept:
    return Kept(training(images, *settings, seed=seed), folder)


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
        ("draws=stream", "ema_rise=ratio", "optimizer.fused=no", *STRONG),
        *(
            (f"optimizer.name={name}", "optimizer.lr=1e-3", "schedule.name=step", "schedule.step_epochs=[2]")
            for name in ("adam", "nadamw", "rmsprop", "lamb", "lion")
        ),
    ],
)
def test_an_interrupted_training_ends_with_the_same_weights(
    settings: tuple[str, ...], images: Examples[ImageSplit], tmp_path: Path
) -> None:
    whole = kept(images, tmp_path / "whole", *settings)
    whole.run()
    with pytest.raises(Killed):
        kept(images, tmp_path / "parts", *settings).run(kill_after(2))
    # Other first weights and another random state: all that counts lies in the folder.
    torch.rand(7)
    resumed = kept(images, tmp_path / "parts", *settings, seed=5)
    resumed.run()
    ends = [(run.training.network.state_dict(), run.training.last_epochs.mean() or {}) for run in (resumed, whole)]
    for mine, theirs in zip(*ends, strict=True):
        assert mine
        assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    figures = [[(r.epoch, r.lr, r.train_loss, r.val_accuracy) for r in t.training.curve] for t in (resumed, whole)]
    assert figures[0] == figures[1]
    with open(tmp_path / "parts" / "log.csv") as file:
        assert [int(row["epoch"]) for row in csv.DictReader(file)] == [1, 2, 3, 4]


def test_it_learns_and_leaves_the_random_state_alone(images: Examples[ImageSplit], tmp_path: Path) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    result = kept(images, tmp_path, "epochs=6").run()
    assert torch.equal(torch.get_rng_state(), before)
    assert result.accuracy == result.curve[-1].val_accuracy > 0.9
    assert all(0 <= r.data_wait_share < 1 and r.examples_per_s > 0 for r in result.curve)
    assert list((tmp_path / "tensorboard").iterdir())


@pytest.mark.parametrize("draws", ["step", "stream"])
def test_batches_made_beside_the_gradients_change_nothing(images: Examples[ImageSplit], draws: str) -> None:
    threads = torch.get_num_threads()
    beside, after = (training(images, "epochs=1", f"draws={draws}", *STRONG) for _ in range(2))
    beside.run()
    assert torch.get_num_threads() == threads
    after.learner.train()
    # Dropout in the network and augmentation draw from one random state.
    with torch.random.fork_rng():
        after.batches.start()
        for step, batch in enumerate(after._prepared(1)):
            after.optimizer.zero_grad()
            after._loss(*batch).backward()  # type: ignore[no-untyped-call]
            after._update(step)
    expected = after.learner.state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in beside.learner.state_dict().items())


def test_it_stops_where_nothing_gets_better(images: Examples[ImageSplit], tmp_path: Path) -> None:
    done = kept(images, tmp_path, "epochs=50", "early_stopping.patience_epochs=2")
    result = done.run()
    assert result.stopped == "no gain"
    assert len(result.curve) == done.training.best_epoch + 2 < 50
    again = kept(images, tmp_path, "epochs=50", "early_stopping.patience_epochs=2").run(
        kill_after(len(result.curve) + 1)
    )
    assert (again.stopped, again.curve, again.accuracy) == ("no gain", result.curve, result.accuracy)


def test_the_best_weights_are_kept_whatever_counts_as_a_gain(
    images: Examples[ImageSplit], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = kept(images, tmp_path, "early_stopping.min_gain=0.9", "early_stopping.patience_epochs=4")
    found = iter(map(Validation, [0.3, 0.5, 0.4, 0.45]))
    monkeypatch.setattr(done.training.objective, "validate", lambda network, precision: next(found))
    assert done.run().stopped is None
    assert done.training.best_epoch == 2
    assert load_tensors(tmp_path / BEST)[1] == {"epoch": 2}
    assert epochs_without_gain([0.3, 0.35, 0.39, 0.41, 0.41], 0.1) == 1
    assert epochs_without_gain([0.3, 0.3], 0.0) == 1
    assert epochs_without_gain([], 0.0) == 0


def test_all_that_is_random_at_the_start_hangs_on_the_seed(images: Examples[ImageSplit]) -> None:
    teacher = Teacher(small_network(seed=1).eval(), "other")

    def adapter(seed: int) -> torch.Tensor:
        recipe = load_recipe("base", [f"seed={seed}", "distillation.features_weight=1"])
        made = training_of("classification", small_network(), images, recipe, SETUP, teacher)
        assert made.learner.adapter is not None
        return made.learner.adapter.weight.detach()

    first = adapter(3)
    torch.rand(7)
    before = torch.get_rng_state()
    assert torch.equal(adapter(3), first)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(adapter(4), first)


class Asked(nn.Module):
    """A network that counts what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.network, self.times = small_network(seed=1).eval(), 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.times += 1
        given: torch.Tensor = self.network(inputs)
        return given


def taught(images: Examples[ImageSplit], teacher: Teacher, *settings: str) -> Training:
    recipe = load_recipe("base", ["precision=fp32", "epochs=5", "distillation.logits_weight=1", *STRONG, *settings])
    return training_of("classification", small_network(), images, recipe, SETUP, teacher)


def test_examples_that_come_again_are_the_same_and_the_teacher_is_not_asked(images: Examples[ImageSplit]) -> None:
    asked = Asked()
    teacher = Teacher(asked, "other")
    made = taught(images, teacher, "distillation.views=2")
    once, again, other = (list(made._prepared(epoch)) for epoch in (1, 3, 2))
    assert all(torch.equal(a[0], b[0]) and a[2] == b[2] for a, b in zip(once, again, strict=True))
    assert not any(torch.equal(a[0], b[0]) for a, b in zip(once, other, strict=True))
    result = made.run()
    assert len(result.curve) == 5
    assert asked.times == 2 * made.batches.per_epoch
    # Another training on the same batches asks nothing, and one that keeps no answers comes to the same weights.
    for another in (teacher, Teacher(small_network(seed=1).eval(), "other")):
        other_student = taught(images, another, "distillation.views=2")
        other_student.run()
        for name, value in made.network.state_dict().items():
            assert torch.equal(other_student.network.state_dict()[name], value), name
    assert asked.times == 2 * made.batches.per_epoch


def test_without_views_every_epoch_has_examples_and_answers_of_its_own(images: Examples[ImageSplit]) -> None:
    asked = Asked()
    made = taught(images, Teacher(asked, "other"))
    assert not any(torch.equal(a[0], b[0]) for a, b in zip(made._prepared(1), made._prepared(3), strict=True))
    made.run()
    assert asked.times == 5 * made.batches.per_epoch


def test_norms_and_biases_have_no_weight_decay(images: Examples[ImageSplit]) -> None:
    made = training(images)
    decayed = {id(p) for g in made.optimizer.param_groups if g["weight_decay"] for p in g["params"]}
    assert len(decayed) == sum(p.ndim > 1 for p in made.parameters)
    assert {p.ndim for g in made.optimizer.param_groups if not g["weight_decay"] for p in g["params"]} == {1}


def test_the_rate_is_scaled_to_the_batch(images: Examples[ImageSplit]) -> None:
    assert training(images, "optimizer.lr=0.1").peak_lr == pytest.approx(0.05)
    assert training(images, "optimizer.lr=0.1", "accumulate_steps=2").peak_lr == pytest.approx(0.1)
    assert training(images, "optimizer.lr=0.1", "optimizer.lr_batch_size=null").peak_lr == 0.1


def test_accumulated_gradients_are_those_of_the_whole_batch(
    images: Examples[ImageSplit], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = ("augmentation.crop=none", "augmentation.flip=no", "clip_norm=null", "optimizer.lr_batch_size=null")
    parts = training(images, "epochs=1", *plain, "accumulate_steps=6")
    # Dropout and batch norm look at single batches: leave them out.
    parts.learner.eval()
    loss = sum(parts._loss(*batch) for batch in parts._prepared(1)) / 6
    assert isinstance(loss, torch.Tensor)
    expected = torch.autograd.grad(loss, parts.parameters)
    monkeypatch.setattr(parts.learner, "train", lambda mode=True: parts.learner)
    monkeypatch.setattr(parts, "_update", lambda step: 0.0)
    assert parts.batches.per_epoch == 6
    parts.run()
    for parameter, gradient in zip(parts.parameters, expected, strict=True):
        assert parameter.grad is not None
        assert torch.allclose(parameter.grad, gradient, atol=1e-5)


def test_a_batch_in_passes_trains_as_accumulated_gradients_do(images: Examples[ImageSplit]) -> None:
    """With the rate of the whole batch."""
    whole = training(images, "epochs=2")
    recipe = whole.recipe
    in_passes = training_of("classification", small_network(), images, recipe, replace(whole.setup, passes=2))
    halves = recipe.changed(accumulate_steps=2)
    accumulated = training_of("classification", small_network(), images, halves, replace(whole.setup, batch_size=8))
    assert in_passes.peak_lr == accumulated.peak_lr == whole.peak_lr
    assert in_passes.batches.per_epoch == accumulated.batches.per_epoch > whole.batches.per_epoch
    assert in_passes.steps_per_epoch == whole.steps_per_epoch
    assert in_passes.run().accuracy == accumulated.run().accuracy
    one, other = in_passes.network.state_dict(), accumulated.network.state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_training_that_diverges_is_refused(images: Examples[ImageSplit], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="diverged in epoch"):
        kept(images, tmp_path, "optimizer.lr=1e30", "clip_norm=null").run()


def test_a_state_of_another_training_is_refused(images: Examples[ImageSplit], tmp_path: Path) -> None:
    kept(images, tmp_path, "epochs=1").run()
    with pytest.raises(UserError, match="another recipe"):
        kept(images, tmp_path, "epochs=2").run()
    tensors, story = load_tensors(tmp_path / STATE)
    tensors["learner.network.0.weight"] = torch.zeros(1)
    save_tensors(tmp_path / STATE, tensors, story)
    with pytest.raises(UserError, match="another network"):
        kept(images, tmp_path, "epochs=1").run()
    (tmp_path / STATE).write_bytes((tmp_path / STATE).read_bytes()[:-100])
    with pytest.raises(UserError, match="not a whole safetensors"):
        kept(images, tmp_path, "epochs=1").run()


def test_a_finished_network_is_judged_in_fp32(
    images: Examples[ImageSplit], blob_data: ImageData, tmp_path: Path
) -> None:
    ones = replace(images, val=images.val.take(np.flatnonzero(images.val.labels == 1)))
    recipe = load_recipe("base", ["epochs=0", "ema_decay=null"])
    network = small_network()
    last = last_linear(network)
    with torch.no_grad():
        last.weight.zero_()
        last.bias.copy_(torch.tensor([1.0, 1.001, 0.0]))  # the first two are one number in bf16
    setup = Setup(precision="bf16", channels_last=False, batch_size=16)
    trained = training_of("classification", network, ones, recipe, setup)
    train_in(tmp_path, trained)
    assert trained.objective.validate(trained.network, "bf16").accuracy == 0.0
    assert finish(trained, small_description(), blob_data, tmp_path).accuracy == 1.0


def test_bf16_forward_passes_learn_too(images: Examples[ImageSplit]) -> None:
    recipe = load_recipe("base", ["epochs=6", "distillation.teacher=null"])
    setup = Setup(precision="bf16", channels_last=False, batch_size=16)
    done = training_of("classification", small_network(), images, recipe, setup)
    assert done.run().accuracy > 0.9
    with autocast(ALONE.device, "bf16"):
        assert done.learner.network(torch.rand(1, 3, 32, 32)).dtype == torch.bfloat16


def test_fp16_scales_losses_and_remembers_by_how_much(images: Examples[ImageSplit], tmp_path: Path) -> None:
    done = kept(images, tmp_path, "precision=fp16", "epochs=6")
    # As large as a scale must not be: the first steps overflow and are left out, until it is small enough.
    done.training.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**30)
    assert done.run().accuracy > 0.9
    scale = done.training.scaler.get_scale()
    assert scale < 2.0**30
    resumed = kept(images, tmp_path, "precision=fp16", "epochs=6")
    resumed.run()
    assert resumed.training.scaler.get_scale() == scale


def test_a_training_goes_on_from_a_state_in_memory(images: Examples[ImageSplit]) -> None:
    """Also where all random numbers come from one stream: a candidate can become a finalist."""
    settings = ("draws=stream", "ema_rise=ratio", *STRONG)
    whole, first, second = (training(images, *settings, seed=seed) for seed in (0, 0, 5))
    states = []
    whole.run()
    first.run(keep=lambda run: states.append(copied(state_of(run))) if len(run.curve) == 2 else None)
    restore(second, states[0])
    second.run()
    expected = whole.network.state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in second.network.state_dict().items())


def copied(state: TrainingState) -> TrainingState:
    return TrainingState({name: tensor.clone() for name, tensor in state.tensors.items()}, deepcopy(state.numbers))


@pytest.mark.parametrize("setting", ["draws=stream", "time_limit_s=10"])
def test_several_processes_cannot_do_everything(images: Examples[ImageSplit], setting: str) -> None:
    recipe = load_recipe("base", [setting])
    objective = TASKS["classification"].objective(small_network(), images, recipe, device=ALONE.device)
    with pytest.raises(UserError, match="is for one process"):
        Training(small_network(), objective, recipe, world=World(0, 2, ALONE.device), setup=SETUP)


def test_a_network_keeps_the_momentum_of_its_norms_unless_told(images: Examples[ImageSplit]) -> None:
    def momenta(*overrides: str) -> set[float | None]:
        network = small_network()
        for module in network.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.momentum = 0.01
        training_of("classification", network, images, load_recipe("base", overrides), SETUP)
        return {m.momentum for m in network.modules() if isinstance(m, torch.nn.BatchNorm2d)}

    assert momenta() == {0.01}
    assert momenta("norm_momentum=0.6") == {0.6}
