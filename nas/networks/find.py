"""The names of networks, for every command: one vocabulary, resolved in one place.

RUN#k                      the k-th network of a run, see `nas.networks.run_networks`; RUN alone is RUN#1
FOLDER                     a bundle, or any folder with `model.network.json` and its weights
NAME.network.json          a network with `NAME.safetensors` beside it
ARCH.json                  an architecture as `SearchSpace.to_json` writes it; its weights come from elsewhere
FILE.onnx                  a network that nothing but its graph is known of
torchvision:NAME           an architecture of torchvision; torchvision:NAME:FILE.safetensors with weights
timm:NAME                  an architecture of timm; timm:NAME:FILE.safetensors with weights
package.module:FUNCTION    what a function of an installed package builds; package.module:FUNCTION:FILE with weights
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

from nas.data.images import Preprocess
from nas.errors import UserError
from nas.networks.description import NETWORK, NetworkDescription, read_description, read_json, weights_path
from nas.networks.run_networks import TRAINED, RunNetwork, numbered_network, run_networks, split_number
from nas.tasks import task_named
from nas.tasks.baseline import PYTHON, TIMM, TORCHVISION
from search_spaces import Architecture, architecture_of_json, space_of

RECEIPT, LABELS, ONNX = "receipt.json", "labels.json", "model.onnx"
"""Files of a bundle's folder: what is claimed of it, the names of the classes, and the network in fp32."""
EXPORTS = "exports"
"""Folder of a run with what `nas export` delivers of its networks, by their numbers."""
PAIR_SUFFIX = ".network.json"
RECORDS = (RECEIPT, TRAINED)
"""Files that may lie beside weights and list their checksum."""
RUN_DEPTH = 4
"""So many folders up a network's run is looked for."""

