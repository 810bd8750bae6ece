import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import binary_cross_entropy_with_logits
from torchvision.ops import complete_box_iou_loss

from nas.tasks.detection.assignment import assign
from nas.tasks.detection.data import Boxes
from nas.tasks.detection.geometry import boxes_from_raw_torch, cells_of
from nas.tasks.detection.heads import HEADS, AnchorFree, BoxTargets
from nas.tasks.detection.metrics import mean_average_precision
from nas.tasks.detection.postprocess import detections
from tests.nas.tasks.detection.oracle import apart, boxes, fresh_raw, nothing, raw_saying, targets

RESOLUTION, CLASSES = 96, 3
HEAD = AnchorFree()
CELLS = cells_of(RESOLUTION)


def _gradient(
    raw: torch.Tensor, wanted: list[BoxTargets], head: AnchorFree = HEAD
) -> tuple[torch.Tensor, torch.Tensor]:
    leaf = raw.clone().requires_grad_()
    loss = head.loss(leaf, wanted, RESOLUTION)
    (gradient,) = torch.autograd.grad(loss, leaf)
    return loss.detach(), gradient


def _scene(seed: int, images: int) -> list[Boxes]:
    rng = np.random.default_rng(seed)
    return [apart(rng, int(rng.integers(0, 6)), RESOLUTION, CLASSES, least=4) for _ in range(images)]


@settings(max_examples=3)
@given(st.integers(0, 10**6), st.floats(0, 0.4))
def test_targets_loss_and_decoding_agree(seed: int, noise: float) -> None:
    """Raw outputs that are free to move (no network) learn random boxes until reading them gives these boxes."""
    rng = np.random.default_rng(seed)
    truth = [apart(rng, 6, RESOLUTION, CLASSES) for _ in range(4)] + [boxes([])]
    raw = (fresh_raw(len(truth), RESOLUTION, CLASSES, seed) * (1 + noise)).requires_grad_()
    optimizer = torch.optim.Adam([raw], lr=0.1)
    for _ in range(200):
        optimizer.zero_grad()
        HEAD.loss(raw, [targets(t) for t in truth], RESOLUTION).backward()
        optimizer.step()
    found = detections(*HEAD.decode(raw.detach().numpy(), RESOLUTION))
    reached = mean_average_precision(found, truth, CLASSES)
    assert reached.map50 > 0.99
    assert reached.map50_95 > 0.9
    assert not len(found[-1]) or found[-1].scores.max() < 0.1, "something is found where nothing is"


@settings(max_examples=15)
@given(st.integers(0, 10**6))
def test_the_loss_is_the_one_described(seed: int) -> None:
    """Value and gradient against the textbook form in float64, dense and cell by cell, for the same positives."""
    truth = _scene(seed, 3)
    raw = fresh_raw(3, RESOLUTION, CLASSES, seed)
    centres, strides = torch.tensor(CELLS.centres), torch.tensor(CELLS.strides)
    flat = [torch.cat([getattr(targets(t), name) for t in truth]) for name in ("xyxy", "classes")]
    image = torch.tensor([i for i, t in enumerate(truth) for _ in range(len(t))], dtype=torch.int64)
    predicted = boxes_from_raw_torch(raw[..., :4], centres, strides)
    positives = assign(predicted, raw[..., 4:], *flat, image, centres, alpha=0.5, beta=6.0, top_k=10)

    leaf = raw.double().requires_grad_()
    soft = torch.zeros(3 * len(CELLS), CLASSES, dtype=torch.float64)
    box_loss, shares = torch.zeros((), dtype=torch.float64), 0.0
    located = boxes_from_raw_torch(leaf[..., :4], centres.double(), strides.double()).flatten(0, 1)
    for box, cell, share in zip(positives.box.tolist(), positives.cell.tolist(), positives.share.tolist(), strict=True):
        soft[cell, flat[1][box]] = share * positives.iou[positives.box == box].max()
        box_loss = box_loss + share * complete_box_iou_loss(located[cell], flat[0][box].double())
        shares += share
    class_loss = binary_cross_entropy_with_logits(leaf[..., 4:].flatten(0, 1), soft, reduction="sum")
    expected = (class_loss + HEAD.box_weight * box_loss) / max(shares, 1.0)
    (expected_gradient,) = torch.autograd.grad(expected, leaf)

    loss, gradient = _gradient(raw, [targets(t) for t in truth])
    np.testing.assert_allclose(loss, expected.detach(), rtol=1e-4)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-2, atol=1e-5)


def test_images_without_boxes_teach_that_nothing_is_there() -> None:
    raw = fresh_raw(2, RESOLUTION, CLASSES)
    loss, gradient = _gradient(raw, [nothing(), nothing()])
    assert loss > 0
    torch.testing.assert_close(gradient[..., 4:], raw[..., 4:].sigmoid())
    assert (gradient[..., :4] == 0).all()


@settings(max_examples=60)
@given(
    st.integers(0, 10**6),
    st.sampled_from([1.0, 50.0, 1e4, 1e30]),
    st.sampled_from([torch.float32, torch.bfloat16]),
    st.floats(0.01, 90),
)
def test_loss_and_gradient_are_finite_for_any_finite_output(
    seed: int, scale: float, dtype: torch.dtype, size: float
) -> None:
    rng = np.random.default_rng(seed)
    corner = rng.uniform(0, RESOLUTION - 0.01, (20, 2))
    edges = np.concatenate([corner, np.minimum(corner + rng.uniform(0.01, size, (20, 2)), RESOLUTION)], axis=1)
    wanted = [targets(boxes(edges, rng.integers(0, CLASSES, 20), rng.random(20) < 0.2)), nothing()]
    loss, gradient = _gradient((fresh_raw(2, RESOLUTION, CLASSES, seed) * scale).to(dtype), wanted)
    assert loss.dtype == torch.float32
    assert torch.isfinite(loss)
    assert torch.isfinite(gradient).all()


