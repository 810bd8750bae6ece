"""The last layer of a trained network for classes of other names: which of its rows may be kept, and in what order."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nas.networks.description import NetworkDescription

if TYPE_CHECKING:
    from torch import nn


def named_otherwise(known: Sequence[str] | None, description: NetworkDescription, classes: Sequence[str]) -> bool:
    """True if a network is for as many `classes` as it was trained for, of other names or in another order.

    False where its names are not `known`, and for answers that are of something else than classes.
    """
    size = description.signature.output.size
    if known is None or len(size) != 1 or not size[0] == len(known) == len(classes):
        return False
    return tuple(known) != tuple(classes)


def same_names(known: Sequence[str], classes: Sequence[str]) -> bool:
    """True if both are of the same classes, in whatever order."""
    return len(set(known)) == len(known) and set(known) == set(classes)


def answer_for(
    network: "nn.Module", description: NetworkDescription, known: Sequence[str], classes: Sequence[str], seed: int
) -> bool:
    """Make a network that was trained for the classes `known` answer for as many others.

    Rows of its last layer are put in the order of `classes` where these are the same; else the layer is drawn anew.

    Args:
        network: is changed.
        description: of the network.
        seed: of the new layer.

    Returns:
        Whether all weights were kept.
    """
    import torch

    (count,) = description.signature.output.size
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        fresh = description.build().state_dict()
        wider = description.resized((count + 1,)).build().state_dict()
    # What grows with the classes is the last layer: a layer before it may happen to have as many rows.
    last = {name: tensor for name, tensor in fresh.items() if wider[name].shape != tensor.shape}
    a_row_each = bool(last) and all(
        tensor.shape[0] == count and wider[name].shape == (count + 1, *tensor.shape[1:])
        for name, tensor in last.items()
    )
    own, kept = network.state_dict(), a_row_each and same_names(known, classes)
    if kept:
        order = [list(known).index(name) for name in classes]
        last = {name: own[name][order] for name in last}
    network.load_state_dict({**own, **last})
    return kept
