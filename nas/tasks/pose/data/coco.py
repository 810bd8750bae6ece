"""COCO keypoints json (https://cocodataset.org/#format-data): instances whose category names points.

`keypoints` of an annotation are x, y and a flag for each point: 0 not labelled, 1 hidden, 2 visible. Sigmas are the
category's `sigmas` where it has them (no part of COCO's own format), else COCO's for points with COCO's names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nas.data.tree import Tree
from nas.errors import UserError
from nas.tasks.detection.data.annotations import Annotated, Mended, numbers
from nas.tasks.detection.data.coco import (
    File,
    Finder,
    Thing,
    annotation_files,
    by_split,
    declared_categories,
    listed_images,
    objects_by_image,
)
from nas.tasks.pose.data.annotations import PoseAnnotated, PoseAnnotations
from nas.tasks.pose.data.skeleton import Skeleton, mirror_of, sigmas_of

_POINTS_HINT = "give a file like COCO's person_keypoints_train.json, whose category has a list 'keypoints' of names"


def read_coco_poses(tree: Tree) -> PoseAnnotations | None:
    """The data set in `tree` if it has COCO annotations of training images, else None.

    Raises:
        UserError: what `nas.tasks.detection.data.coco.read_coco` refuses, no category or several ones with points,
            points or sigmas that do not fit the category.
    """
    mended = Mended()
    files = by_split(annotation_files(tree, "person_keypoints"), mended)
    if not files:
        return None
    declared = declared_categories(list(files.values()))
    category, skeleton = _skeleton(list(files.values()))
    finder = Finder(tree)
    splits = {}
    for split, file in files.items():
        objects = objects_by_image(file, declared, mended)
        if file.document["annotations"] and not any(objects.values()):
            raise UserError(
                f"no annotation of '{file.name}' is of an image that it lists",
                "are image_id and the ids of images of one and the same set?",
            )
        others = sum(thing.category != category for things in objects.values() for thing in things)
        mended.add("annotations of categories without points are left out", f"in '{file.name}'", others)
        people = {n: [thing for thing in things if thing.category == category] for n, things in objects.items()}
        listed = listed_images(file, people, {category: 0}, finder, mended)
        splits[split] = [_posed(item, things, len(skeleton)) for item, things in listed]
    mended.add_all("images that no annotations name are left out", finder.unused())
    return PoseAnnotations(
        form="COCO keypoints json",
        classes=(declared[category],),
        splits=splits,
        notes=mended.notes(),
        skeleton=skeleton,
    )


def _skeleton(files: Sequence[File]) -> tuple[int, Skeleton]:
    """Id of the one category that has points, and these."""
    found: dict[int, Skeleton] = {}
    for file in files:
        for category in file.document["categories"]:
            if category.get("keypoints"):
                skeleton = _skeleton_of(category, file)
                if found.setdefault(category["id"], skeleton) != skeleton:
                    raise UserError(
                        f"category {category['name']!r} has other points in '{file.name}' than in another file",
                        "give every split the same categories",
                    )
    if not found:
        names = " and ".join(f"'{file.name}'" for file in files[:2])
        raise UserError(f"no category in {names} has points: they hold boxes alone", _POINTS_HINT)
    if len(found) > 1:
        counts = ", ".join(f"{number} ({len(skeleton)} points)" for number, skeleton in sorted(found.items()))
        raise UserError(
            f"the categories {counts} all have points, and a pose network has one kind of object",
            "keep the annotations of one of them",
        )
    return next(iter(found.items()))


def _skeleton_of(category: Mapping[str, Any], file: File) -> Skeleton:
    names, which = category["keypoints"], f"category {category['name']!r} in '{file.name}'"
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names) or len(set(names)) != len(names):
        raise UserError(f"{which} has the points {names!r}", "give a list of different names")
    limbs = category.get("skeleton") or []
    pairs = [numbers(pair) for pair in limbs if isinstance(pair, list) and len(pair) == 2]
    if len(pairs) != len(limbs) or not all(n.is_integer() and 1 <= n <= len(names) for pair in pairs for n in pair):
        raise UserError(
            f"{which} has a skeleton that does not fit its {len(names)} points",
            f"give pairs of numbers from 1 to {len(names)}",
        )
    sigmas, assumed = sigmas_of(names)
    if category.get("sigmas") is not None:
        given = category["sigmas"]
        known = numbers(given) if isinstance(given, list) else []
        if len(known) != len(names) or not all(0 < sigma < float("inf") for sigma in known):
            raise UserError(
                f"{which} has {len(names)} points, but sigmas {given!r}", "give one positive number for each point"
            )
        sigmas, assumed = tuple(known), False
    return Skeleton(
        names=tuple(names),
        limbs=tuple((int(a) - 1, int(b) - 1) for a, b in pairs),
        sigmas=sigmas,
        mirror=mirror_of(names),
        assumed=assumed,
    )


def _posed(item: Annotated, things: Sequence[Thing], count: int) -> PoseAnnotated:
    points = [_points(thing, count) for thing in things]
    areas = numbers([thing.document.get("area") for thing in things])
    return PoseAnnotated(
        **{field.name: getattr(item, field.name) for field in fields(item)},
        points=np.array(points, np.float64).reshape(len(things), count, 3),
        areas=np.array(areas, np.float64),
    )


def _points(thing: Thing, count: int) -> NDArray[np.float64]:
    """(count, 3); an annotation without points has none that are labelled."""
    given = thing.document.get("keypoints")
    if given is None or given == []:
        return np.zeros((count, 3))
    if not isinstance(given, list) or len(given) != 3 * count:
        length = len(given) if isinstance(given, list) else 0
        raise UserError(
            f"{thing.where} has {length} numbers in keypoints, but the category has {count} points",
            f"give x, y and 0, 1 or 2 for each point: {3 * count} numbers",
        )
    return np.array(numbers(given)).reshape(count, 3)
