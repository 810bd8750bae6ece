"""Spaces by reference: what a run, a saved network, a profile or a command calls the space of its networks.

A reference is

- the name of a bundled space, a key of `BUNDLED_SPACES`;
- `package.module:ATTRIBUTE` of an installed package: a `SearchSpace`, or a function without arguments that makes one.
  That imports the module, so its code runs;
- the path of a JSON file that holds the table of a space (`search_spaces.documents`). The space is then called
  `NAME@DIGEST` by its table's name and checksum, wherever the file lies. Architectures carry the table with them, so
  that a worker process, a bundle or a profile needs no file; a run keeps it as `space.json`.

All of them are resolved here alone. Equal references mean equal spaces in every process.
"""

import json
import os
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

from search_spaces.architecture import Architecture, parse_architecture_json
from search_spaces.blocks import BlockFamily
from search_spaces.code import require_allowed
from search_spaces.detect import DetectSpace
from search_spaces.documents import document_of, space_of_document
from search_spaces.errors import UnknownNameError, UserError
from search_spaces.pose import PoseSpace
from search_spaces.presets import COMPACT, DENSE, DETECT, MIXED, MOBILE, POSE
from search_spaces.space import SearchSpace
from search_spaces.staged import StagedSpace
from search_spaces.text import TextSpace

SPACE_FILE = "space.json"
"""File of a run's folder with the table of a space that was given as a file."""

FINER = 32
"""Pixels: the stride of the last stage, so that no row of a feature map is half outside the image."""

SEARCH_SPACES: Mapping[str, Callable[[], StagedSpace]] = MappingProxyType(
    {
        "mixed": lambda: StagedSpace(MIXED),
        "mobile": lambda: StagedSpace(MOBILE),
        "dense": lambda: StagedSpace(DENSE),
        "compact": lambda: StagedSpace(COMPACT),
        "detect": lambda: DetectSpace(DETECT),
        "pose": lambda: PoseSpace(POSE),
    }
)
"""The bundled spaces of images by name; tests and the documentation iterate over this table."""

OTHER_SPACES: Mapping[str, Callable[[], SearchSpace]] = MappingProxyType({"text": TextSpace})
"""The bundled spaces that are no table of stages of images."""

BUNDLED_SPACES: Mapping[str, Callable[[], SearchSpace]] = MappingProxyType({**SEARCH_SPACES, **OTHER_SPACES})
"""All of them."""

_FORMS = f"give one of {', '.join(BUNDLED_SPACES)}, package.module:ATTRIBUTE of an installed package, or a JSON file"


def load_search_space(name: str) -> StagedSpace:
    """The bundled space called `name`; raises `UnknownNameError` with the closest known names."""
    if name not in SEARCH_SPACES:
        raise UnknownNameError("search space", name, SEARCH_SPACES)
    return SEARCH_SPACES[name]()


def resolve_space(reference: str, beside: Path | None = None, *, document: str | None = None) -> SearchSpace:
    """The space that `reference` names; its `name` is the reference that architectures and files keep.

    Args:
        reference: see the module.
        beside: the folder whose `space.json` holds the table of `NAME@DIGEST`.
        document: that table as JSON text, where it is at hand.

    Raises:
        UserError: there is no such space; for a name without a colon or file an `UnknownNameError`.
    """
    if document is not None:
        return _expected(reference, space_of_text(document, reference))
    if reference in BUNDLED_SPACES:
        return _bundled(reference)
    if ":" in reference and not os.path.isfile(reference):  # unlike Path's, quiet about names that are too long
        return _imported_space(reference)
    if "@" in reference and beside is not None and (beside / SPACE_FILE).is_file():
        return _expected(reference, space_of_text(_read(beside / SPACE_FILE), str(beside / SPACE_FILE)))
    path = Path(os.path.expanduser(reference))
    if path.suffix == ".json" or os.path.isfile(path):
        return space_of_text(_read(path), reference)
    if "@" in reference:
        where = "" if beside is None else f": there is no {beside / SPACE_FILE}"
        raise UserError(f"the table of the space {reference!r} is missing{where}", "restore it, or search again")
    raise UnknownNameError("search space", reference, BUNDLED_SPACES)


