"""Augmentation: boxes stay where their pixels are, whatever happens to the picture; drawn from the generator alone."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from nas.data.portable import PADDING
from nas.tasks.detection import augment
from nas.tasks.detection.augment import MIN_VISIBLE, BoxAugmenter, box_areas, mosaic_cells, recolour
from nas.tasks.detection.data.values import Boxes, DetectionSplit
from nas.training.recipe import Crop
from tests.nas.tasks.detection.rectangles import COLOURS, rectangles


def views(
    split: DetectionSplit, recipe: Crop, *, flip: bool = True, seed: int = 0, batches: int = 3
) -> list[tuple[NDArray[np.float32], Boxes]]:
    """All images of the split, several times."""
    generator = torch.Generator().manual_seed(seed)
    augmenter = BoxAugmenter(split, flip=flip)
    found = []
    for _ in range(batches):
        images, boxes = augmenter.batch(torch.arange(len(split)), generator, recipe)
        found += list(zip(images.float().numpy(), boxes, strict=True))
    return found


def class_of(pixels: NDArray[np.float32]) -> NDArray[np.int64]:
    """(..., 3) -> which colour a pixel has, -1 where it has none; brightness and contrast do not matter."""
    red, blue = pixels[..., 0], pixels[..., 2]
    return np.where(red - blue > 50, 0, np.where(blue - red > 50, 1, -1))


@pytest.mark.parametrize("recipe", ["light", "mosaic"])
@pytest.mark.parametrize("flip", [False, True])
def test_boxes_are_where_their_pixels_are(recipe: Crop, flip: bool) -> None:
    split = rectangles(40, seed=0, size=96)
    some = 0
    for image, boxes in views(split, recipe, flip=flip):
        seen = class_of(image)
        explained = np.zeros(seen.shape, bool)
        for (x0, y0, x1, y1), label in zip(boxes.xyxy, boxes.classes, strict=True):
            assert 0 <= x0 < x1 <= 96
            assert 0 <= y0 < y1 <= 96
            # Interpolation blurs the pixels at the edges.
            inner = seen[int(np.ceil(y0)) + 1 : int(y1) - 1, int(np.ceil(x0)) + 1 : int(x1) - 1]
            assert (inner == label).all()
            top, left = max(0, int(y0) - 1), max(0, int(x0) - 1)
            explained[top : int(np.ceil(y1)) + 1, left : int(np.ceil(x1)) + 1] = True
            some += 1
        # What is not in a box is at most the small rest of a box that was cut.
        rest = (seen >= 0) & ~explained
        assert rest.sum() <= 4 * MIN_VISIBLE * (1.5 * 48) ** 2
    assert some > 100


def test_every_rectangle_that_is_whole_has_its_box() -> None:
    """One rectangle in the middle of a picture, which no crop reaches."""
    images = np.full((1, 64, 64, 3), PADDING, np.uint8)
    images[0, 24:40, 24:40] = COLOURS[0]
    box = Boxes(np.array([[24, 24, 40, 40]], np.float32), np.zeros(1, np.int64), np.array([True]))
    split = DetectionSplit(images, (box,), np.array([[64, 64]]))
    sizes, places = [], []
    for image, boxes in views(split, "light", batches=60):
        assert len(boxes) == 1
        assert boxes.crowd.tolist() == [True]
        assert (class_of(image) == 0).sum() == pytest.approx(box_areas(boxes.xyxy)[0], rel=0.4)
        sizes.append(boxes.xyxy[0, 2] - boxes.xyxy[0, 0])
        places.append(boxes.xyxy[0, :2])
    assert min(sizes) < 10  # of 8 to 24
    assert max(sizes) > 20
    assert np.ptp(places, axis=0).min() > 16


def test_a_mirrored_picture_mirrors_its_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(augment, "_COLOUR", 0.0)
    split = rectangles(30, seed=1)
    straight = views(split, "light", flip=False, batches=1)
    flipped = views(split, "light", flip=True, batches=1)
    mirrored = 0
    for (image, boxes), (other, others) in zip(straight, flipped, strict=True):
        if np.array_equal(image, other):
            np.testing.assert_array_equal(boxes.xyxy, others.xyxy)
            continue
        mirrored += 1
        np.testing.assert_array_equal(image[:, ::-1], other)
        x0, y0, x1, y1 = boxes.xyxy.T
        np.testing.assert_allclose(others.xyxy, np.stack([64 - x1, y0, 64 - x0, y1], axis=1), atol=1e-4)
        np.testing.assert_array_equal(boxes.classes, others.classes)
    assert 8 <= mirrored <= 22


def test_boxes_of_which_little_is_left_are_dropped() -> None:
    """One box as large as its picture: a mosaic shows a part of each copy, and boxes say how much."""
    images = np.full((1, 64, 64, 3), 200, np.uint8)
    box = Boxes(np.array([[0, 0, 64, 64]], np.float32), np.zeros(1, np.int64), np.zeros(1, bool))
    split = DetectionSplit(images, (box,), np.array([[64, 64]]))
    counts = []
    for _, boxes in views(split, "mosaic", batches=100):
        # At most 1.5 times as large as without augmentation, so this many pixels are 15 % of any.
        assert (box_areas(boxes.xyxy) >= MIN_VISIBLE * (0.5 * 64) ** 2).all()
        counts.append(len(boxes))
    assert min(counts) < 4  # some are dropped
    assert max(counts) == 4


def test_mosaic_shows_four_pictures_and_no_padding_of_letterboxes() -> None:
    images = np.full((4, 64, 64, 3), PADDING, np.uint8)
    for number in range(4):
        images[number, :40] = 20 * number + 130
    nothing = Boxes(np.zeros((0, 4), np.float32), np.zeros(0, np.int64), np.zeros(0, bool))
    split = DetectionSplit(images, (nothing,) * 4, np.tile([[40, 64]], (4, 1)))
    shown = [len(np.unique(image)) - 1 for image, _ in views(split, "mosaic", batches=20)]
    assert max(shown) == 4  # four grey levels beside the padding's
    assert np.mean(shown) > 2
    assert all(len(boxes) == 0 for _, boxes in views(split, "mosaic", batches=2))


def test_the_generator_decides_and_the_split_is_left_alone() -> None:
    split = rectangles(12, seed=2)
    before = split.images.copy()
    state = torch.get_rng_state()
    first, second, other = (views(split, "mosaic", seed=seed, batches=1) for seed in (0, 0, 1))
    for (a, boxes_a), (b, boxes_b) in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(boxes_a.xyxy, boxes_b.xyxy)
    assert any(not np.array_equal(a, b) for (a, _), (b, _) in zip(first, other, strict=True))
    np.testing.assert_array_equal(split.images, before)
    assert torch.equal(torch.get_rng_state(), state)


def test_none_changes_nothing() -> None:
    split = rectangles(5, seed=3)
    for (image, boxes), expected, own in zip(views(split, "none", batches=1), split.images, split.boxes, strict=True):
        np.testing.assert_array_equal(image, expected)
        assert boxes is own


@pytest.mark.parametrize("share", [0.0, 0.3, 0.999])
def test_cells_of_a_mosaic_cover_the_image_once(share: float) -> None:
    covered = np.zeros((64, 64), int)
    for cell in mosaic_cells(64, share, 1 - share if share else 0.5):
        assert min(cell.height, cell.width) >= 16
        covered[cell.top : cell.top + cell.height, cell.left : cell.left + cell.width] += 1
    assert (covered == 1).all()


def test_recolouring_does_what_it_says() -> None:
    rng = torch.Generator().manual_seed(0)
    image = torch.rand(8, 8, 3, generator=rng) * 100 + 50

    def changed(brightness: float, contrast: float, saturation: float) -> torch.Tensor:
        copy = image.clone()
        recolour(copy, brightness, contrast, saturation)
        return copy

    torch.testing.assert_close(changed(0.5, 0.5, 0.5), image)
    torch.testing.assert_close(changed(1.0, 0.5, 0.5), image * 1.3)
    grey = image @ torch.tensor([0.299, 0.587, 0.114])
    torch.testing.assert_close(changed(0.5, 0.0, 0.5), grey.mean() + (image - grey.mean()) * 0.7, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(changed(0.5, 0.5, 0.0), grey[..., None] + (image - grey[..., None]) * 0.7)
    assert changed(1.0, 1.0, 1.0).max() <= 255
