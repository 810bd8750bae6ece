"""Networks that somebody brings trained: found by name, checked against the data, and given their weights."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nas.data.images import Preprocess
from nas.errors import UserError
from nas.files.writing import sha256_of
from nas.networks.description import NetworkDescription
from nas.networks.find import TRAINED_KINDS, FoundNetwork, find_network
from nas.networks.libraries import network_of_file, published_network, require_task
from nas.networks.weights import load_weights, read_weights
from nas.tasks import TaskData
from search_spaces import TensorSpec

if TYPE_CHECKING:
    from torch import nn

FORMS = (
    "give RUN#1, a bundle's folder, NAME.network.json, torchvision:NAME:FILE, timm:NAME:FILE or "
    "package.module:FUNCTION:FILE"
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reference:
    """A trained network that somebody brought."""

    text: str
    """As typed."""
    description: NetworkDescription
    """Rebuilds it without weights."""
    network: "nn.Module"
    """On the CPU, in eval mode, with its weights, not folded."""
    sha256: str
    """Of the file with its weights; of all tensors where the weights are those that a library publishes."""
    preprocess: Preprocess | None
    """The normalisation that it was trained with; None where nothing tells."""
    weights: str
    """Where the weights are from, for people: `model.safetensors`, `torchvision's IMAGENET1K_V1`."""


def load_reference(text: str, data: TaskData, input: TensorSpec) -> Reference:
    """The trained network that `text` names, for the task and the classes of `data`.

    Args:
        text: `RUN#k`, a bundle's folder, `NAME.network.json`, `torchvision:NAME` or `timm:NAME` with the weights that
            the library publishes, or either with a file: `timm:NAME:FILE.safetensors`; or a function that builds it,
            with a file: `package.module:FUNCTION:FILE`. A `.pth` file will do.
        data: what it shall be good for. `labels.json` near the weights has to list their classes in their order.
        input: of a library's network, of which nothing else tells it; others bring their own.

    Raises:
        UserError: there is none of that name; it is for another task, for other classes, or takes no such input; its
            weights are missing, damaged, changed, or another network's; a file could run code.
    """
    found = find_network(text, accept=TRAINED_KINDS, forms=FORMS)
    if found.weights is None:
        return _published(found, data, input)
    description, network = trained_network(found, data, input, pickled=True)
    return Reference(
        text=text,
        description=description,
        network=network,
        sha256=sha256_of(found.weights),
        preprocess=found.preprocess(description.task),
        weights=found.weights.name,
    )


def trained_network(
    found: FoundNetwork, data: TaskData, input: TensorSpec, *, role: str = "network", pickled: bool = False
) -> "tuple[NetworkDescription, nn.Module]":
    """A network that has a file of weights, with these, in eval mode on the CPU, and what rebuilds it.

    Args:
        data: their task and classes have to be the network's.
        input: of a library's network; others bring their own.
        role: what it is to serve as, for messages.
        pickled: whether a library's network may have its weights from a `.pth` file, see `read_weights`.

    Raises:
        UserError: as `load_reference`.
    """
    from nas.files.tensors import load_tensors

    assert found.weights is not None
    who, hint = f"the {role} {found.text!r}", f"give a {role} that was trained on these data"
    require_task(found, data, role)
    network: nn.Module | None = None
    if found.description is not None:
        description = found.description
    else:
        tensors = read_weights(found.weights) if pickled else load_tensors(found.weights)[0]
        description, network = network_of_file(found, tensors, data.output_size, input)
    size = description.signature.output.size
    if size != data.output_size:
        known, asked = (" x ".join(map(str, s)) for s in (size, data.output_size))
        raise UserError(f"{who} knows {known} classes, the data have {asked}", hint)
    if found.labels() not in (None, tuple(data.classes)):
        raise UserError(f"{who} knows other classes than {data.name!r} has, or in another order", hint)
    if network is None:
        network = description.build()
        load_weights(network, found.weights, sha256=found.sha256)
    return description, network.eval()


def _published(found: FoundNetwork, data: TaskData, input: TensorSpec) -> Reference:
    from nas.files.tensors import checksum

    published = published_network(found, data, input)
    return Reference(
        text=found.text,
        description=published.description,
        network=published.network,
        sha256=checksum(published.network.state_dict()),
        preprocess=published.preprocess,
        weights=published.weights,
    )
