"""From boxes to crops, heat maps and back: what is right ends where it began, and the whole opponent learns figures."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.heat_maps import SimpleBaseline, crop_places, cropped, peaks, placed, spots, ways
from experiments.stick_figures import write_coco_figures
from experiments.top_down import RECIPE, CropObjective, Objects, enlarged, file_of, in_crops, trained, true_boxes
from nas.deployment import Deployment
from nas.runtimes import load_runtime
from nas.tasks.pose.data import PoseData, load_pose
from nas.tasks.pose.evaluate import figures_of

SIZE = (64, 32)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> PoseData:
    folder = write_coco_figures(tmp_path_factory.mktemp("figures"), {"train": 12, "val": 6, "test": 6}, size=96)
    return load_pose(str(folder), max_resolution=96)


def random_boxes(count: int, seed: int) -> torch.Tensor:
    start, extent = torch.rand(2, count, 2, generator=torch.Generator().manual_seed(seed)) * 60
    return torch.cat([start, start + extent + 4], dim=1)


@pytest.mark.parametrize("layers", [10, 18])
def test_heat_maps_are_a_quarter_of_the_crop(layers: int) -> None:
    network = SimpleBaseline(5, layers).eval()
    assert network(torch.zeros(2, 3, *SIZE)).shape == (2, 5, SIZE[0] // 4, SIZE[1] // 4)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10_000), scale=st.floats(0.5, 2), degrees=st.floats(-180, 180), mirrored=st.booleans()
)  # fmt: skip
def test_places_come_back_and_a_box_keeps_its_middle(seed: int, scale: float, degrees: float, mirrored: bool) -> None:
    boxes = random_boxes(3, seed)
    way = ways(
        boxes, SIZE, scale=torch.full((3,), scale), degrees=torch.full((3,), degrees),
        mirrored=torch.full((3,), mirrored),
    )  # fmt: skip
    places = torch.rand(3, 7, 2, generator=torch.Generator().manual_seed(seed)) * 96
    torch.testing.assert_close(placed(crop_places(places, way), way), places, atol=2e-2, rtol=0)
    middle = torch.tensor([SIZE[1] / 2, SIZE[0] / 2]).expand(3, 1, 2)
    torch.testing.assert_close(placed(middle, way)[:, 0], (boxes[:, :2] + boxes[:, 2:]) / 2, atol=1e-3, rtol=0)


def test_a_crop_holds_the_whole_box_at_the_crops_aspect() -> None:
    boxes = random_boxes(20, 3)
    corners = crop_places(boxes.view(-1, 2, 2), ways(boxes, SIZE))
    assert (corners >= 0).all()
    assert (corners <= torch.tensor([SIZE[1], SIZE[0]])).all()
    longest = ((corners[:, 1] - corners[:, 0]) / torch.tensor([SIZE[1], SIZE[0]])).amax(dim=1)
    torch.testing.assert_close(longest, torch.full((20,), 1 / 1.25))


def test_crops_show_what_lies_there_and_black_outside() -> None:
    rng = np.random.default_rng(0)
    image = torch.from_numpy(rng.integers(1, 256, (1, *SIZE, 3), dtype=np.uint8))
    same = torch.tensor([[[1.0, 0, 0], [0, 1, 0]]])
    torch.testing.assert_close(cropped(image, same, SIZE), image.float(), atol=1e-2, rtol=0)
    mirror = torch.tensor([[[-1.0, 0, SIZE[1]], [0, 1, 0]]])
    torch.testing.assert_close(cropped(image, mirror, SIZE), image.float().flip(2), atol=1e-2, rtol=0)
    away = torch.tensor([[[1.0, 0, 500], [0, 1, 0]]])
    assert not cropped(image, away, SIZE).any()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_peaks_are_found_where_spots_were_put(seed: int) -> None:
    places = torch.rand(4, 5, 2, generator=torch.Generator().manual_seed(seed)) * torch.tensor([SIZE[1], SIZE[0]])
    found, values = peaks(spots(places, SIZE))
    apart = (found - places).abs()
    inner = ((places >= 4) & (places <= torch.tensor([SIZE[1], SIZE[0]]) - 4)).all(dim=2)
    assert apart[inner].max() <= 0.25 * 4 + 1e-3  # a quarter of a pixel of the heat map, which has 4 pixels
    assert apart.max() <= 0.5 * 4 + 1e-3
    assert (values > 0.7).all()


def test_true_heat_maps_give_true_poses(data: PoseData) -> None:
    """Crops, spots, peaks and the way back agree: nothing is learnt here."""
    split, objects = data.val, Objects.of(data.val)
    size = (256, 192)  # spots tell places to half a pixel of a person of 40 pixels
    maps = spots(crop_places(objects.points[..., :2], ways(objects.boxes, size)), size).numpy()
    answers = iter(maps)
    found = in_crops(lambda x: np.stack([next(answers) for _ in x]), true_boxes(split), split, data.preprocess, size)
    assert figures_of(found, split).map50_95 > 0.95
    by = enlarged(found, 0.5)
    assert np.allclose(by[0].points[..., :2] * 2, found[0].points[..., :2], atol=1e-3)
    assert np.array_equal(by[0].points[..., 2], found[0].points[..., 2])


def test_a_mirrored_object_has_its_sides_swapped(data: PoseData) -> None:
    objective = CropObjective(data, SIZE)
    indices = torch.arange(8)
    mirror = list(data.skeleton.mirror or ())
    images, (maps, labelled) = objective.batch(indices, torch.Generator().manual_seed(0), 0.0)
    assert images.shape == (8, 3, *SIZE)
    assert maps.shape == (8, len(data.skeleton), SIZE[0] // 4, SIZE[1] // 4)
    assert labelled.any()
    plain = replace(data.traits, flip_ok=False)
    objective._traits = plain
    _, (others, _) = objective.batch(indices, torch.Generator().manual_seed(0), 0.0)
    draws = torch.rand(3, 8, generator=torch.Generator().manual_seed(0))
    mirrored = draws[2] < 0.5
    assert 0 < mirrored.sum() < 8
    assert torch.equal(maps[~mirrored], others[~mirrored])
    upright = ways(objective._objects.boxes, SIZE)[:1]
    flipped = ways(objective._objects.boxes[:1], SIZE, mirrored=torch.tensor([True]))
    points = objective._objects.points[:1, :, :2]
    torch.testing.assert_close(
        crop_places(points[:, mirror], flipped)[..., 0], SIZE[1] - crop_places(points[:, mirror], upright)[..., 0]
    )


def test_it_learns_and_its_file_agrees(data: PoseData, tmp_path: Path) -> None:
    recipe = RECIPE.changed(epochs=20, batch_size=8, precision="fp32", channels_last=False, ema_decay=None)
    objective, objects = CropObjective(data, SIZE, changes=0.0), Objects.of(data.train)
    network = trained(objective, len(data.skeleton), 10, recipe, tmp_path / "kept")
    indices = torch.arange(len(objects))
    maps = spots(crop_places(objects.points[..., :2], ways(objects.boxes, SIZE)), SIZE)
    targets = maps, objects.points[..., 2] > 0
    with torch.inference_mode():
        seen = network(objective.inputs(indices))
    assert objective.loss(seen, targets) < 0.8 * objective.loss(torch.zeros_like(seen), targets)
    again = trained(objective, len(data.skeleton), 10, recipe, tmp_path / "kept")
    with torch.inference_mode():
        torch.testing.assert_close(again(objective.inputs(indices)), seen)
    request = file_of(network, objective, Deployment("onnxruntime", "fp32", 1), tmp_path, "last layer")
    run = load_runtime("onnxruntime").load(request.path, request.deployment).run
    np.testing.assert_allclose(run(objective.inputs(indices[:1]).contiguous().numpy()), seen[:1], atol=1e-4)