def at_resolutions(space: SearchSpace, highest: int) -> SearchSpace:
    """`space` with the resolutions up to `highest` besides its own, in steps of `FINER` pixels.

    It is another space then, and carries its table. Itself where it has them, or no table of resolutions.
    """
    if not isinstance(space, StagedSpace) or type(space) not in (StagedSpace, DetectSpace, PoseSpace):
        return space
    known = space.table.resolutions
    further = tuple(range((max(known) // FINER + 1) * FINER, highest + 1, FINER))
    if not further:
        return space
    wider = {**document_of(space), "name": space.table.name, "resolutions": [*known, *further]}
    return space_of_text(json.dumps(wider), space.name)


def space_of(arch: Architecture) -> SearchSpace:
    """The space of an architecture; raises `UserError` where there is none by its reference."""
    return resolve_space(arch.space, document=arch.document)


def architecture_of_json(document: object, beside: Path | None = None) -> Architecture:
    """The architecture that `SearchSpace.to_json` wrote; raises `UserError` naming what is wrong.

    `beside`: as in `resolve_space`, for a document that does not hold its space's table itself.
    """
    reference, _, table = parse_architecture_json(document)
    text = None if table is None else json.dumps(table)
    return resolve_space(reference, beside, document=text).from_json(document)


@lru_cache(maxsize=64)
def space_of_text(text: str, source: str) -> StagedSpace:
    """The space whose table is the JSON `text`; `source` says in errors where that is from."""
    try:
        document: object = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise UserError(f"'{source}' is not JSON: {error}", _FORMS) from error
    try:
        return space_of_document(document, load_family)
    except UserError as error:
        raise UserError(f"'{source}' is not the table of a space: {error}", error.hint) from error


def load_family(reference: str) -> BlockFamily | None:
    """The family of blocks that a table names by `package.module:ATTRIBUTE`, called by that; None for a plain name."""
    if ":" not in reference:
        return None
    found = imported(reference, "family of blocks")
    if not isinstance(found, BlockFamily):
        raise UserError(f"{reference!r} is no family of blocks but {type(found).__name__}", "name a BlockFamily")
    return found.named(reference)


@cache
def _bundled(name: str) -> SearchSpace:
    return BUNDLED_SPACES[name]()


@lru_cache(maxsize=64)
def _imported_space(reference: str) -> SearchSpace:
    found = imported(reference, "search space")
    if callable(found) and not isinstance(found, SearchSpace):
        try:
            found = found()
        except TypeError as error:
            raise UserError(f"{reference!r} cannot be called without arguments: {error}", _FORMS) from error
    if not isinstance(found, SearchSpace):
        raise UserError(
            f"{reference!r} is no search space but {type(found).__name__}",
            "name a SearchSpace, or a function without arguments that returns one",
        )
    return found.named(reference)


def imported(reference: str, kind: str, hint: str = "write package.module:ATTRIBUTE of an installed package") -> Any:
    """What `reference`, `package.module:ATTRIBUTE`, names. That imports the module, and so runs its code.

    Raises:
        UserError: there is no such module or attribute, or it must not be imported (`search_spaces.code`); `kind` says
            what it was to be.
    """
    require_allowed(reference, kind)
    module, _, attribute = reference.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"there is no {kind} {reference!r}: {error}", hint) from error


def _expected(reference: str, space: StagedSpace) -> StagedSpace:
    if space.name != reference:
        raise UserError(
            f"the table of the space {reference!r} was changed: it is now {space.name!r}",
            "restore it, or search again with the new one",
        )
    return space


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: no text, or no name of a file
        raise UserError(f"cannot read the space '{path}': {error}", _FORMS) from error
