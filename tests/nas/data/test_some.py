"""Drawing a few images out of a split."""

import numpy as np

from nas.data import ImageSplit


def test_a_few_images_of_an_ordered_folder_come_from_many_classes() -> None:
    labels = np.repeat(np.arange(10), 50)
    images = np.zeros((500, 4, 4, 3), np.uint8)
    images[:, 0, 0, 0] = labels
    few = ImageSplit(images, labels).some(64)
    assert len(few) == 64
    assert len(np.unique(few.labels)) >= 9
    assert np.array_equal(few.images[:, 0, 0, 0], few.labels), "labels stay with their images"
    assert np.array_equal(few.labels, ImageSplit(images, labels).some(64).labels)
    assert not np.array_equal(few.labels, ImageSplit(images, labels).some(64, seed=1).labels)
    assert len(ImageSplit(images, labels).some(1000)) == 500
