"""Networks on disk: what the network is as JSON, its weights as safetensors. Nothing is ever unpickled."""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nas.errors import UserError
from nas.tasks import TASKS, zoo_model
from search_spaces import Architecture, load_search_space

if TYPE_CHECKING:
    from torch import nn


NETWORK = "model.network.json"
"""The description of a folder's network; its weights lie beside it, see `weights_path`."""
_PAIR = "a network is a pair of files: NAME.network.json, NAME.safetensors"
_ZIP = b"PK\x03\x04"
"""What `torch.save` writes begins so."""


@dataclass(frozen=True, slots=True)
class NetworkDescription:
    """Enough to rebuild a network without its weights: an architecture of a space, or a network of the zoo."""

    source: Architecture | str
    """An `Architecture`, or a name in the `zoo` of a task."""
    num_classes: int
    resolution: int
    """Input height = width in pixels."""

    def to_json(self) -> dict[str, object]:
        document: dict[str, object] = {"num_classes": self.num_classes, "resolution": self.resolution}
        if isinstance(self.source, Architecture):
            document["architecture"] = load_search_space(self.source.space).to_json(self.source)
        else:
            document["zoo"] = self.source
        return document

    @classmethod
    def from_json(cls, document: object) -> "NetworkDescription":
        """Raises `UserError` if the document does not describe a network."""
        if not isinstance(document, dict) or ("architecture" in document) == ("zoo" in document):
            raise UserError("this is not a network description", "it needs either 'architecture' or 'zoo'")
        sizes = [document.get("num_classes"), document.get("resolution")]
        if not all(isinstance(size, int) and size > 0 for size in sizes):
            raise UserError("a network description needs positive 'num_classes' and 'resolution'", "export it again")
        source: Architecture | str
        if "zoo" in document:
            source = str(document["zoo"])
        else:
            nested = document["architecture"]
            name = nested.get("space") if isinstance(nested, dict) else None
            source = load_search_space(str(name)).from_json(nested)
        return cls(source, document["num_classes"], document["resolution"])

    def build(self) -> "nn.Module":
        """A fresh, trainable network with random weights."""
        if isinstance(self.source, Architecture):
            return load_search_space(self.source.space).build(self.source, self.num_classes)
        return zoo_model(self.source).build(self.num_classes, self.resolution)

    @property
    def task(self) -> str:
        """The task it is for, a key of `nas.tasks.TASKS`."""
        if isinstance(self.source, Architecture):
            return load_search_space(self.source.space).task
        return next(task.name for task in TASKS.values() if self.source in task.zoo)

    @property
    def head_kind(self) -> str | None:
        """How the network's output is to be read, where its task knows several ways."""
        if isinstance(self.source, Architecture):
            return load_search_space(self.source.space).head_kind
        return zoo_model(self.source).head_kind


def weights_path(network_json: Path) -> Path:
    """Where the weights of `NAME.network.json` lie: `NAME.safetensors` beside it."""
    return network_json.with_name(network_json.name.removesuffix(".network.json") + ".safetensors")


def save_network(network: "nn.Module", description: NetworkDescription, path: Path) -> None:
    """Write `NAME.network.json` (at `path`) and `NAME.safetensors`; each appears whole or not at all."""
    write_whole(weights_path(path), weights_of(network))
    write_json(path, description.to_json())


def weights_of(network: "nn.Module") -> bytes:
    """All parameters and buffers, as the content of a safetensors file."""
    from safetensors.torch import save

    return save({k: v.detach().cpu().contiguous() for k, v in network.state_dict().items()})


def load_network(path: Path, *, fold: bool = True) -> "nn.Module":
    """The network of `NAME.network.json` in eval mode, folded for deployment unless told otherwise.

    Raises `UserError` if a file is missing, is no safetensors file, or belongs to another architecture.
    """
    from search_spaces.modules import folded

    for needed in (path, weights_path(path)):  # before anything is built
        _require(needed)
    network = read_description(path).build()
    load_weights(network, weights_path(path))
    return folded(network) if fold else network.eval()


def read_description(path: Path) -> NetworkDescription:
    """What `NAME.network.json` says. Raises `UserError` if it is missing or no such file."""
    return NetworkDescription.from_json(read_json(path))


def read_json(path: Path) -> object:
    """The document in a file of a network. Raises `UserError` if it is missing or no JSON."""
    _require(path)
    try:
        document: object = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not JSON: {error}", "export the network again") from error
    return document


def load_weights(network: "nn.Module", weights: Path) -> None:
    """Give `network` the weights in a safetensors file.

    Raises `UserError` if the file is missing, is something else (a pickle is never opened) or a part of one, was
    changed after it was written, or holds the weights of another network.
    """
    from nas.export.tensors import load_tensors

    given, _ = load_tensors(weights)
    own = network.state_dict()
    wrong = sorted(
        name for name in own.keys() | given.keys()
        if name not in own or name not in given or own[name].shape != given[name].shape
    )  # fmt: skip
    if wrong:
        raise UserError(
            f"{weights} holds the weights of another network: {len(wrong)} tensors differ, the first is {wrong[0]!r}",
            "give the weights of just this architecture, with as many classes",
        )
    network.load_state_dict(given)


def sha256_of(path: Path) -> str:
    """Of a file's content, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_pickle(path: Path) -> bool:
    """By the first 8 bytes. A safetensors file begins with its header's length, whose last 4 bytes are 0."""
    with path.open("rb") as file:
        start = file.read(8)
    if start.startswith(_ZIP):
        return True
    return start[:1] == b"\x80" and start[1:2] in b"\2\3\4\5" and (start[2:3] == b"\x95" or any(start[4:]))


def _require(path: Path) -> None:
    if not path.is_file():
        raise UserError(f"{path} does not exist", _PAIR)


def write_json(path: Path, document: object) -> None:
    """Write a JSON file so that a reader finds the old one or the new one, never half of it."""
    write_whole(path, (json.dumps(document, indent=2, allow_nan=False) + "\n").encode())


def write_whole(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Write a file so that a reader finds the old one or the new one, never half of it.

    `durable`: also after the machine has lost its power.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError:
        partial.unlink(missing_ok=True)  # on a full disk it takes room
        raise
