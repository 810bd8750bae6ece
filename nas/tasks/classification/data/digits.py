"""The bundled default: scikit-learn's 1,797 handwritten digits (8x8 grey; Alpaydin and Kaynak, 1998)."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from nas.data.contents import contents_of_arrays
from nas.data.decode import MIN_RESOLUTION
from nas.data.images import ImageSplit, RawImages, resize_images
from nas.data_options import DataOptions


def load_digits(root: Path, options: DataOptions) -> RawImages:
    """Ten classes, about 180 images each, grey copied to three channels and enlarged from 8x8 to 32x32.

    It ships with scikit-learn: no file is read from `root`, and squares of 32 px need no option.
    """
    package = find_spec("sklearn")  # for its file alone: the package takes seconds to import
    if package is None or package.origin is None:
        raise ImportError("scikit-learn, which ships the digits, is not installed")
    path = Path(package.origin).with_name("datasets") / "data" / "digits.csv.gz"
    table = np.loadtxt(path, np.float64, delimiter=",")
    grey = np.round(table[:, :-1].reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)  # values are 0..16
    rgb = np.repeat(grey[..., None], 3, axis=3)
    labels = table[:, -1].astype(np.int64)
    classes = tuple(str(digit) for digit in range(10))
    split = ImageSplit(resize_images(rgb, MIN_RESOLUTION), labels, sources=contents_of_arrays(grey))
    return RawImages(classes, split, flip_ok=False, framing=options.fit or "crop")
