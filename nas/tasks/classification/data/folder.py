"""Image folders, on disk or inside a tar or zip archive.

Accepted layouts (one enclosing folder may be around them)::

    train/<class>/*.jpg  val/<class>/*.jpg  [test/<class>/*.jpg]
    <class>/*.jpg
"""

from pathlib import Path

import numpy as np

from nas.data.decode import IMAGE_SUFFIXES, picture_size, stored_resolution, usual_size
from nas.data.decoded import decoded
from nas.data.images import ImageSplit, RawImages
from nas.data.tree import SPLIT_NAMES, Tree, read_archive, read_folder
from nas.data_options import DataOptions, Fit
from nas.errors import UserError

_LAYOUT_HINT = "put the images in one folder per class: PATH/<class>/*.jpg or PATH/train/<class>/*.jpg and PATH/val/..."
MAX_RESOLUTION = 224
"""Rows and columns that images are stored at, at most, where nothing else was asked for."""
_SIZE_SAMPLE = 256  # headers read to find the usual image size


def load_folder(path: Path, options: DataOptions) -> RawImages:
    """Load an image folder; see the module's docstring for the layouts.

    Raises:
        UserError: no images, no class folders, a class that training images do not show, an unreadable image (named).
    """
    return _load_tree(read_folder(path, IMAGE_SUFFIXES), path, options)


def load_archive(path: Path, options: DataOptions) -> RawImages:
    """Load a tar (plain or compressed) or zip of an image folder; raises like `load_folder`."""
    return _load_tree(read_archive(path, IMAGE_SUFFIXES), path, options)


def _load_tree(tree: Tree, path: Path, options: DataOptions) -> RawImages:
    where = str(path)
    if not tree.files:
        raise UserError(f"no images in '{path}' (looked for {', '.join(IMAGE_SUFFIXES)})", _LAYOUT_HINT)
    tops = tree.children()
    while len(tops) == 1 and tops[0].lower() not in SPLIT_NAMES and tree.below(tops[0]).folders:
        where, tree = f"{where}/{tops[0]}", tree.below(tops[0])
        tops = tree.children()
    if not tops:
        raise UserError(f"'{where}' has images but no class folders", _LAYOUT_HINT)
    found = {SPLIT_NAMES[top.lower()]: top for top in tops if top.lower() in SPLIT_NAMES}
    if found and "train" not in found:
        raise UserError(f"'{where}' has a folder {next(iter(found.values()))!r} but none named 'train'", _LAYOUT_HINT)
    parts = {split: (f"{where}/{top}", tree.below(top)) for split, top in found.items()} or {"train": (where, tree)}

    train_where, train = parts["train"]
    classes = tuple(train.children())
    if not classes:
        raise UserError(f"'{train_where}' has no class folders", _LAYOUT_HINT)
    for split_where, split in parts.values():
        _check_classes(classes, train_where, split, split_where)

    readers = sorted(train.files.items(), key=lambda item: item[0])[:: max(1, len(train.files) // _SIZE_SAMPLE)]
    sizes = [picture_size(read, f"{train_where}/{'/'.join(name)}") for name, read in readers]
    fit = options.fit or "crop"
    size = stored_resolution(sizes, options.cap(MAX_RESOLUTION), fit)
    splits = {split: _decode_split(part, where, classes, size, fit) for split, (where, part) in parts.items()}
    return RawImages(
        classes, splits["train"], splits.get("val"), splits.get("test"), picture_size=usual_size(sizes), framing=fit
    )


def _check_classes(classes: tuple[str, ...], train_where: str, split: Tree, where: str) -> None:
    """Raise UserError where `split` has classes that train has not; a class that it lacks is remarked on later."""
    if extra := sorted(set(split.children()) - set(classes)):
        raise UserError(
            f"'{where}' has other classes than '{train_where}': it adds {', '.join(map(repr, extra))}",
            "give the training images such folders too, or remove these",
        )
    filled = {parts[0] for parts in split.files if len(parts) > 1}
    if where == train_where and (empty := sorted(set(classes) - filled)):
        raise UserError(f"class folder '{where}/{empty[0]}' has no images", "add images to it or remove the folder")


def _decode_split(split: Tree, where: str, classes: tuple[str, ...], size: int, fit: Fit) -> ImageSplit:
    # Sorted, so that the order never depends on the file system or on how the archive was made.
    items = sorted(((p, r) for p, r in split.files.items() if len(p) > 1), key=lambda item: item[0])
    index = {name: label for label, name in enumerate(classes)}
    files, names = split.originals([parts for parts, _ in items]), [f"{where}/{'/'.join(parts)}" for parts, _ in items]
    images, contents = decoded(files, [read for _, read in items], names, size, fit=fit)
    labels = np.array([index[parts[0]] for parts, _ in items], np.int64)
    return ImageSplit(images, labels, files, contents)
