"""Arrays in one `.npz` file: `x_train, y_train, x_val, y_val[, x_test, y_test][, classes]`."""

import zipfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nas.data.contents import contents_of_arrays
from nas.data.decode import ensure_fits, stored_resolution
from nas.data.images import ImageSplit, RawImages, resize_images
from nas.data_options import DataOptions, Fit
from nas.errors import UserError
from nas.tasks.classification.data.folder import MAX_RESOLUTION

_HINT = (
    "save it with np.savez(PATH, x_train=..., y_train=..., x_val=..., y_val=...): x uint8 (n, h, w, 3), y integers (n,)"
)


def load_npz(path: Path, options: DataOptions) -> RawImages:
    """Load a data set of arrays; nothing is unpickled.

    `x_*` are (n, h, w, 3) uint8, `y_*` (n,) integers 0..c-1; `classes` (c,) strings is optional. `x_val` and `x_test`
    may be left out.

    Raises:
        UserError: not an npz, a missing array, a wrong shape, dtype or label.
    """
    try:
        file = np.load(path, allow_pickle=False)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise UserError(f"'{path}' holds a single array", _HINT)
        with file:
            arrays = {key: file[key] for key in file.files}
    except (ValueError, OSError, EOFError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        # ValueError: an array of objects would need pickle; RuntimeError: a password, or an unknown compression
        raise UserError(f"cannot read '{path}' as arrays: {error}", _HINT) from error

    names = [name for name in ("train", "val", "test") if f"x_{name}" in arrays or f"y_{name}" in arrays]
    if "train" not in names:
        raise UserError(f"'{path}' has no x_train (it has {', '.join(sorted(arrays)) or 'nothing'})", _HINT)
    for name in names:
        _check(path, name, arrays)
    classes = _class_names(path, arrays, names)
    fit = options.fit or "crop"
    rows, columns = arrays["x_train"].shape[1:3]
    size = stored_resolution([(rows, columns)], options.cap(MAX_RESOLUTION), fit)
    splits = {
        name: ImageSplit(
            _sized(path, arrays[f"x_{name}"], size, fit),
            arrays[f"y_{name}"].astype(np.int64),
            sources=contents_of_arrays(arrays[f"x_{name}"]),
        )
        for name in names
    }
    return RawImages(
        classes, splits["train"], splits.get("val"), splits.get("test"), picture_size=(rows, columns), framing=fit
    )


def _check(path: Path, name: str, arrays: dict[str, NDArray[np.generic]]) -> None:
    for key in (f"x_{name}", f"y_{name}"):
        if key not in arrays:
            raise UserError(f"'{path}' has no {key}", _HINT)
    x, y = arrays[f"x_{name}"], arrays[f"y_{name}"]
    if x.dtype != np.uint8 or x.ndim != 4 or x.shape[3] != 3 or 0 in x.shape:
        raise UserError(f"x_{name} in '{path}' must be uint8 (n, h, w, 3), it is {x.dtype} {x.shape}", _HINT)
    if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer) or len(y) != len(x):
        raise UserError(f"y_{name} in '{path}' must be {len(x)} integers, it is {y.dtype} {y.shape}", _HINT)


def _class_names(path: Path, arrays: dict[str, NDArray[np.generic]], names: list[str]) -> tuple[str, ...]:
    labels = [arrays[f"y_{name}"] for name in names]
    lowest, highest = min(int(y.min()) for y in labels), max(int(y.max()) for y in labels)
    given = arrays.get("classes")
    if given is not None and given.ndim != 1:
        raise UserError(f"classes in '{path}' must be a list of names, it has the shape {given.shape}", _HINT)
    count = len(given) if given is not None else highest + 1
    # Labels are numbers of classes: a huge one is a mistake (ids, hashes), not millions of classes.
    total = sum(len(y) for y in labels)
    if lowest < 0 or highest >= min(count, total):
        raise UserError(
            f"labels in '{path}' must be 0..{min(count, total) - 1}, they are {lowest}..{highest}",
            "number the classes from 0 without gaps",
        )
    return tuple(str(c) for c in given) if given is not None else tuple(str(i) for i in range(count))


def _sized(path: Path, images: NDArray[np.generic], size: int, fit: Fit) -> NDArray[np.uint8]:
    pixels = images.astype(np.uint8, copy=False)
    if pixels.shape[1:3] == (size, size):
        return pixels
    ensure_fits(len(images) * size * size * 3, f"'{path}' at {size} px")
    return resize_images(pixels, size, fit)
