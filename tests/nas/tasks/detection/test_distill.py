"""The distance to a teacher: smallest where both agree, and following it finds what the teacher finds."""

import pytest
import torch

from nas.tasks.detection.distill import box_distillation_loss
from nas.tasks.detection.geometry import cells_of

CELLS = len(cells_of(64))


def raw(seed: int, images: int = 2) -> torch.Tensor:
    made = torch.randn(images, CELLS, 4 + 3, generator=torch.Generator().manual_seed(seed))
    made[..., 4:] -= 1
    return made


def test_a_twin_is_nowhere_apart() -> None:
    learnt = raw(0).requires_grad_()
    loss = box_distillation_loss(learnt, raw(0), 64)
    loss.backward()  # type: ignore[no-untyped-call]
    assert float(loss.detach()) == pytest.approx(0.0, abs=1e-5)
    assert learnt.grad is not None
    assert float(learnt.grad.abs().max()) < 1e-4


@pytest.mark.parametrize("part", [slice(0, 4), slice(4, 7)])
def test_boxes_and_scores_both_count(part: slice) -> None:
    other = raw(0)
    other[..., part] = raw(1)[..., part]
    assert float(box_distillation_loss(other, raw(0), 64)) > 0.1


def test_following_it_leads_to_the_teacher() -> None:
    learnt, taught = raw(1).requires_grad_(), raw(0)
    optimizer = torch.optim.Adam([learnt], lr=0.1)
    for _ in range(150):
        optimizer.zero_grad()
        box_distillation_loss(learnt, taught, 64).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    sure = taught[..., 4:].sigmoid() > 0.5
    assert float((learnt[..., 4:].sigmoid() - taught[..., 4:].sigmoid())[sure].abs().mean()) < 0.1
    assert float(box_distillation_loss(learnt, taught, 64)) < 0.2 * float(box_distillation_loss(raw(1), taught, 64))


def test_a_teacher_that_finds_nothing_and_shapes() -> None:
    silent = raw(0)
    silent[..., 4:] = -30
    assert torch.isfinite(box_distillation_loss(raw(1), silent, 64))
    with pytest.raises(ValueError, match="are not of"):
        box_distillation_loss(raw(0), raw(0), 96)


@pytest.mark.parametrize("scale", [50.0, 1e30])
def test_difference_and_gradient_are_finite_for_any_finite_outputs(scale: float) -> None:
    learnt, taught = (scale * raw(1)).requires_grad_(), scale * raw(0)
    loss = box_distillation_loss(learnt, taught, 64)
    (gradient,) = torch.autograd.grad(loss, learnt)
    assert torch.isfinite(loss)
    assert torch.isfinite(gradient).all()
