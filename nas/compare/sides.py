"""The documents of two benches, read and checked, and what each says of a network. Pure, but for reading a file."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nas.bench.document import SCHEMA, Document, fastest, is_disturbed
from nas.deployment import CPU, name_in
from nas.errors import UserError

HINT = "write one with `nas bench MODEL --batch 1 --batch 8 --batch 64 --json > FILE`"
_ENTRIES = {"device": str, "threads": int, "models": list, "cells": list}


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two benches."""

    name: str
    """`A` or `B`."""
    path: Path
    document: Document
    deployment: str | None = None
    """Name of the one that counts (`openvino-int8`, `torch-fp16@cuda:0`); None: each network's fastest."""

    @property
    def models(self) -> dict[str, Document]:
        """Name as typed -> the entry of the network."""
        return {model["model"]: model for model in self.document["models"]}

    def deployments(self) -> tuple[str, ...]:
        """Names of all that anything was measured in, in the order of the document."""
        return tuple(dict.fromkeys(name_in(cell) for cell in self.document["cells"] if _is_known(cell)))

    def cells_of(self, model: str) -> "list[Document]":
        """Measured cells of a network in the deployment that counts: the chosen one, else the one with the lowest
        latency at the smallest batch; empty where nothing was measured."""
        cells = [c for c in self.document["cells"] if c["model"] == model and _is_known(c)]
        if self.deployment is not None:
            return [c for c in cells if name_in(c) == self.deployment]
        best = fastest(cells, model) if cells else None
        return [] if best is None else [c for c in cells if name_in(c) == name_in(best)]


def read_side(name: str, path: Path, deployment: str | None = None) -> Side:
    """The bench in a file.

    Raises:
        UserError: no such file, another document, an older form of it, or a deployment that it does not have.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read the bench '{path}': {error.strerror}", HINT) from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"'{path}' is no JSON: {error}", HINT) from error
    if not isinstance(document, dict) or any(not isinstance(document.get(k), t) for k, t in _ENTRIES.items()):
        raise UserError(f"'{path}' is no document of `nas bench --json`", HINT)
    if document.get("schema") != SCHEMA:
        raise UserError(f"'{path}' has schema {document.get('schema')}, and this version reads {SCHEMA}", HINT)
    _check_entries(path, document)
    side = Side(name, path, document, deployment)
    known = side.deployments()
    if not known:
        raise UserError(f"nothing was measured in '{path}'", "its cells say why (`not_measured`)")
    if deployment is not None and deployment not in known:
        raise UserError(f"'{path}' has no deployment {deployment!r}", f"it has {', '.join(known)}")
    return side


def _check_entries(path: Path, document: Mapping[str, Any]) -> None:
    """Raises `UserError` for an entry without the fields that are read here."""
    needed = {
        "models": ("model", "input"),
        "cells": ("model", "runtime", "precision", "threads", "batch", "streams", "p50_ms", "images_per_s",
                  "energy_mj", "verdict", "not_measured"),
    }  # fmt: skip
    for kind, fields in needed.items():
        for number, entry in enumerate(document[kind]):
            missing = [f for f in fields if f not in entry] if isinstance(entry, dict) else ["everything"]
            if missing:
                raise UserError(f"'{path}' lacks {missing[0]} of {kind}[{number}]", HINT)


def in_both(a: Side, b: Side) -> tuple[list[str], list[str]]:
    """Names of the networks that can be compared, and a sentence for each that cannot.

    Raises:
        UserError: no network can be compared.
    """
    shared, why_not = list[str](), list[str]()
    for model in dict.fromkeys([*a.models, *b.models]):
        reason = _why_not(model, a, b)
        if reason is None:
            shared.append(model)
        else:
            why_not.append(reason)
    if not shared:
        raise UserError(f"no network can be compared: {why_not[0]}", "name the networks alike in both benches")
    return shared, why_not


def _why_not(model: str, a: Side, b: Side) -> str | None:
    for side in (a, b):
        if model not in side.models:
            return f"{model} is not in {side.name} ('{side.path}'): bench it there under the same name"
    shapes = [side.models[model]["input"] for side in (a, b)]
    if shapes[0] != shapes[1]:
        first, second = ("x".join(map(str, shape["shape"])) for shape in shapes)
        return f"{model} takes {first} in A and {second} in B: give both the same --resolution"
    for side in (a, b):
        if not side.cells_of(model):
            where = f" in {side.deployment}" if side.deployment is not None else ""
            return f"{model} was not measured{where} in {side.name} ('{side.path}'): its cells say why"
    return None


def single_calls(cells: Sequence[Document]) -> dict[int, Document]:
    """Batch -> the cell of one call at a time."""
    return {cell["batch"]: cell for cell in cells if cell["streams"] == 1}


def most_images_per_s(cells: Sequence[Document]) -> Document:
    """The cell with the highest throughput, whatever its batch and streams."""
    return max(cells, key=lambda cell: float(cell["images_per_s"]))


def joules_per_image(cell: Document) -> float | None:
    """Of the device alone (a processor's packages, a GPU's board); None where its counter could not be read."""
    return None if cell["energy_mj"] is None else float(cell["energy_mj"]) / 1e3 / int(cell["batch"])


def runs_on_cpu(cell: Document) -> bool:
    return (cell.get("runs_on") or CPU) == CPU


def any_disturbed(cells: Sequence[Document]) -> bool:
    return any(is_disturbed(cell) for cell in cells)


def _is_known(cell: Document) -> bool:
    return cell["not_measured"] is None and cell["images_per_s"] is not None
