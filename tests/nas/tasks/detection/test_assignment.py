import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from nas.tasks.detection.assignment import Positives, assign, cells_inside
from nas.tasks.detection.geometry import boxes_from_raw_torch, cells_of, paired_iou_torch, pairwise_iou
from tests.nas.tasks.detection.oracle import fresh_raw

RESOLUTION, CLASSES = 64, 3
CELLS = cells_of(RESOLUTION)
CENTRES, STRIDES = torch.tensor(CELLS.centres), torch.tensor(CELLS.strides)


def _assign(raw: torch.Tensor, xyxy: torch.Tensor, classes: torch.Tensor, image: torch.Tensor, top_k: int) -> Positives:
    predicted = boxes_from_raw_torch(raw[..., :4], CENTRES, STRIDES)
    return assign(predicted, raw[..., 4:], xyxy, classes, image, CENTRES, alpha=0.5, beta=6.0, top_k=top_k)


def _scene(seed: int, count: int, least: float, most: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    corner = rng.uniform(0, RESOLUTION - least, (count, 2))
    xyxy = np.concatenate([corner, np.minimum(corner + rng.uniform(least, most, (count, 2)), RESOLUTION)], axis=1)
    return (
        torch.tensor(xyxy, dtype=torch.float32),
        torch.tensor(rng.integers(0, CLASSES, count)),
        torch.tensor(rng.integers(0, 2, count)),
    )


def _by_loops(
    raw: torch.Tensor, xyxy: torch.Tensor, classes: torch.Tensor, image: torch.Tensor, top_k: int
) -> dict[int, int]:
    """Cell of the batch -> box, by the definition, one pair at a time."""
    predicted = boxes_from_raw_torch(raw[..., :4], CENTRES, STRIDES).numpy()
    scores = raw[..., 4:].sigmoid().numpy()
    owner: dict[int, tuple[float, int]] = {}
    for box, (edges, label, where) in enumerate(zip(xyxy.numpy(), classes.tolist(), image.tolist(), strict=True)):
        ious = pairwise_iou(edges[None], predicted[where])[0]
        inside = [
            i for i, (x, y) in enumerate(CELLS.centres) if edges[0] <= x <= edges[2] and edges[1] <= y <= edges[3]
        ]
        inside.sort(key=lambda i: -(scores[where, i, label] ** 0.5) * ious[i] ** 6)
        for i in inside[:top_k]:
            key = where * len(CELLS) + i
            if key not in owner or ious[i] > owner[key][0]:
                owner[key] = (float(ious[i]), box)
    return {key: box for key, (_, box) in owner.items()}


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 12))
def test_the_cells_are_those_of_the_definition(seed: int, count: int, top_k: int) -> None:
    raw = fresh_raw(2, RESOLUTION, CLASSES, seed)
    raw[..., :4] += 1
    scene = _scene(seed, count, 10, 50)
    expected = _by_loops(raw, *scene, top_k)
    got = _assign(raw, *scene, top_k)
    ours = dict(zip(got.cell.tolist(), got.box.tolist(), strict=True))
    lost = set(range(count)) - set(expected.values())  # these get a free cell besides, tested below
    assert {cell: box for cell, box in ours.items() if box not in lost} == expected


@given(st.integers(0, 10**6), st.integers(0, 20), st.floats(0.5, 30))
def test_every_box_has_a_cell_and_no_cell_two_boxes(seed: int, count: int, largest: float) -> None:
    raw = fresh_raw(2, RESOLUTION, CLASSES, seed)
    xyxy, classes, image = _scene(seed, count, 0.3, largest)
    got = _assign(raw, xyxy, classes, image, 10)
    assert set(got.box.tolist()) == set(range(count))
    assert len(set(got.cell.tolist())) == len(got.cell)
    assert torch.equal(got.cell // len(CELLS), image[got.box]), "a cell of another image"
    assert torch.bincount(got.box, minlength=1).max() <= 10
    assert ((got.iou >= 0) & (got.iou <= 1)).all()
    for box in range(count):
        assert got.share[got.box == box].max() == 1


def test_equal_boxes_and_boxes_outside_the_image_get_cells_of_their_own() -> None:
    same = [[10, 10, 20, 20]] * 5 + [[500, 500, 520, 520]]
    xyxy, zeros = torch.tensor(same, dtype=torch.float32), torch.zeros(6, dtype=torch.int64)
    got = _assign(fresh_raw(1, RESOLUTION, CLASSES), xyxy, zeros, zeros, 10)
    assert set(got.box.tolist()) == set(range(6))
    assert len(set(got.cell.tolist())) == len(got.cell)


def test_a_box_that_lost_its_cells_gets_the_best_that_is_free_then_the_nearest() -> None:
    raw, zeros = fresh_raw(1, RESOLUTION, CLASSES), torch.zeros(3, dtype=torch.int64)
    same = torch.tensor([[8.0, 8.0, 24.0, 24.0]] * 2)
    predicted = boxes_from_raw_torch(raw[..., :4], CENTRES, STRIDES)[0]
    _, inside = cells_inside(same[:1], CENTRES)
    alignment = raw[0, inside, 4].sigmoid() ** 0.5 * paired_iou_torch(predicted[inside], same[:1]) ** 6
    best = inside[alignment.argsort(descending=True)].tolist()
    got = _assign(raw, same, zeros[:2], zeros[:2], 1)
    assert dict(zip(got.box.tolist(), got.cell.tolist(), strict=True)) == {0: best[0], 1: best[1]}

    tiny = torch.tensor([[4.0, 60.0, 4.1, 60.1]] * 3)  # around the centre of the finest level's last row
    got = _assign(raw, tiny, zeros, zeros, 10)
    assert got.cell.tolist()[0] == 7 * 8
    assert {tuple(CENTRES[cell].tolist()) for cell in got.cell[1:].tolist()} <= {(4, 52), (12, 60), (8, 56)}


def test_more_boxes_than_cells_leave_some_out() -> None:
    count = len(CELLS) + 5
    xyxy, classes, _ = _scene(0, count, 20, 40)
    got = _assign(fresh_raw(1, RESOLUTION, CLASSES), xyxy, classes, torch.zeros(count, dtype=torch.int64), 10)
    assert sorted(got.cell.tolist()) == list(range(len(CELLS)))
    assert set(got.box.tolist()) < set(range(count))


def test_a_box_between_the_centres_has_the_cell_around_it() -> None:
    box, cell = cells_inside(torch.tensor([[8.5, 8.5, 10.0, 10.0]]), CENTRES)
    assert box.tolist() == [0] * len(cell)
    assert [12.0, 12.0] in CENTRES[cell].tolist()


def test_without_overlap_a_box_is_learnt_all_the_same() -> None:
    raw = fresh_raw(1, RESOLUTION, CLASSES)
    raw[..., :4] = -200  # boxes of no size
    zero = torch.zeros(1, dtype=torch.int64)
    got = _assign(raw, torch.tensor([[10.0, 10.0, 40.0, 40.0]]), zero, zero, 10)
    assert len(got.box) == 10
    assert got.iou.max() == 0
    assert got.share.tolist() == [1.0] * 10