def test_the_loss_is_computed_in_float32_also_under_autocast() -> None:
    raw, wanted = fresh_raw(1, RESOLUTION, CLASSES).bfloat16(), [targets(boxes([[10, 10, 50, 60]]))]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = HEAD.loss(raw, wanted, RESOLUTION)
    torch.testing.assert_close(inside, HEAD.loss(raw.float(), wanted, RESOLUTION), rtol=0, atol=0)


def test_targets_without_area_are_left_out() -> None:
    raw = fresh_raw(1, RESOLUTION, CLASSES)
    flat = [targets(boxes([[10, 10, 10, 30], [20, 20, 10, 30]]))]
    torch.testing.assert_close(HEAD.loss(raw, flat, RESOLUTION), HEAD.loss(raw, [nothing()], RESOLUTION))


class TestCrowd:
    CROWD = boxes([[0, 0, 48, 48]], [1], [True])

    def test_nothing_is_to_be_found_and_nothing_is_punished_in_a_region(self) -> None:
        raw = fresh_raw(1, RESOLUTION, CLASSES)
        _, gradient = _gradient(raw, [targets(self.CROWD)])
        inside = torch.from_numpy((CELLS.centres <= 48).all(axis=1))
        assert (gradient[0, inside, 5] == 0).all()
        assert (gradient[0, ~inside, 5] > 0).all()
        assert (gradient[0, :, [4, 6]] > 0).all(), "other classes are still wrong there"
        assert (gradient[..., :4] == 0).all()

    def test_an_object_in_a_region_is_learnt(self) -> None:
        raw = fresh_raw(1, RESOLUTION, CLASSES)
        both = boxes([[0, 0, 48, 48], [8, 8, 40, 40]], [1, 1], [True, False])
        _, gradient = _gradient(raw, [targets(both)])
        assert (gradient[..., :4] != 0).any()
        assert (gradient[0, :, 5] < 0).any(), "no score is to rise"


def test_a_better_answer_costs_less() -> None:
    truth = boxes([[10, 10, 50, 60], [60, 20, 90, 80]], [0, 2])
    right = torch.from_numpy(raw_saying(truth, RESOLUTION, CLASSES))[None]
    shifted = raw_saying(boxes(truth.xyxy + 6, truth.classes), RESOLUTION, CLASSES)
    swapped = raw_saying(boxes(truth.xyxy, [2, 0]), RESOLUTION, CLASSES)
    losses = [
        float(HEAD.loss(raw, [targets(truth)], RESOLUTION))
        for raw in (right, torch.from_numpy(shifted)[None], torch.from_numpy(swapped)[None])
    ]
    assert losses[0] < min(losses[1:])


def test_the_order_of_images_and_boxes_does_not_matter() -> None:
    first, second = boxes([[10, 10, 50, 60], [60, 20, 90, 80]], [0, 2]), boxes([[5, 5, 30, 30]], [1])
    raw = fresh_raw(2, RESOLUTION, CLASSES)
    turned = boxes(first.xyxy[::-1].copy(), first.classes[::-1].copy())
    torch.testing.assert_close(
        HEAD.loss(raw, [targets(first), targets(second)], RESOLUTION),
        HEAD.loss(raw.flip(0), [targets(second), targets(turned)], RESOLUTION),
    )


def test_shapes_that_do_not_fit_are_refused() -> None:
    raw = fresh_raw(2, RESOLUTION, CLASSES)
    with pytest.raises(ValueError, match="1 targets"):
        HEAD.loss(raw, [nothing()], RESOLUTION)
    with pytest.raises(ValueError, match="cells"):
        HEAD.loss(raw, [nothing(), nothing()], 128)
    with pytest.raises(ValueError, match="cells"):
        HEAD.decode(raw.numpy(), 128)


@pytest.mark.parametrize("kind", ["anchor-free"])
def test_decoding_gives_boxes_in_the_image_and_probabilities(kind: str) -> None:
    raw = (fresh_raw(3, RESOLUTION, CLASSES) * 100).numpy()
    edges, scores = HEADS[kind].decode(raw, RESOLUTION)
    assert edges.shape == (3, len(CELLS), 4)
    assert scores.shape == (3, len(CELLS), CLASSES)
    assert edges.dtype == scores.dtype == np.float32
    assert ((edges >= 0) & (edges <= RESOLUTION)).all()
    assert (edges[..., 2:] >= edges[..., :2]).all()
    assert ((scores >= 0) & (scores <= 1)).all()


@given(st.integers(0, 10**6))
def test_what_is_written_is_found(seed: int) -> None:
    truth = apart(np.random.default_rng(seed), 8, RESOLUTION, CLASSES)
    raw = raw_saying(truth, RESOLUTION, CLASSES)
    (found,) = detections(*HEAD.decode(raw[None], RESOLUTION))
    order = np.lexsort(found.xyxy.T)
    expected = np.lexsort(truth.xyxy.T)
    np.testing.assert_allclose(found.xyxy[order], truth.xyxy[expected], atol=0.1)
    assert found.classes[order].tolist() == truth.classes[expected].tolist()