Kind = Literal["network", "architecture", "onnx", "torchvision", "timm", "python"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_IS: Mapping[Kind, str] = {
    "network": "a network of this program with its weights",
    "architecture": "an architecture without weights",
    "onnx": "an ONNX file",
    "torchvision": "a network of torchvision",
    "timm": "a network of timm",
    "python": "a network that a function builds",
}
_FORMS: Mapping[Kind, str] = {
    "network": "RUN#1, a bundle's folder, NAME.network.json",
    "architecture": "ARCH.json with --checkpoint",
    "onnx": "an ONNX file",
    "torchvision": "torchvision:NAME",
    "timm": "timm:NAME",
    "python": "package.module:FUNCTION",
}
PREFIXES: Mapping[Kind, str] = {"torchvision": TORCHVISION, "timm": TIMM, "python": PYTHON}
"""How the names of a library's networks begin, see `nas.tasks.baseline`."""
_LIBRARIES: tuple[Kind, ...] = ("torchvision", "timm")
TRAINED_KINDS: tuple[Kind, ...] = ("network", "torchvision", "timm", "python")
"""Kinds of networks that may come with weights."""
_FUNCTION = re.compile(rf"(?:{PYTHON})?([A-Za-z_]\w*(?:\.\w+)*:[A-Za-z_]\w*)(?::(.+))?")
"""A function of a package, and a file of weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundNetwork:
    """A network that somebody named, and where all that is known of it lies."""

    text: str
    """The network as the user typed it."""
    kind: Kind
    file: Path | None = None
    """`NAME.network.json`, `ARCH.json` or the ONNX file; None for a library's."""
    description: NetworkDescription | None = None
    """Set for the kind `network` alone: others say nothing of their classes."""
    architecture: Architecture | None = None
    """Set for the kind `architecture` alone."""
    weights: Path | None = None
    """Safetensors; a file that is missing is found out when it is loaded."""
    sha256: str | None = None
    """Checksum of `weights`, where a record beside them lists it."""
    onnx: Path | None = None
    """The ONNX file, also that of a bundle, where there is one."""
    receipt: Mapping[str, Any] = field(default_factory=dict)
    """A bundle's `receipt.json`; empty for any other network."""
    run: Path | None = None
    """Folder of the run that the network is of."""
    rank: int | None = None
    """The k of `RUN#k`, where it was asked for by that."""
    published: str | None = None
    """The name after `torchvision:` or `timm:`: that of the network in its library, which is the kind; of the kind
    `python` the function."""

    @property
    def folder(self) -> Path:
        """The network's own, with a bundle's files where it is one."""
        place = self.file or self.weights
        assert place is not None
        return place.parent

    @property
    def nearby(self) -> tuple[Path, ...]:
        """Folders that may say how its input is made and what its classes are, the most telling first.

        First what lies beside the weights: they may have been trained on other data than the network's run.
        """
        winner = [self.run / "winners" / "1"] if self.run is not None else []
        own = [path.parent for path in (self.weights, self.file) if path is not None]
        return tuple(dict.fromkeys([*own, *winner]))

    @property
    def task(self) -> str:
        """Reference of the task it is for, see `nas.tasks.task_named`; of a network or an architecture alone."""
        if self.description is not None:
            return self.description.task
        assert self.architecture is not None
        return space_of(self.architecture).task

    def preprocess(self, task: str) -> Preprocess | None:
        """The pre-processing that the network was trained with for `task`; None where no file tells.

        Raises `UserError` for a damaged file.
        """
        read = task_named(task).artifacts.read_preprocess
        return next((found for found in map(read, self.nearby) if found is not None), None)

    def labels(self) -> tuple[str, ...] | None:
        """Names of its classes; None where no file tells. Raises `UserError` for a damaged file."""
        return next((names for names in map(_labels, self.nearby) if names is not None), None)


def find_network(
    text: str, *, accept: Collection[Kind] = KINDS, weights: Path | None = None, forms: str = ""
) -> FoundNetwork:
    """The one network that `text` names.

    Args:
        text: as typed; the forms are those of this module.
        accept: kinds of use to the caller.
        weights: instead of those that lie beside the network.
        forms: for the hint, where there is no such network; default: those of the accepted kinds.

    Raises:
        UserError: there is none, it is of another kind, or its files are damaged.
    """
    forms = forms or "give " + ", ".join(_FORMS[kind] for kind in KINDS if kind in accept)
    found = _found(text, forms)
    if weights is not None:
        found = replace(found, weights=weights, sha256=_recorded(weights))
    if found.kind not in accept:
        raise UserError(f"'{text}' is {_IS[found.kind]}, which is of no use here", forms)
    return found


def find_networks(text: str, top: int) -> list[FoundNetwork]:
    """The `top` first networks of the run that `text` names, or the one network that it names; a library's may be
    without weights.

    Raises `UserError` as `find_network`.
    """
    path = Path(text).expanduser()
    if split_number(text) is None and is_run(path):
        return [_of_run(text, path, network) for network in run_networks(path)[:top]]
    forms = "give RUN, RUN#1, a bundle's folder, NAME.network.json, torchvision:NAME or timm:NAME"
    return [find_network(text, accept=TRAINED_KINDS, forms=forms)]


def find_bundle(text: str) -> Path:
    """The folder that `text` names; of `RUN#k` (`RUN` is `RUN#1`) the bundle that was delivered of the network.

    Raises:
        UserError: nothing was delivered of that network, or there is none.
    """
    folder = Path(text).expanduser()
    numbered = split_number(text)
    if numbered is None and not is_run(folder):
        return folder  # reading its receipt tells whether it is a bundle
    run, rank = numbered or (folder, 1)
    places = (numbered_network(run, rank).folder, run / EXPORTS / str(rank))
    found = next((place for place in places if (place / RECEIPT).is_file()), None)
    if found is None:
        raise UserError(f"{run}#{rank} was not delivered: it has no bundle", f"make one: nas export {run}#{rank}")
    return found


def is_run(folder: Path) -> bool:
    """True if a search wrote the folder, and it is not itself that of a network."""
    return not (folder / NETWORK).is_file() and any(
        (folder / name).exists() for name in ("config.json", "winners", "finalists")
    )


def _found(text: str, forms: str) -> FoundNetwork:
    library = next((kind for kind in _LIBRARIES if text.startswith(PREFIXES[kind])), None)
    if library is not None:
        name, _, file = text.removeprefix(PREFIXES[library]).partition(":")
        return FoundNetwork(text=text, kind=library, published=name, weights=Path(file).expanduser() if file else None)
    path = Path(text).expanduser()
    function = None if path.exists() else _FUNCTION.fullmatch(text)
    if function is not None:
        name, file = function.groups()
        weights = None if file is None else Path(file).expanduser()
        return FoundNetwork(text=text, kind="python", published=name, weights=weights)
    numbered = split_number(text)
    if numbered is not None:
        return _of_run(text, numbered[0], numbered_network(*numbered), numbered[1])
    if path.is_dir():
        return _of_folder(text, path, forms)
    if not path.is_file():
        raise UserError(f"no such network: '{text}'", forms)
    if path.name.endswith(PAIR_SUFFIX):
        return _of_pair(text, path)
    if path.suffix == ".onnx":
        return FoundNetwork(text=text, kind="onnx", file=path, onnx=path)
    return FoundNetwork(text=text, kind="architecture", file=path, architecture=_architecture(path), run=_run_of(path))


def _of_folder(text: str, folder: Path, forms: str) -> FoundNetwork:
    if (folder / NETWORK).is_file():
        return _of_pair(text, folder / NETWORK)
    receipt = _receipt(folder)
    if receipt:
        onnx = _onnx(folder, receipt)
        if onnx is None:
            raise UserError(f"'{folder}' holds no {ONNX}", "give the folder that a search or `nas export` wrote")
        return FoundNetwork(text=text, kind="onnx", file=onnx, onnx=onnx, receipt=receipt, run=_run_of(onnx))
    if is_run(folder):
        return _of_run(text, folder, numbered_network(folder, 1), 1)
    raise UserError(f"no such network: the folder '{text}' holds none", forms)


def _of_run(text: str, run: Path, network: RunNetwork, rank: int | None = None) -> FoundNetwork:
    found = _of_pair(text, network.file, network.description)
    return replace(found, run=run, rank=rank if rank is not None else network.rank)


def _of_pair(text: str, file: Path, description: NetworkDescription | None = None) -> FoundNetwork:
    weights = weights_path(file)
    receipt = _receipt(file.parent) if file.name == NETWORK else {}
    return FoundNetwork(
        text=text,
        kind="network",
        file=file,
        description=description or read_description(file),
        weights=weights,
        sha256=_recorded(weights),
        onnx=_onnx(file.parent, receipt) if receipt else None,
        receipt=MappingProxyType(receipt),
        run=_run_of(file),
    )


def _onnx(folder: Path, receipt: Mapping[str, Any]) -> Path | None:
    named = receipt.get("onnx")
    files = [folder / Path(named).name] if isinstance(named, str) else []
    return next((f for f in (*files, folder / ONNX) if f.is_file()), None)


def _architecture(path: Path) -> Architecture:
    if path.suffix != ".json":
        raise UserError(
            f"'{path}' is neither a network nor an architecture: those are JSON files",
            "give NAME.network.json with NAME.safetensors beside it, or ARCH.json with --checkpoint FILE.safetensors",
        )
    document = read_json(path)
    if not isinstance(document, Mapping) or not isinstance(document.get("space"), str):
        raise UserError(
            f"'{path}' is neither a network nor an architecture",
            "give NAME.network.json, or an architecture as a winner's architecture.json has it",
        )
    return architecture_of_json(document, path.parent)


def _run_of(path: Path) -> Path | None:
    """The nearest run whose folder `path` lies in."""
    for folder in list(path.absolute().parents)[:RUN_DEPTH]:
        trained = (folder / "winners").is_dir() or (folder / "finalists").is_dir()
        if trained and (folder / "config.json").is_file():
            return folder
    return None


def _receipt(folder: Path) -> dict[str, Any]:
    """A bundle's `receipt.json`; empty where there is none. Raises `UserError` for a damaged one."""
    if not (folder / RECEIPT).is_file():
        return {}
    document = read_json(folder / RECEIPT)
    if not isinstance(document, dict):
        raise UserError(f"'{folder / RECEIPT}' is no receipt", "export the network again")
    return document


def _labels(folder: Path) -> tuple[str, ...] | None:
    if not (folder / LABELS).is_file():
        return None
    document = read_json(folder / LABELS)
    return tuple(str(name) for name in document) if isinstance(document, list) else None


def _recorded(weights: Path) -> str | None:
    """The checksum that a record beside the weights lists for them."""
    for name in RECORDS:
        try:
            document: Any = json.loads(weights.with_name(name).read_text(encoding="utf-8"))
            return str(document["sha256"][weights.name])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue
    return None
