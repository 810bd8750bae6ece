"""Networks on disk: what the network is as JSON, its weights as safetensors. Nothing is ever unpickled."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nas.errors import UserError
from nas.files.writing import write_json, write_whole
from nas.networks.derived import OWN_FORM, Derived, Form, Source, source_from_json, source_to_json
from nas.networks.weights import load_weights, weights_of
from nas.tasks import baseline_named, task_of_baseline
from search_spaces import Architecture, SearchSpace, Signature, TensorSpec, space_of
from search_spaces.signature import Size

if TYPE_CHECKING:
    from torch import nn


NETWORK = "model.network.json"
"""The description of a folder's network; its weights lie beside it, see `weights_path`."""
_PAIR = "a network is a pair of files: NAME.network.json, NAME.safetensors"


@dataclass(frozen=True, slots=True)
class NetworkDescription:
    """Enough to rebuild a network without its weights."""

    source: Source
    """An architecture of a space, a name in the `baselines` of a task, or a network made of another one's units."""
    signature: Signature
    """Input and output of the network."""

    @classmethod
    def of_architecture(cls, space: SearchSpace, arch: Architecture, size: Size) -> "NetworkDescription":
        """The network of `arch`, whose answer has `size`."""
        return cls(arch, space.signature(arch, size))

    @classmethod
    def of_baseline(cls, name: str, size: Size, input: TensorSpec) -> "NetworkDescription":
        """The well-known network `name` for that input, whose answer has `size`."""
        return cls(name, baseline_named(name).signature(size, input))

    def resized(self, size: Size) -> "NetworkDescription":
        """The same network with an answer of another size."""
        if isinstance(self.source, Derived):
            return self.origin.resized(size).derived(self.source.options, self.source.form)
        if isinstance(self.source, Architecture):
            return self.of_architecture(space_of(self.source), self.source, size)
        return self.of_baseline(self.source, size, self.signature.input)

    def derived(self, options: Sequence[str], form: Form = OWN_FORM) -> "NetworkDescription":
        """This network in another form and with its units replaced as `options` say, which gives what it does."""
        signature = replace(self.signature, input=form.input(self.signature.input))
        return replace(self, source=Derived(self.source, tuple(options), form), signature=signature)

    @property
    def origin(self) -> "NetworkDescription":
        """The network whose units this one is made of; itself where it is of no other.

        Where this one takes smaller images, so does an origin that takes images of any size.
        """
        if not isinstance(self.source, Derived):
            return self
        origin = replace(self, source=self.source.origin)
        return origin if self.source.form.resolution is None else origin.resized(self.signature.output.size)

    def to_json(self) -> dict[str, object]:
        return {"signature": self.signature.to_json(), **source_to_json(self.source)}

    @classmethod
    def from_json(cls, document: object) -> "NetworkDescription":
        """Raises `UserError` if the document does not describe a network."""
        if not isinstance(document, dict):
            raise UserError("this is not a network description", "it needs 'architecture', 'zoo' or 'derived'")
        source, signature = source_from_json(document), Signature.from_json(document.get("signature"))
        described = cls(source, signature)
        try:
            fits = described.resized(signature.output.size) == described
        except ValueError:  # no such network exists
            fits = False
        if not fits:
            raise UserError(
                "this network does not take or give what its description says", "it was changed: export it again"
            )
        return described

    def build(self) -> "nn.Module":
        """A fresh, trainable network with random weights."""
        if isinstance(self.source, Derived):
            from nas.networks.derive import derive

            return derive(self.origin.build(), self.signature.input, self.source.options, self.source.form.width)
        if isinstance(self.source, Architecture):
            return space_of(self.source).build(self.source, self.signature.output.size)
        return baseline_named(self.source).build(self.signature)

    @property
    def task(self) -> str:
        """Reference of the task it is for, see `nas.tasks.task_named`."""
        if isinstance(self.source, Derived):
            return self.origin.task
        if isinstance(self.source, Architecture):
            return space_of(self.source).task
        return task_of_baseline(self.source)


def weights_path(network_json: Path) -> Path:
    """Path of the weights of `NAME.network.json`: `NAME.safetensors` beside it."""
    return network_json.with_name(network_json.name.removesuffix(".network.json") + ".safetensors")


def save_network(network: "nn.Module", description: NetworkDescription, path: Path) -> None:
    """Write `NAME.network.json` (at `path`) and `NAME.safetensors`; each appears whole or not at all."""
    write_whole(weights_path(path), weights_of(network))
    write_json(path, description.to_json())


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
    """The description in `NAME.network.json`. Raises `UserError` if it is missing or no such file."""
    return NetworkDescription.from_json(read_json(path))


def read_json(path: Path) -> object:
    """The document in a file of a network. Raises `UserError` if it is missing or no JSON."""
    _require(path)
    try:
        document: object = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path} is not JSON: {error}", "export the network again") from error
    return document


def _require(path: Path) -> None:
    if not path.is_file():
        raise UserError(f"{path} does not exist", _PAIR)
