"""Images wherever they lie: the same tensors."""

from pathlib import Path

import numpy as np
import pytest
import torch

from nas.data.stored import StoredImages
from nas.tasks import pixels
from nas.tasks.pixels import Pixels

IMAGES = np.random.default_rng(0).integers(0, 256, (5, 4, 4, 3), dtype=np.uint8)
CPU, FAR = torch.device("cpu"), torch.device("meta")
"""A tensor of the second one has a place and no values: it stands for a GPU."""


def test_in_memory_or_in_a_file(tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", IMAGES)
    for images in (IMAGES, StoredImages(tmp_path / "images.npy")):
        found = Pixels(images, CPU)
        assert torch.equal(found.at(torch.tensor([3, 0, 3])), torch.from_numpy(IMAGES[[3, 0, 3]]))
        assert torch.equal(found[2], torch.from_numpy(IMAGES[2]))
        found.at(torch.tensor([1])).zero_()
        assert torch.equal(found[1], torch.from_numpy(IMAGES[1])), "a batch is the caller's own"


@pytest.mark.parametrize(("free", "device"), [(4 * IMAGES.nbytes, FAR), (4 * IMAGES.nbytes - 4, CPU)])
def test_images_that_fit_are_kept_where_they_are_wanted(
    free: int, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pixels, "free_bytes", lambda _: free)
    found = Pixels(IMAGES, FAR)
    assert isinstance(found._images, torch.Tensor)
    assert found._images.device == device
    batch = found.at(torch.tensor([1, 4]))
    assert (batch.device, batch.shape, batch.dtype) == (FAR, (2, 4, 4, 3), torch.uint8)
    assert found[0].device == FAR
