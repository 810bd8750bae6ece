"""Trained networks of a library as the beginning of a training on other data: all but the last layer is kept."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nas.data.images import Preprocess
from nas.files.tensors import checksum
from nas.networks.description import NetworkDescription
from nas.networks.find import FoundNetwork
from nas.networks.heads import answer_for, named_otherwise
from nas.networks.libraries import network_of_file, published_network, require_task, usual_preprocess
from nas.networks.weights import read_weights
from nas.tasks import TaskData
from search_spaces import TensorSpec
from search_spaces.signature import Size

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StartingNetwork:
    """A library's trained network, made to answer for other data."""

    description: NetworkDescription
    """For the classes of these data."""
    network: "nn.Module"
    """On the CPU, in eval mode, not folded. Its last layer is random unless `whole`."""
    whole: bool
    """True if its weights are for the classes of the data, as far as names are known: all of them are kept."""
    preprocess: Preprocess | None
    """The normalisation that it was trained with; None where nothing tells."""
    weights: str
    """Where the weights are from, for people: `model.safetensors`, `torchvision's IMAGENET1K_V1`."""
    sha256: str
    """Of all tensors that it was trained to."""


def network_to_start_from(found: FoundNetwork, data: TaskData, input: TensorSpec, seed: int = 0) -> StartingNetwork:
    """The network of a library that `found` names, with the weights of its file or those that the library publishes.

    Args:
        data: that it is to be trained on.
        input: of the network: larger or smaller images than it was trained with are allowed where it takes them.
        seed: of the last layer where that has to be new.

    Raises:
        UserError: there is no such network, it is for another task, its weights cannot be had or are another
            network's, or it does not take such an input.
    """
    require_task(found, data)
    if found.weights is None:
        published = published_network(found, data, input, same_classes=False)
        known, trained, label = published.description, published.network, published.weights
        preprocess: Preprocess | None = published.preprocess
    else:
        known, trained = network_of_file(found, read_weights(found.weights), data.output_size, input)
        label = found.weights.name
        preprocess = found.preprocess(known.task) or usual_preprocess(found)
    sha256 = checksum(trained.state_dict())
    description, network = _for_size(known, trained, data.output_size, seed)
    whole, labels = network is trained, found.labels()
    if whole and labels is not None and named_otherwise(labels, description, data.classes):
        whole = answer_for(network, description, labels, data.classes, seed)
    return StartingNetwork(
        description=description,
        network=network,
        whole=whole,
        preprocess=preprocess,
        weights=label,
        sha256=sha256,
    )


def _for_size(
    description: NetworkDescription, trained: "nn.Module", size: Size, seed: int
) -> "tuple[NetworkDescription, nn.Module]":
    """The network with an answer of `size`; the same where it has that. Tensors of another shape are drawn anew."""
    import torch

    if description.signature.output.size == size:
        return description, trained
    other = description.resized(size)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = other.build().eval()
    own = network.state_dict()
    kept = {name: t for name, t in trained.state_dict().items() if own[name].shape == t.shape}
    network.load_state_dict({**own, **kept})
    return other, network
