"""Names of data sets, and loading one by name or path.

A new data set is one file with a loader `(root, options) -> RawImages` and one line in `DATASETS`.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from nas.data.decode import MIN_RESOLUTION
from nas.data.images import ImageData, RawImages
from nas.data.splits import complete
from nas.data.tree import ARCHIVE_SUFFIXES
from nas.data_options import USUAL, DataOptions
from nas.errors import UnknownNameError, UserError
from nas.files.cache import user_cache
from nas.tasks.classification.data.cifar import load_cifar10, load_cifar100
from nas.tasks.classification.data.digits import load_digits
from nas.tasks.classification.data.folder import load_archive, load_folder
from nas.tasks.classification.data.npz import load_npz
from nas.tasks.classification.data.torchvision_sets import load_torchvision


@dataclass(frozen=True, slots=True)
class DatasetSource:
    """Source of a data set, by name."""

    load: Callable[[Path, DataOptions], RawImages]
    """`(root, options)`: reads the files in the folder `root`, or downloads them there. It keeps to `options.cap` and
    `options.fit` and leaves the rest to `nas.data.splits.complete`."""
    description: str


def _tv(
    name: str, dataset: str, resolution: int, description: str, side: int, **splits: Mapping[str, object]
) -> DatasetSource:
    load = partial(load_torchvision, name=name, dataset=dataset, resolution=resolution, side=side, splits=splits)
    return DatasetSource(load, description)


_TRAIN, _VAL, _TEST = {"split": "train"}, {"split": "val"}, {"split": "test"}

DATASETS: Mapping[str, DatasetSource] = {
    "digits": DatasetSource(load_digits, "1,797 handwritten digits, 32 px, bundled with scikit-learn"),
    "cifar10": DatasetSource(load_cifar10, "60,000 photos, 10 classes, 32 px"),
    "cifar100": DatasetSource(load_cifar100, "60,000 photos, 100 classes, 32 px"),
    "fashionmnist": _tv(
        "fashionmnist",
        "FashionMNIST",
        MIN_RESOLUTION,
        "70,000 grey images of clothes, 10 classes, 32 px",
        28,
        train={"train": True},
        test={"train": False},
    ),
    "flowers102": _tv(
        "flowers102", "Flowers102", 224, "8,189 flowers, 102 classes", 500, train=_TRAIN, val=_VAL, test=_TEST
    ),
    "food101": _tv("food101", "Food101", 128, "101,000 dishes, 101 classes", 512, train=_TRAIN, test=_TEST),
    "oxfordiiitpet": _tv(
        "oxfordiiitpet",
        "OxfordIIITPet",
        224,
        "7,349 cats and dogs, 37 breeds",
        300,
        train={"split": "trainval"},
        test=_TEST,
    ),
    "imagenette": _tv(
        "imagenette",
        "Imagenette",
        160,
        "13,394 photos, 10 easy ImageNet classes, 160 px",
        160,
        train=_TRAIN | {"size": "160px"},
        test=_VAL | {"size": "160px"},
    ),
}


def default_root() -> Path:
    """Folder for downloaded data sets."""
    return user_cache() / "data"


def load_dataset(
    name_or_path: str, *, seed: int = 0, root: Path | None = None, options: DataOptions = USUAL
) -> ImageData:
    """Load classification data into memory, with three splits (see `nas.data.splits.complete` for the rule).

    Args:
        name_or_path: a key of `DATASETS`, an image folder, a tar or zip of one, or an `.npz`. A known name wins over
            a folder of that name (write `./digits` for the folder).
        seed: of the held-out splits.
        root: where named sets are kept; default `default_root()`.
        options: how they are read. Images below 32 px are enlarged to 32.

    Raises:
        UserError: an unknown name (`UnknownNameError`), a missing path, or data that cannot be used.
    """
    source = DATASETS.get(name_or_path)
    if source is not None:
        return complete(name_or_path, source.load(root or default_root(), options), seed, options)
    path = Path(name_or_path).expanduser()
    lower = path.name.lower()
    if not name_or_path or not os.path.exists(path):  # unlike Path.exists, quiet about names that are too long
        # The text as typed: Path would drop the "./" that tells a path from a name.
        if "/" in name_or_path or os.sep in name_or_path or lower.endswith((*ARCHIVE_SUFFIXES, ".npz")):
            raise UserError(
                f"no such file or folder: '{name_or_path}'", f"check the path, or give a name: {', '.join(DATASETS)}"
            )
        raise UnknownNameError("data set", name_or_path, DATASETS)
    if path.is_dir():
        raw = load_folder(path, options)
    elif lower.endswith(ARCHIVE_SUFFIXES):
        raw = load_archive(path, options)
    elif lower.endswith(".npz"):
        raw = load_npz(path, options)
    else:
        raise UserError(
            f"cannot tell what '{name_or_path}' holds",
            f"give an image folder, an archive ({', '.join(ARCHIVE_SUFFIXES)}) or an .npz",
        )
    return complete(path.resolve().name, raw, seed, options)
