"""Tables of staged spaces as JSON documents: a space that is data and no code."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any

from search_spaces.blocks import BlockFamily
from search_spaces.detect import DetectSpace, DetectTable
from search_spaces.errors import UnknownNameError, UserError
from search_spaces.families import FAMILIES
from search_spaces.pose import PoseSpace, PoseTable
from search_spaces.staged import SpaceTable, StagedSpace, StageTable

SCHEMA = "nas-space/1"

_KINDS: Mapping[str, tuple[type[SpaceTable], type[StagedSpace]]] = {
    "staged": (SpaceTable, StagedSpace),
    "detect": (DetectTable, DetectSpace),
    "pose": (PoseTable, PoseSpace),
}
_HINT = "write the file with `search_spaces.documents.document_of`"


def document_of(space: StagedSpace) -> dict[str, Any]:
    """The table of `space` for `space_of_document`; restrictions of the space are no part of it.

    Raises `UserError` for a family of blocks that no other process could find.
    """
    table = space.table
    for name in table.families:
        if name not in FAMILIES and ":" not in name:
            raise UserError(
                f"the family of blocks {name!r} cannot be found by its name in another process",
                "call it by where it is: package.module:ATTRIBUTE of an installed package",
            )
    kind = next(kind for kind, (known, _) in _KINDS.items() if type(table) is known)
    document: dict[str, Any] = {"schema": SCHEMA, "kind": kind}
    for field in fields(table):
        document[field.name] = _plain(getattr(table, field.name))
    return document


def space_of_document(document: object, load_family: Callable[[str], BlockFamily | None]) -> StagedSpace:
    """The space of a table, called `NAME@DIGEST` by the table's name and checksum, which it carries with it.

    Raises `UserError` naming what is wrong. `load_family` finds the families that are called by a reference.
    """
    if not isinstance(document, Mapping) or document.get("schema") != SCHEMA:
        raise UserError(f"it has no 'schema' of {SCHEMA!r}", _HINT)
    if not isinstance(document.get("kind"), str) or document["kind"] not in _KINDS:
        raise UserError(f"the kind {document.get('kind')!r} is none of {', '.join(_KINDS)}", _HINT)
    table_type, space_type = _KINDS[document["kind"]]
    table = _table(document, table_type)
    own = [family for name in table.families if name not in FAMILIES and (family := load_family(name)) is not None]
    try:
        space = space_type(table, families=own)
    except ValueError as error:
        raise UserError(str(error), _HINT) from error
    known = {decision.name for decision in space.decisions}
    for anchor in table.anchors:
        if not anchor.keys() <= known:
            raise UserError(f"an anchor decides about {sorted(anchor.keys() - known)[0]!r}, which the space does not")
    _ = space.anchors  # raises for an option that does not exist
    text = json.dumps(document_of(space), sort_keys=True, separators=(",", ":"))
    return space.named(f"{table.name}@{hashlib.sha256(text.encode()).hexdigest()[:16]}", text)


def _table(document: Mapping[str, Any], table_type: type[SpaceTable]) -> SpaceTable:
    needed = {field.name: field.default is MISSING for field in fields(table_type)}
    given = {name: value for name, value in document.items() if name not in ("schema", "kind")}
    for name in given:
        if name not in needed:
            raise UnknownNameError("field of a space's table", name, needed)
    for name in needed:
        if needed[name] and name not in given:
            raise UserError(f"it does not say {name!r}", _HINT)
    if not isinstance(given["name"], str) or not given["name"].isidentifier():
        raise UserError(f"the name {given['name']!r} is no plain word", "use letters, digits and underscores")
    try:
        return table_type(**{name: _field(name, value) for name, value in given.items()})
    except ValueError as error:
        raise UserError(str(error), _HINT) from error


def _field(name: str, value: Any) -> Any:
    """A table's field from JSON; raises `UserError` for what cannot be one."""
    if name == "name":
        return value
    if name == "early":
        if not isinstance(value, bool):
            raise UserError(f"'early' is {value!r} instead of true or false", _HINT)
        return value
    if not isinstance(value, list) or (not value and name != "anchors"):
        raise UserError(f"{name!r} is {value!r} instead of a list", _HINT)
    if name == "families":
        if not all(isinstance(family, str) for family in value):
            raise UserError(f"'families' is {value!r} instead of a list of names", _HINT)
        return tuple(value)
    if name == "anchors":
        if not all(isinstance(anchor, Mapping) for anchor in value):
            raise UserError("an anchor is no mapping of decisions to options", _HINT)
        return tuple(dict(anchor) for anchor in value)
    if name == "stages":
        if not all(isinstance(stage, Mapping) and stage.keys() == {"widths", "depths"} for stage in value):
            raise UserError("a stage needs 'widths' and 'depths'", _HINT)
        return tuple(StageTable(_numbers("widths", s["widths"]), _numbers("depths", s["depths"])) for s in value)
    return _numbers(name, value)


def _numbers(name: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not value or not all(type(v) is int and v > 0 for v in value):
        raise UserError(f"{name!r} is {value!r} instead of a list of positive whole numbers", _HINT)
    return tuple(value)


def _plain(value: Any) -> Any:
    if isinstance(value, StageTable):
        return {"widths": list(value.widths), "depths": list(value.depths)}
    if isinstance(value, Mapping):
        return dict(value)
    return [_plain(v) for v in value] if isinstance(value, tuple) else value
