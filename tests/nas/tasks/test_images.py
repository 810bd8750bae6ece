"""A batch of images that was made for one network, as another one takes it."""

import numpy as np
import torch

from nas.data.images import Preprocess, image_input
from nas.tasks.images import teacher_images

GIVEN, WANTED = Preprocess((0.5, 0.4, 0.3), (0.25, 0.2, 0.3)), Preprocess((0.1, 0.6, 0.5), (0.3, 0.1, 0.2))


def test_a_teacher_sees_images_as_it_was_trained_with() -> None:
    small, large = image_input(32), image_input(48)
    images = np.random.default_rng(0).integers(0, 255, (2, 32, 32, 3), np.uint8)
    batch = torch.from_numpy(GIVEN.array(images))
    assert teacher_images(small, small, GIVEN, GIVEN) is None
    assert teacher_images(small, small, GIVEN, None) is None
    scaled = teacher_images(small, small, GIVEN, WANTED)
    assert scaled is not None
    np.testing.assert_allclose(scaled(batch).numpy(), WANTED.array(images), atol=1e-5)
    both = teacher_images(small, large, GIVEN, WANTED)
    enlarged = teacher_images(small, large, GIVEN, None)
    assert both is not None
    assert enlarged is not None
    assert enlarged(batch).shape == (2, 3, 48, 48)
    restored = teacher_images(large, large, WANTED, GIVEN)
    assert restored is not None
    torch.testing.assert_close(restored(both(batch)), enlarged(batch), atol=1e-5, rtol=1e-4)
