"""Images of a split as tensors on a device, wherever they lie."""

import torch

from nas.data.stored import Images, StoredImages

GPU_SHARE = 0.25
"""Share of a GPU's free memory that images may take: networks are trained beside them."""


class Pixels:
    """Images (n, side, side, 3) uint8 by their place in a split.

    They are in memory, in that of the GPU where they fit into a share of it, or are read from their file when they are
    asked for.

    Args:
        images: all of them.
        device: where they are wanted.
    """

    def __init__(self, images: Images, device: torch.device) -> None:
        self._device = device
        if isinstance(images, StoredImages):
            self._images: StoredImages | torch.Tensor = images
        else:
            near = device.type != "cpu" and images.nbytes <= GPU_SHARE * free_bytes(device)
            self._images = torch.from_numpy(images).to(device if near else "cpu")

    def __getitem__(self, index: int) -> torch.Tensor:
        """(side, side, 3) uint8."""
        found = self._images[index]
        return (found if isinstance(found, torch.Tensor) else torch.from_numpy(found)).to(self._device)

    def at(self, indices: torch.Tensor) -> torch.Tensor:
        """Those at `indices` (b,) int64, (b, side, side, 3) uint8, in memory of their own."""
        if isinstance(self._images, StoredImages):
            found = torch.from_numpy(self._images[indices.numpy()])
        else:
            # index_select copies whole images; an index goes through them byte by byte.
            found = self._images.index_select(0, indices.to(self._images.device))
        if self._device.type == "cuda" and not found.is_cuda:
            # From pinned memory the copy does not wait for what the GPU is at.
            return found.pin_memory().to(self._device, non_blocking=True)
        return found.to(self._device)


def free_bytes(device: torch.device) -> int:
    """Memory of a GPU that is free now."""
    free: int = torch.cuda.mem_get_info(device)[0]
    return free
