"""Networks on disk: what the network is as JSON, its weights as safetensors. Nothing is ever unpickled."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nas.errors import UnknownNameError, UserError
from search_spaces import Architecture, load_search_space

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True)
class NetworkDescription:
    """Enough to rebuild a network without its weights: an architecture of a space, or a network of the zoo."""

    source: Architecture | str
    """An `Architecture`, or a name in `nas.zoo.ZOO`."""
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
        from nas.zoo import ZOO

        if self.source not in ZOO:
            raise UnknownNameError("network", self.source, ZOO)
        return ZOO[self.source].build(self.num_classes, self.resolution)


def weights_path(network_json: Path) -> Path:
    """Where the weights of `NAME.network.json` lie: `NAME.safetensors` beside it."""
    return network_json.with_name(network_json.name.removesuffix(".network.json") + ".safetensors")


def save_network(network: "nn.Module", description: NetworkDescription, path: Path) -> None:
    """Write `NAME.network.json` (at `path`) and `NAME.safetensors`; each appears whole or not at all."""
    from safetensors.torch import save_file

    weights = weights_path(path)
    partial = weights.with_name(weights.name + ".partial")
    save_file({k: v.detach().cpu().contiguous() for k, v in network.state_dict().items()}, str(partial))
    os.replace(partial, weights)
    write_json(path, description.to_json())


def load_network(path: Path, *, fold: bool = True) -> "nn.Module":
    """The network of `NAME.network.json` in eval mode, folded for deployment unless told otherwise.

    Raises `UserError` if a file is missing, is no safetensors file, or belongs to another architecture.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from search_spaces.modules import folded

    weights = weights_path(path)
    for needed in (path, weights):
        if not needed.is_file():
            raise UserError(
                f"{needed} does not exist", "a network is a pair of files: NAME.network.json, NAME.safetensors"
            )
    try:
        description = NetworkDescription.from_json(json.loads(path.read_text()))
    except json.JSONDecodeError as error:
        raise UserError(f"{path} is not JSON: {error}", "export the network again") from error
    network = description.build()
    try:
        network.load_state_dict(load_file(str(weights)))
    except SafetensorError as error:
        raise UserError(f"{weights} is not a whole safetensors file: {error}", "export the network again") from error
    except RuntimeError as error:
        raise UserError(f"{weights} holds the weights of another network", f"it must match {path.name}") from error
    return folded(network) if fold else network.eval()


def write_json(path: Path, document: object) -> None:
    """Write a JSON file so that a reader finds the old one or the new one, never half of it."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n")
    os.replace(partial, path)
