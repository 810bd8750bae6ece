"""Batches that come again: what a teacher said of them is remembered, and nothing else changes."""

from typing import Any

import pytest
import torch
from torch import nn

from nas.data import ImageSplit
from nas.errors import UserError
from nas.tasks import TASKS
from nas.tasks.examples import Examples
from nas.training import distill
from nas.training.distill import Teacher
from nas.training.loop import train
from nas.training.recipe import Recipe
from nas.training.recipe_files import load_recipe
from nas.training.result import TrainResult
from tests.nas.training.conftest import small_network


class Counted(nn.Module):
    """Counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.asked = small_network(seed=1), 0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.asked += 1
        answers: torch.Tensor = self.inner(images)
        return answers


def seen_in(recipe: Recipe, images: Examples[ImageSplit]) -> tuple[list[torch.Tensor], int, TrainResult]:
    """The inputs of all steps, how often the teacher was asked, and what came of the training."""
    network, counted, seen = small_network(), Counted().eval(), list[torch.Tensor]()
    objective = TASKS["classification"].objective(network, images, recipe, device=torch.device("cpu"))
    batch = objective.batch

    def recorded(*args: Any) -> Any:
        made = batch(*args)
        seen.append(made[0].clone())
        return made

    objective.batch = recorded  # type: ignore[method-assign]
    result = train(network, objective, recipe, device="cpu", teacher=Teacher(counted, "counted"))
    return seen, counted.asked, result


def taught(**changes: Any) -> Recipe:
    recipe = load_recipe("base", ["precision=fp32", "batch_size=30", "epochs=5", "distillation.teacher=null"])
    return recipe.changed(**changes)


def test_a_teacher_answers_batches_that_come_again_once(images: Examples[ImageSplit]) -> None:
    whole, each, _ = seen_in(taught(), images)
    per_epoch = len(whole) // 5
    assert each == len(whole)
    seen, asked, _ = seen_in(taught(distillation={"views": 2}), images)
    assert asked == 2 * per_epoch
    epochs = [seen[i : i + per_epoch] for i in range(0, len(seen), per_epoch)]
    for epoch, again in ((0, 2), (1, 3), (0, 4)):
        assert all(torch.equal(a, b) for a, b in zip(epochs[epoch], epochs[again], strict=True))
    assert not torch.equal(epochs[0][0], epochs[1][0])


def test_remembered_answers_change_nothing_of_a_training(
    images: Examples[ImageSplit], monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = taught(distillation={"views": 2, "logits_weight": 1.0})
    seen, asked, remembered = seen_in(recipe, images)
    assert asked < len(seen)
    monkeypatch.setattr(distill, "REMEMBERED_BYTES", 0)
    seen, asked, forgotten = seen_in(recipe, images)
    assert asked == len(seen), "what has no room is asked for again"
    assert [r.train_loss for r in remembered.curve] == [r.train_loss for r in forgotten.curve]


@pytest.mark.parametrize("changes", [{"draws": "stream"}, {"time_limit_s": 5.0}])
def test_batches_come_again_only_where_they_hang_on_their_step(
    changes: dict[str, Any], images: Examples[ImageSplit]
) -> None:
    with pytest.raises(UserError, match="batches that come again"):
        seen_in(taught(distillation={"views": 2}, **changes), images)
