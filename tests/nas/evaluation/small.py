"""Small spaces and learnable images for tests of estimators."""

from pathlib import Path

import numpy as np

from nas.data import ImageData, ImageSplit, Preprocess
from search_spaces import StagedSpace, load_search_space


def small_space(name: str = "mixed", resolutions: tuple[int, ...] = (32,)) -> StagedSpace:
    """The narrowest two widths and depths of every stage and neck, at those of `resolutions` that the space has."""
    space = load_search_space(name)
    space = space.restrict("resolution", [r for r in resolutions if r in space.table.resolutions])
    space = space.restrict("stem.width", space.table.stem_widths[:2])
    for number, stage in enumerate(space.table.stages, start=1):
        space = space.restrict(f"stage{number}.width", stage.widths[:2])
        space = space.restrict(f"stage{number}.depth", stage.depths[:2])
    for decision in space.decisions:
        section, _, short = decision.name.partition(".")
        if short == "kernel":
            space = space.restrict(decision.name, (3, 5))
        if section in ("neck", "head") and short in ("width", "depth"):
            space = space.restrict(decision.name, decision.options[:2])
    return space


def coloured_images(classes: int = 3, train: int = 96, val: int = 48, size: int = 32) -> ImageData:
    """Noise whose mean colour tells the class."""
    rng = np.random.default_rng(0)

    def split(count: int) -> ImageSplit:
        labels = np.arange(count) % classes
        colour = np.eye(3)[labels % 3] * 90
        pixels = np.clip(rng.normal(80, 40, (count, size, size, 3)) + colour[:, None, None], 0, 255)
        return ImageSplit(pixels.astype(np.uint8), labels.astype(np.int64))

    first = split(train)
    return ImageData(
        name="colours",
        classes=tuple(str(c) for c in range(classes)),
        train=first,
        val=split(val),
        test=split(val),
        native_resolution=size,
        preprocess=Preprocess.fit(first.images),
    )


def write_coloured_images(file: Path, *, train: int, val: int) -> Path:
    """`coloured_images` as an `.npz`."""
    images = coloured_images(train=train, val=val)
    splits = {"train": images.train, "val": images.val, "test": images.test}
    arrays = {f"x_{name}": split.images for name, split in splits.items()}
    arrays |= {f"y_{name}": split.labels for name, split in splits.items()}
    np.savez(file, **arrays)
    return file
