"""COCO json (Lin et al. 2014, https://cocodataset.org/#format-data): one file of annotations per split.

`images[].file_name` is looked for below the whole data set, so the folders of images may be called as they are
usually called: images/train/, train2017/, or beside the file of annotations.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nas.data.decode import IMAGE_SUFFIXES
from nas.data.images import SplitName
from nas.data.originals import Parts
from nas.data.tree import Tree, split_of, split_of_folders
from nas.errors import UserError
from nas.tasks.detection.data.annotations import Annotated, Annotations, Mended, boxes_array, numbers, repeated

NO_BOX = [float("nan")] * 4
_NAMES_HINT = "name the files instances_train.json, instances_val.json and instances_test.json"


@dataclass(frozen=True, slots=True)
class File:
    """One file of annotations."""

    parts: Parts
    split: SplitName | None
    document: Mapping[str, Any]

    @property
    def name(self) -> str:
        return "/".join(self.parts)


def read_coco(tree: Tree) -> Annotations | None:
    """The data set in `tree` if it has COCO annotations of training images, else None.

    Classes are the declared categories by ascending id, also those without boxes; only a category that merely groups
    others (it is the `supercategory` of some and has no boxes) is left out. `iscrowd` boxes are crowd.

    Raises:
        UserError: a file that is no json or lacks something, a category that is not declared or declared differently
            in two files, an image that is missing or outside the data set.
    """
    mended = Mended()
    files = by_split(annotation_files(tree, "instances"), mended)
    if not files:
        return None
    declared = declared_categories(list(files.values()))
    annotations = {split: objects_by_image(file, declared, mended) for split, file in files.items()}
    used = {thing.category for found in annotations.values() for things in found.values() for thing in things}
    categories = [c for file in files.values() for c in file.document["categories"]]
    # Many write a category's own name there, COCO itself for persons: it groups nothing else.
    groups = {str(c.get("supercategory")) for c in categories if c.get("supercategory") != c["name"]}
    ids = []
    for number, name in sorted(declared.items()):
        if number not in used and name in groups:
            mended.add("categories that only group others are no classes", repr(name))
        else:
            ids.append(number)
    index = {number: label for label, number in enumerate(ids)}

    finder = Finder(tree)
    splits = {
        split: [item for item, _ in listed_images(file, annotations[split], index, finder, mended)]
        for split, file in files.items()
    }
    mended.add_all("images that no annotations name are left out", finder.unused())
    return Annotations("COCO json", tuple(declared[number] for number in ids), splits, mended.notes())


def annotation_files(tree: Tree, usual: str) -> list[File]:
    """The files of annotations: those whose name begins with `usual`, where there are any.

    Raises `UserError` for one that is no json, or lacks a list.
    """
    paths = sorted(parts for parts in tree.files if parts[-1].lower().endswith(".json"))
    # Beside instances_*.json COCO has captions and keypoints of the same images.
    named = [parts for parts in paths if parts[-1].lower().startswith(usual)]
    files = []
    for parts in named or paths:
        document = load_json(tree, parts)
        lists = [key for key in ("images", "annotations", "categories") if is_list(document, key)]
        if not named and (not isinstance(document, dict) or not {"images", "annotations"} & document.keys()):
            continue  # some other json
        if len(lists) < 3:
            key = next(key for key in ("images", "annotations", "categories") if key not in lists)
            raise UserError(
                f"'{'/'.join(parts)}' has no list {key!r}", "COCO annotations hold images, annotations and categories"
            )
        split = split_of(parts[-1].rsplit(".", 1)[0]) or split_of_folders(parts[:-1])
        files.append(File(parts, split, document))
    return files


def load_json(tree: Tree, parts: Parts) -> Any:
    try:
        return json.loads(tree.files[parts]().decode("utf-8-sig"))
    except (ValueError, RecursionError, OSError) as error:  # ValueError: also of text that is not UTF-8
        reason = str(error) or type(error).__name__
        raise UserError(
            f"cannot read annotations '{'/'.join(parts)}': {reason}", "the file is damaged or no json: write it again"
        ) from error


def is_list(document: object, key: str) -> bool:
    value = document.get(key) if isinstance(document, dict) else None
    return isinstance(value, list) and all(isinstance(entry, dict) for entry in value)


def by_split(files: Sequence[File], mended: Mended) -> dict[SplitName, File]:
    """One file for each split; empty where none is of training images."""
    if len(files) == 1 and files[0].split is None:
        return {"train": files[0]}
    found: dict[SplitName, File] = {}
    for file in files:
        if file.split is None:
            mended.add("annotations with no split in their name are left out", f"'{file.name}'")
        elif file.split in found:
            raise UserError(
                f"'{found[file.split].name}' and '{file.name}' are both annotations of {file.split}", _NAMES_HINT
            )
        else:
            found[file.split] = file
    if files and not found:
        names = " and ".join(f"'{file.name}'" for file in files[:2])
        raise UserError(f"cannot tell which split the annotations {names} are of", _NAMES_HINT)
    return found if "train" in found else {}


def declared_categories(files: Sequence[File]) -> dict[int, str]:
    """Name by id over all files."""
    declared: dict[int, tuple[str, str]] = {}
    for file in files:
        for category in file.document["categories"]:
            number, name = category.get("id"), category.get("name")
            if type(number) is not int or not isinstance(name, str):
                raise UserError(
                    f"a category in '{file.name}' has id {number!r} and name {name!r}",
                    "every category needs an integer id and a name",
                )
            known, where = declared.setdefault(number, (name, file.name))
            if known != name:
                raise UserError(
                    f"category {number} is {known!r} in '{where}', but {name!r} in '{file.name}'",
                    "give every split the same categories",
                )
    if not declared:
        raise UserError(
            f"'{files[0].name}' declares no categories", 'list them: "categories": [{"id": 1, "name": ...}]'
        )
    if twice := repeated(name for name, _ in declared.values()):
        ids = [number for number, (name, _) in sorted(declared.items()) if name == twice]
        raise UserError(
            f"categories {ids[0]} and {ids[1]} have the same name {twice!r}", "use one id per class in every split"
        )
    return {number: name for number, (name, _) in declared.items()}


@dataclass(frozen=True, slots=True, eq=False)
class Thing:
    """One annotation."""

    category: int
    """Id of a declared category."""
    xyxy: list[float]
    """Of its box; nan where it has none."""
    crowd: bool
    document: Mapping[str, Any]
    """All that the file says of it."""
    where: str
    """For messages."""


def objects_by_image(file: File, declared: Mapping[int, str], mended: Mended) -> dict[int | str, list[Thing]]:
    """What is annotated, by image id; raises `UserError` for a category that is not declared."""
    found: dict[int | str, list[Thing]] = {image_id_of(image, file): [] for image in file.document["images"]}
    for position, annotation in enumerate(file.document["annotations"]):
        which = f"annotation {annotation.get('id', f'number {position + 1}')} in '{file.name}'"
        category = annotation.get("category_id")
        if type(category) is not int or category not in declared:
            known = ", ".join(map(str, sorted(declared)[:10])) + (", ..." if len(declared) > 10 else "")
            raise UserError(
                f"{which} has category_id {category!r}, which is not declared",
                f"add it to categories (there are {known}), or remove the annotation",
            )
        image = annotation.get("image_id")
        if not isinstance(image, int | str) or image not in found:
            mended.add("annotations of images that are not listed are left out", f"{which}, image_id {image!r}")
            continue
        given = annotation.get("bbox")
        x, y, w, h = numbers(given) if isinstance(given, list) and len(given) == 4 else NO_BOX
        crowd = bool(annotation.get("iscrowd", 0))
        found[image].append(Thing(category, [x, y, x + w, y + h], crowd, annotation, which))
    return found


def image_id_of(image: Mapping[str, Any], file: File) -> int | str:
    number, name = image.get("id"), image.get("file_name")
    if not isinstance(number, int | str) or not isinstance(name, str) or not name.strip():
        raise UserError(
            f"an image in '{file.name}' has id {number!r} and file_name {name!r}",
            "every image needs an id and a file_name",
        )
    return number


def listed_images(
    file: File, objects: Mapping[int | str, list[Thing]], index: Mapping[int, int], finder: "Finder", mended: Mended
) -> list[tuple[Annotated, Sequence[Thing]]]:
    """The images of `file` by path, each with what is annotated on it; `index` maps categories to classes.

    Raises `UserError` for images that are missing, outside the data set, or of one id.
    """
    names: dict[int | str, str] = {}
    found: dict[Parts, tuple[Mapping[str, Any], list[Thing]]] = {}
    missing: list[str] = []
    for image in file.document["images"]:
        number, name = image["id"], image["file_name"]
        if number in names:
            if names[number] != name:
                raise UserError(
                    f"images {names[number]!r} and {name!r} in '{file.name}' have the same id {number!r}",
                    "give every image an id of its own",
                )
            mended.add("images listed twice are taken once", f"'{name}' in '{file.name}'")
            continue
        names[number] = name
        parts = finder.find(name, file)
        if parts is None:
            missing.append(name)
        elif parts in found:
            mended.add("images listed under several ids are taken once, with all boxes", f"'{name}' in '{file.name}'")
            found[parts][1].extend(objects[number])
        else:
            found[parts] = image, list(objects[number])
    if missing:
        others = f", and {len(missing) - 1} others are" if len(missing) > 1 else " is"
        raise UserError(
            f"image '{missing[0]}' of '{file.name}'{others} missing",
            f"put images in images/{file.split or 'train'}/, or remove them from the annotations"
            f" (files can be {', '.join(IMAGE_SUFFIXES)})",
        )
    return [(_annotated(parts, *found[parts], index, finder), found[parts][1]) for parts in sorted(found)]


def _annotated(
    parts: Parts, image: Mapping[str, Any], things: Sequence[Thing], index: Mapping[int, int], finder: "Finder"
) -> Annotated:
    width, height = numbers([image.get("width"), image.get("height")])
    return Annotated(
        name="/".join(parts),
        read=finder.tree.files[parts],
        xyxy=boxes_array([thing.xyxy for thing in things]),
        classes=np.array([index[thing.category] for thing in things], np.int64),
        crowd=np.array([thing.crowd for thing in things], np.bool_),
        size=(int(width), int(height)) if 1 <= width < 1e9 and 1 <= height < 1e9 else None,
    )


class Finder:
    """Finds images by the end of their path."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._by_name: dict[str, list[Parts]] = {}
        for parts in sorted(tree.files):  # file systems list them in any order
            if parts[-1].lower().endswith(IMAGE_SUFFIXES):
                self._by_name.setdefault(parts[-1], []).append(parts)
        self._used: set[Parts] = set()

    def find(self, name: str, file: File) -> Parts | None:
        """The image that `file` calls `name`: beside the file, else in a folder of its split, else anywhere but in
        a folder of another split. None where it is missing."""
        text = name.replace("\\", "/")
        wanted = tuple(part for part in text.split("/") if part not in ("", "."))
        if text.startswith("/") or ".." in wanted or re.match("[A-Za-z]:", text) or not wanted:
            raise UserError(
                f"file_name {name!r} in '{file.name}' leads out of the data set",
                "write it relative to the images' folder",
            )
        beside = (*file.parts[:-1], *wanted)
        same = [p for p in self._by_name.get(wanted[-1], ()) if p[-len(wanted) :] == wanted]
        splits = {p: split_of_folders(p[: -len(wanted)]) for p in same}
        for choice in (
            [p for p in same if p == beside],
            [p for p in same if file.split and splits[p] == file.split],
            [p for p in same if not file.split or splits[p] is None],
        ):
            if len(choice) > 1:
                raise UserError(
                    f"image {name!r} of '{file.name}' could be '{'/'.join(choice[0])}' or '{'/'.join(choice[1])}'",
                    "write the folder into file_name",
                )
            if choice:
                self._used.add(choice[0])
                return choice[0]
        return None

    def unused(self) -> list[str]:
        """Images never found, sorted."""
        every = {parts for same in self._by_name.values() for parts in same}
        return ["/".join(parts) for parts in sorted(every - self._used)]
