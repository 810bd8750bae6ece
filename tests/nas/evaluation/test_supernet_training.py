"""Training a supernet: it learns, resumes to the same curve, and says why it stopped."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nas.data import ImageSplit
from nas.errors import UserError
from nas.evaluation.supernet.config import LOG_STEPS, Adaptation, StepLog, SupernetConfig, SupernetLog, supernet_recipe
from nas.evaluation.supernet.network import Supernet
from nas.evaluation.supernet.scoring import PathScorer
from nas.evaluation.supernet.training import train_supernet
from nas.tasks import TASKS
from search_spaces import StagedSpace
from tests.nas.evaluation.small import coloured_images, small_space

DATA = coloured_images()
RECIPE = supernet_recipe(TASKS["classification"].recipe()).changed(
    batch_size=8, precision="fp32", optimizer={"lr": 0.1}
)
CONFIG = SupernetConfig(steps=2 * LOG_STEPS, random_paths=1, recipe=RECIPE)


def changed(**settings: Any) -> SupernetConfig:
    """`CONFIG` with other settings of its recipe."""
    return replace(CONFIG, recipe=RECIPE.changed(**settings))


def narrow_space() -> StagedSpace:
    space = small_space("compact")
    for number in (1, 2, 3, 4):
        space = space.restrict(f"stage{number}.family", ("basic", "rep")).restrict(f"stage{number}.depth", (1,))
    return space


def weights(supernet: Supernet) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in supernet.state_dict().items()}


@pytest.fixture(scope="module")
def trained() -> tuple[Supernet, SupernetLog]:
    supernet = Supernet(narrow_space(), (3,))
    return supernet, train_supernet(supernet, DATA, CONFIG, device="cpu")


def test_it_learns_and_paths_are_scored(trained: tuple[Supernet, SupernetLog]) -> None:
    supernet, log = trained
    assert log.stopped is None
    assert log.steps == CONFIG.steps
    assert [entry.step for entry in log.curve] == [LOG_STEPS, 2 * LOG_STEPS]
    assert log.curve[1].largest < log.curve[0].largest
    assert log.core_seconds > 0
    before = weights(supernet)
    scorer = PathScorer(supernet=supernet, data=DATA, device="cpu", calibration_images=64)
    space = supernet.space
    archs = [space.architecture(row) for row in space.sample(3, np.random.default_rng(0))]
    scores = [scorer.score(arch).accuracy for arch in archs]
    assert all(0 < scorer.score(arch).loss < 1.0 for arch in archs)  # guessing: 1.1
    assert min(scores) > 0.5  # guessing: 0.33
    assert max(scores) > 0.8
    assert scores == [scorer.score(arch).accuracy for arch in archs]
    after = weights(supernet)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_scoring_measures_batch_norms_afresh(trained: tuple[Supernet, SupernetLog]) -> None:
    supernet, _ = trained
    arch = supernet.space.architecture(supernet.space.sample(1, np.random.default_rng(0))[0])
    network = PathScorer(supernet=supernet, data=DATA, device="cpu").calibrated(arch)
    images = DATA.preprocess.tensor(torch.from_numpy(DATA.train.images))
    with torch.no_grad():
        seen = network.get_submodule("stem.conv")(images)
    mean = network.state_dict()["stem.bn.running_mean"]
    torch.testing.assert_close(mean, seen.mean((0, 2, 3)), atol=1e-3, rtol=1e-3)
    assert not torch.allclose(mean, supernet.tensors(arch)["stem.bn.running_mean"])


def test_paths_are_adapted_before_they_are_scored(trained: tuple[Supernet, SupernetLog]) -> None:
    supernet, _ = trained
    before = weights(supernet)
    plain = PathScorer(supernet=supernet, data=DATA, device="cpu", calibration_images=64)
    archs = [supernet.space.architecture(row) for row in supernet.space.sample(8, np.random.default_rng(0))]
    arch = max(archs, key=lambda arch: plain.score(arch).loss)  # some paths have little left to learn
    scorer = replace(plain, adaptation=Adaptation(steps=20, batch_size=16, lr=0.05))  # more than an epoch
    found = scorer.score(arch)
    assert found.loss < 0.9 * plain.score(arch).loss
    again = scorer.score(arch)
    assert (again.accuracy, again.loss) == (found.accuracy, found.loss)
    assert replace(scorer, seed=1).score(arch).loss != found.loss
    assert found.core_seconds > 0
    after = weights(supernet)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not supernet.training


def test_an_adaptation_that_diverges_says_so(trained: tuple[Supernet, SupernetLog]) -> None:
    supernet, _ = trained
    arch = supernet.space.architecture(supernet.space.sample(1, np.random.default_rng(0))[0])
    wild = Adaptation(steps=12, batch_size=8, lr=1e20)
    with pytest.raises(RuntimeError, match="the path's adaptation diverged"):
        PathScorer(supernet=supernet, data=DATA, device="cpu", adaptation=wild).score(arch)


@pytest.mark.parametrize(("name", "value"), [("steps", 0), ("batch_size", 1), ("lr", 0.0)])
def test_wrong_adaptations_are_named(name: str, value: float) -> None:
    with pytest.raises(UserError, match=f"adaptation setting {name} = "):
        replace(Adaptation(), **{name: value})


def test_an_interrupted_training_goes_on_to_the_same_curve(
    trained: tuple[Supernet, SupernetLog], tmp_path: Path
) -> None:
    whole, log = trained
    file = tmp_path / "supernet.safetensors"

    def killed(entry: StepLog) -> bool:
        if entry.step == CONFIG.steps:  # what the last save does not hold is done again
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        train_supernet(
            Supernet(narrow_space(), (3,)),
            DATA,
            CONFIG,
            checkpoint=file,
            checkpoint_s=0.0,
            device="cpu",
            callback=killed,
        )
    resumed = Supernet(narrow_space(), (3,), seed=9)
    again = train_supernet(resumed, DATA, CONFIG, checkpoint=file, device="cpu")
    assert again.steps == CONFIG.steps
    assert again.curve == log.curve
    ours, theirs = weights(whole), weights(resumed)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    done = train_supernet(Supernet(narrow_space(), (3,)), DATA, CONFIG, checkpoint=file, device="cpu")
    assert (done.curve, done.seconds) == (again.curve, again.seconds)  # nothing is trained twice


def test_random_paths_with_adamw_learn_and_resume(tmp_path: Path) -> None:
    config = replace(changed(optimizer={"name": "adamw", "lr": 0.003}), sandwich=False, steps=4 * LOG_STEPS)
    file, space = tmp_path / "supernet.safetensors", narrow_space()
    whole = Supernet(space, (3,))
    log = train_supernet(whole, DATA, config, device="cpu")
    assert log.curve[-1].largest < log.curve[0].largest
    assert log.curve[0].largest == log.curve[0].smallest  # there is one path per step
    resumed = Supernet(space, (3,))
    train_supernet(resumed, DATA, config, checkpoint=file, device="cpu", callback=lambda entry: entry.step < 50)
    again = train_supernet(resumed, DATA, config, checkpoint=file, device="cpu")
    assert again.curve == log.curve
    ours, theirs = weights(whole), weights(resumed)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_training_with_turns_resumes(tmp_path: Path) -> None:
    config = replace(CONFIG, sandwich=False, random_paths=2, fair=True)
    file, space = tmp_path / "supernet.safetensors", narrow_space()
    whole = Supernet(space, (3,))
    log = train_supernet(whole, DATA, config, device="cpu")
    assert log.curve[1].largest < log.curve[0].largest
    resumed = Supernet(space, (3,))
    train_supernet(resumed, DATA, config, checkpoint=file, device="cpu", callback=lambda entry: entry.step < 50)
    again = train_supernet(resumed, DATA, config, checkpoint=file, device="cpu")
    assert again.curve == log.curve


def test_a_foreign_or_broken_checkpoint_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "supernet.safetensors"
    space = narrow_space()
    train_supernet(Supernet(space, (3,)), DATA, replace(CONFIG, steps=1), checkpoint=file, device="cpu")
    for supernet, config in (
        (Supernet(space, (3,)), replace(changed(optimizer={"lr": 0.2}), steps=1)),
        (Supernet(space.restrict("stage1.width", (16,)), (3,)), replace(CONFIG, steps=1)),
    ):
        with pytest.raises(UserError, match="is of another training"):
            train_supernet(supernet, DATA, config, checkpoint=file, device="cpu")
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(UserError, match="cannot be read as a checkpoint"):
        train_supernet(Supernet(space, (3,)), DATA, replace(CONFIG, steps=1), checkpoint=file, device="cpu")


def test_divergence_is_recorded_and_final(tmp_path: Path) -> None:
    file = tmp_path / "supernet.safetensors"
    supernet = Supernet(narrow_space(), (3,))
    with torch.no_grad():
        next(p for name, p in supernet.named_parameters() if name.startswith("head")).fill_(float("nan"))
    log = train_supernet(supernet, DATA, CONFIG, checkpoint=file, device="cpu")
    assert log.diverged
    assert log.stopped is not None
    assert log.stopped.startswith("diverged at step 1: loss nan")
    again = train_supernet(Supernet(narrow_space(), (3,)), DATA, CONFIG, checkpoint=file, device="cpu")
    assert again.stopped == log.stopped


def test_a_time_limit_ends_it_for_good(tmp_path: Path) -> None:
    config, file = replace(changed(time_limit_s=1.0), steps=10**6), tmp_path / "supernet.safetensors"
    log = train_supernet(Supernet(narrow_space(), (3,)), DATA, config, checkpoint=file, device="cpu")
    again = train_supernet(Supernet(narrow_space(), (3,)), DATA, config, checkpoint=file, device="cpu")
    assert again == log, "a search that goes on judges by the supernet that it judged by before"
    assert log.stopped == "time limit"
    assert 0 < log.steps < 10**6
    assert log.seconds < 5.0


def test_labels_out_of_range_are_named() -> None:
    with pytest.raises(UserError, match=r"answers have the size \(2,\), the data need \(3,\)"):
        train_supernet(Supernet(narrow_space(), (2,)), DATA, CONFIG, device="cpu")
    one = replace(DATA, train=ImageSplit(DATA.train.images[:1], DATA.train.labels[:1]))
    with pytest.raises(UserError, match="cannot train on 1 and validate"):
        train_supernet(Supernet(narrow_space(), (3,)), one, CONFIG, device="cpu")


def test_images_of_one_class_are_no_error() -> None:
    one_class = replace(DATA, train=ImageSplit(DATA.train.images, np.zeros_like(DATA.train.labels)))
    log = train_supernet(Supernet(narrow_space(), (3,)), one_class, replace(CONFIG, steps=2), device="cpu")
    assert (log.steps, log.stopped) == (2, None)


def test_several_resolutions_train_together() -> None:
    supernet = Supernet(small_space("mobile", (32, 48)), (3,))
    log = train_supernet(supernet, DATA, replace(changed(precision="bf16"), steps=2, distillation=0.5), device="cpu")
    assert (log.steps, log.precision) == (2, "bf16")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 0),
        ("distillation", 1.5),
    ],
)
def test_wrong_settings_are_named(name: str, value: float) -> None:
    with pytest.raises(UserError, match=f"supernet setting {name} = "):
        replace(CONFIG, **{name: value})


def test_settings_that_a_supernet_has_no_use_for_are_refused() -> None:
    with pytest.raises(UserError, match=r"a supernet has no use for the setting ema_decay = 0\.9"):
        changed(ema_decay=0.9)


@pytest.mark.gpu
def test_the_same_on_a_gpu(tmp_path: Path) -> None:
    file = tmp_path / "supernet.safetensors"
    supernet = Supernet(narrow_space(), (3,))
    log = train_supernet(supernet, DATA, changed(precision="bf16"), checkpoint=file, device="cuda")
    assert log.stopped is None
    assert next(supernet.parameters()).device.type == "cuda"
    arch = supernet.space.architecture(supernet.space.sample(1, np.random.default_rng(0))[0])
    scorer = PathScorer(supernet=supernet, data=DATA, device="cuda", precision="bf16")
    assert scorer.score(arch).accuracy > 0.5
    again = train_supernet(Supernet(narrow_space(), (3,)), DATA, changed(precision="bf16"), checkpoint=file)
    assert again.curve == log.curve
