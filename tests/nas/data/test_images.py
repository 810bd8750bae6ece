"""Splits, pre-processing, resizing."""

import numpy as np
import pytest
import torch

from nas.data import ImageSplit, Preprocess, RawImages, resized
from nas.data.images import resize_images
from nas.data.splits import complete
from nas.errors import UserError


def random_split(per_class: int, classes: int = 3, size: int = 32, seed: int = 0) -> ImageSplit:
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), per_class)
    return ImageSplit(rng.integers(0, 256, (len(labels), size, size, 3), dtype=np.uint8), labels)


def test_held_out_splits_follow_the_rule() -> None:
    train, val, test = random_split(20), random_split(4, seed=1), random_split(5, seed=2)
    names = ("a", "b", "c")

    all_given = complete("d", RawImages(names, train, val, test), seed=0)
    assert (all_given.train, all_given.val, all_given.test) == (train, val, test)
    assert all_given.notes == ()

    no_test = complete("d", RawImages(names, train, val), seed=0)
    assert no_test.test is val  # the given val is the final number; decisions use images of train
    assert len(no_test.train) + len(no_test.val) == 60
    assert all((no_test.val.labels == label).any() for label in range(3))

    only_train = complete("d", RawImages(names, train), seed=0)
    parts = [only_train.train, only_train.val, only_train.test]
    assert sum(map(len, parts)) == 60
    assert len({image.tobytes() for part in parts for image in part.images}) == 60
    again = complete("d", RawImages(names, train), seed=0)
    assert np.array_equal(again.val.images, only_train.val.images)
    other = complete("d", RawImages(names, train), seed=1)
    assert not np.array_equal(other.val.images, only_train.val.images)


def test_unusable_splits_are_refused() -> None:
    with pytest.raises(UserError, match="only one class \\('a'\\)"):
        complete("d", RawImages(("a",), random_split(5, classes=1)), seed=0)
    with pytest.raises(UserError, match="class 'd' of data set 'x' has no images in train"):
        complete("x", RawImages(("a", "b", "c", "d"), random_split(5)), seed=0)
    with pytest.raises(UserError, match="no class of data set 'x' has more than 2 training images, too few"):
        complete("x", RawImages(("a", "b", "c"), random_split(2)), seed=0)
    with pytest.raises(UserError, match="data set 'x' has no images in val"):
        complete("x", RawImages(("a", "b", "c"), random_split(9), random_split(0), random_split(9)), seed=0)


def test_preprocess_normalises_and_is_one_definition() -> None:
    images = random_split(20, size=20).images
    preprocess = Preprocess.fit(images)
    array = preprocess.array(images)
    expected = (images / 255 - np.array(preprocess.mean)) / np.array(preprocess.std)
    np.testing.assert_allclose(array, expected.transpose(0, 3, 1, 2), atol=1e-5)
    assert array.dtype == np.float32
    assert array.flags.c_contiguous
    np.testing.assert_allclose(array.mean((0, 2, 3)), 0, atol=1e-3)
    np.testing.assert_allclose(array.std((0, 2, 3)), 1, atol=1e-3)
    tensor = preprocess.tensor(torch.from_numpy(images))
    assert tensor.is_contiguous(memory_format=torch.channels_last)
    np.testing.assert_allclose(tensor.numpy(), array, atol=1e-6)


def test_constant_channels_do_not_divide_by_zero() -> None:
    images = np.full((4, 8, 8, 3), 7, np.uint8)
    assert np.isfinite(Preprocess.fit(images).array(images)).all()


def test_resizing_keeps_flat_images_and_crops_the_centre() -> None:
    flat = np.full((3, 40, 60, 3), 99, np.uint8)
    assert (resize_images(flat, 32) == 99).all()
    wide = np.zeros((1, 40, 80, 3), np.uint8)
    wide[:, :, 20:60] = 255  # exactly the centre square
    assert (resize_images(wide, 40) == 255).all()
    split = random_split(100)  # more than one chunk
    assert resized(split, 48).images.shape == (300, 48, 48, 3)


def test_resolutions_are_cached() -> None:
    data = complete("d", RawImages(("a", "b", "c"), random_split(20)), seed=0)
    assert data.at("val", 32) is data.val
    assert data.at("val", 64) is data.at("val", 64)
    assert data.at("val", 64).resolution == 64


def test_split_checks_shapes() -> None:
    with pytest.raises(ValueError, match="shape"):
        ImageSplit(np.zeros((2, 4, 5, 3), np.uint8), np.zeros(2, np.int64))
    with pytest.raises(ValueError, match="uint8"):
        ImageSplit(np.zeros((2, 4, 4, 3), np.float32), np.zeros(2, np.int64))  # type: ignore[arg-type]


def test_a_few_examples_are_made_without_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    from nas.data import images
    from nas.tasks.examples import some_for_input

    data, counts = complete("d", RawImages(("a", "b", "c"), random_split(20)), seed=0), []
    expected = data.for_input("train", images.image_input(48)).some(7, seed=3)

    def counted(pixels: np.ndarray, *arguments: object) -> np.ndarray:
        counts.append(len(pixels))
        return resize_images(pixels, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(images, "resize_images", counted)
    few = some_for_input(data, "train", images.image_input(48), 7, seed=3)
    assert np.array_equal(few.images, expected.images)
    assert np.array_equal(few.labels, expected.labels)
    assert counts == [7]
