"""Images in a file: rows of an array on disk, in some order, of which only those that are asked for are read."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Rows: TypeAlias = "NDArray[np.int64] | Sequence[int]"


class StoredImages:
    """Images (n, side, side, 3) uint8 of an `.npy` file that is mapped into memory, and never changed.

    It is read like an array: an index, a slice or an array of indices gives an array of its own. The memory of the map
    belongs to the system, which takes it back when it is short of it. Sent to another process, it opens the file there.

    Args:
        file: the whole array.
        rows: (n,) int64, which rows of the file these are, in order; None: all of them.

    Raises:
        OSError: there is no such file; ValueError: it is no such array.
    """

    def __init__(self, file: Path, rows: NDArray[np.int64] | None = None) -> None:
        self.file = file
        self._map: NDArray[np.uint8] = np.asarray(np.load(file, mmap_mode="r", allow_pickle=False))
        if self._map.ndim != 4 or self._map.dtype != np.uint8:
            raise ValueError(f"'{file}' holds no images but {self._map.shape} {self._map.dtype}")
        self.rows = np.arange(len(self._map)) if rows is None else np.asarray(rows, dtype=np.int64)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.rows), *self._map.shape[1:])

    @property
    def ndim(self) -> int:
        return 4

    @property
    def dtype(self) -> np.dtype[np.uint8]:
        return self._map.dtype

    @property
    def nbytes(self) -> int:
        """Bytes that these images would take in memory."""
        return int(np.prod(self.shape))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: Any) -> NDArray[np.uint8]:
        rows = self.rows[key]
        # An array of rows gives a copy already.
        found: NDArray[np.uint8] = self._map[rows] if np.ndim(rows) else self._map[rows].copy()
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[:] if dtype is None else self[:].astype(dtype)

    def __reduce__(self) -> tuple[type["StoredImages"], tuple[Path, NDArray[np.int64]]]:
        return StoredImages, (self.file, self.rows)

    def take(self, indices: Rows) -> "StoredImages":
        """The images at `indices`, in that order; nothing is read."""
        return StoredImages(self.file, self.rows[np.asarray(indices, dtype=np.int64)])


Images: TypeAlias = NDArray[np.uint8] | StoredImages
"""Images (n, side, side, 3), in memory or in a file."""


def take(images: Images, indices: Rows) -> Images:
    """The images at `indices`, in that order: those in a file stay there; of a range in memory no copy is made."""
    if isinstance(images, StoredImages):
        return images.take(indices)
    return images[indices.start : indices.stop : indices.step] if isinstance(indices, range) else images[indices]
