"""Pascal VOC folders (Everingham et al. 2010): one xml file per image.

`Annotations/a.xml` belongs to `JPEGImages/a.jpg` (or `images/a.jpg`, or an image beside the xml); the splits are lists
of names, `ImageSets/Main/{train,val,test,trainval}.txt`, or else folders called train, val and test.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

import numpy as np

from nas.data.decode import IMAGE_SUFFIXES
from nas.data.images import SPLITS, SplitName
from nas.data.originals import Parts
from nas.data.tree import Tree, split_of_folders
from nas.errors import UserError
from nas.tasks.detection.data.annotations import Annotated, Annotations, Mended, boxes_array, numbers

_FOLDERS = {"annotations", "jpegimages", "images"}
_CORNERS = ("xmin", "ymin", "xmax", "ymax")


@dataclass(frozen=True, slots=True, eq=False)
class _Page:
    """Contents of one xml file."""

    names: tuple[str, ...]
    boxes: list[list[float]]
    difficult: list[bool]
    size: tuple[int, int] | None
    file_name: str


def read_voc(tree: Tree) -> Annotations | None:
    """The data set in `tree` if it has VOC annotations, else None.

    Classes are the names that occur, sorted. `difficult` objects count as VOC counts them, neither as found nor as
    missed, which is what `crowd` means. Pixels count from 1 and both corners belong to the object, unless a
    corner at 0 shows that the set counts from 0.

    Raises:
        UserError: a file that is no xml or has a DTD, an object without name, an image that is missing, a name in a
            split's list without annotations.
    """
    mended = Mended()
    pages: dict[Parts, _Page] = {}
    for parts in sorted(parts for parts in tree.files if parts[-1].lower().endswith(".xml")):
        root = _parse(tree, parts)
        if root.tag == "annotation":
            pages[parts] = _page(root, "/".join(parts))
    splits = _splits(tree, pages, mended)
    if "train" not in splits:
        return None

    used = [pages[parts] for split in splits.values() for parts in split]
    classes = tuple(sorted({name for page in used for name in page.names}))
    lowest = np.array([box[:2] for page in used for box in page.boxes]).reshape(-1)
    first = 0.0 if (lowest[np.isfinite(lowest)] < 1).any() else 1.0
    by_stem: dict[str, list[Parts]] = {}
    for parts in sorted(tree.files):
        if parts[-1].lower().endswith(IMAGE_SUFFIXES):
            by_stem.setdefault(_stem(parts), []).append(parts)

    images: set[Parts] = set()
    found: dict[SplitName, list[Annotated]] = {}
    for split, members in splits.items():
        for parts in members:
            image = _image(parts, pages[parts], by_stem)
            images.add(image)
            found.setdefault(split, []).append(_annotated(tree, image, pages[parts], classes, first))
    unused = sorted({parts for same in by_stem.values() for parts in same} - images)
    mended.add_all("images without annotations are left out", ["/".join(parts) for parts in unused])
    return Annotations("Pascal VOC", classes, found, mended.notes())


def _stem(parts: Parts) -> str:
    return parts[-1].rsplit(".", 1)[0]


def _parse(tree: Tree, parts: Parts) -> Element:
    """The root element; a document type is refused, so that no entity is ever expanded or fetched."""
    where = "/".join(parts)
    builder = TreeBuilder()
    parser = expat.ParserCreate()
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data

    def refuse(*_: object) -> None:
        raise UserError(f"'{where}' has a document type (DTD)", "remove the <!DOCTYPE ...>: annotations need none")

    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(tree.files[parts](), True)
        return builder.close()
    except (expat.ExpatError, ValueError, LookupError, OSError) as error:  # LookupError: an unknown encoding
        raise UserError(
            f"cannot read annotations '{where}': {error}", "the file is damaged or no xml: write it again, or remove it"
        ) from error


def _page(root: Element, where: str) -> _Page:
    names, boxes, difficult = [], [], []
    for thing in root.findall("object"):
        name = (thing.findtext("name") or "").strip()
        if not name:
            raise UserError(f"an object in '{where}' has no name", "write its class into <name>")
        names.append(name)
        boxes.append(numbers([thing.findtext(f"bndbox/{corner}") for corner in _CORNERS]))
        difficult.append((thing.findtext("difficult") or "").strip().lower() in ("1", "true"))
    width, height = numbers([root.findtext("size/width"), root.findtext("size/height")])
    size = (int(width), int(height)) if 1 <= width < 1e9 and 1 <= height < 1e9 else None
    return _Page(tuple(names), boxes, difficult, size, (root.findtext("filename") or "").strip())


def _splits(tree: Tree, pages: Mapping[Parts, _Page], mended: Mended) -> dict[SplitName, list[Parts]]:
    """Annotation files by split; empty without annotations."""
    lists = {parts: read for parts, read in tree.files.items() if parts[-3:-1] == ("ImageSets", "Main")}
    found: dict[SplitName, list[Parts]] = {}
    listed: set[Parts] = set()
    for root in sorted({parts[:-3] for parts in lists}):  # VOC2007 and VOC2012 may lie side by side
        here = {_stem(parts): parts for parts in pages if parts[:-1] == (*root, "Annotations")}
        names = {split: (*root, "ImageSets", "Main", f"{split}.txt") for split in ("train", "val", "test", "trainval")}
        both = names["train"] not in lists
        if both:
            names["train"] = names["trainval"]
        members = {split: _members(tree, names[split], here) for split in SPLITS if names[split] in lists}
        if both and "train" in members:
            members["train"] = list(set(members["train"]) - set(members.get("val", ())))
        for split, of_split in members.items():
            found.setdefault(split, []).extend(of_split)
            listed.update(of_split)
    if not found:
        for parts in pages:
            found.setdefault(split_of_folders(parts[:-1]) or "train", []).append(parts)
        listed = set(pages)
    mended.add_all("annotations in no split's list are left out", ["/".join(p) for p in sorted(set(pages) - listed)])
    return {split: sorted(set(members)) for split, members in found.items() if members}


def _members(tree: Tree, path: Parts, pages: Mapping[str, Parts]) -> list[Parts]:
    where = "/".join(path)
    try:
        lines = tree.files[path]().decode("utf-8-sig").splitlines()
    except (UnicodeDecodeError, OSError) as error:
        raise UserError(f"cannot read '{where}': it is no text (UTF-8)", "write one image's name per line") from error
    found = []
    for line in filter(None, map(str.strip, lines)):
        # "name 1" is how the lists of single classes are written; names may hold spaces as well.
        name = line if line in pages else line.split()[0]
        if name not in pages:
            raise UserError(
                f"{line!r} of '{where}' has no annotations", f"add Annotations/{name}.xml, or remove the line"
            )
        found.append(pages[name])
    return found


def _image(annotations: Parts, page: _Page, by_stem: Mapping[str, Sequence[Parts]]) -> Parts:
    """The image of the xml file `annotations`: of the same name or, failing that, the file name it states."""

    def neighbour(folders: Parts) -> Parts:
        return tuple("*" if folder.lower() in _FOLDERS else folder for folder in folders)

    stated = page.file_name.replace("\\", "/").rsplit("/", 1)[-1]  # never its folders: they may lead anywhere
    for stem in (_stem(annotations), stated.rsplit(".", 1)[0]):
        same = [p for p in by_stem.get(stem, ()) if neighbour(p[:-1]) == neighbour(annotations[:-1])]
        if len(same) > 1:  # a.jpg and a.png
            same = [p for p in same if p[-1] == stated] or same
        if same:
            return same[0]
    where = "/".join(annotations)
    raise UserError(
        f"image {stated or _stem(annotations)!r} of '{where}' is missing",
        f"put it into JPEGImages/, or remove its annotations (files can be {', '.join(IMAGE_SUFFIXES)})",
    )


def _annotated(tree: Tree, image: Parts, page: _Page, classes: Sequence[str], first: float) -> Annotated:
    index = {name: label for label, name in enumerate(classes)}
    return Annotated(
        name="/".join(image),
        read=tree.files[image],
        xyxy=boxes_array(page.boxes) - (first, first, 0, 0),
        classes=np.array([index[name] for name in page.names], np.int64),
        crowd=np.array(page.difficult, np.bool_),
        size=page.size,
    )
