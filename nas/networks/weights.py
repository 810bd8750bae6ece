"""The weights of a network as safetensors files. Nothing is ever unpickled."""

from pathlib import Path
from typing import TYPE_CHECKING

from nas.errors import UserError

if TYPE_CHECKING:
    from torch import nn


def weights_of(network: "nn.Module") -> bytes:
    """All parameters and buffers, as the content of a safetensors file."""
    from safetensors.torch import save

    return save({k: v.detach().cpu().contiguous() for k, v in network.state_dict().items()})


def load_weights(network: "nn.Module", weights: Path) -> None:
    """Give `network` the weights in a safetensors file.

    Raises `UserError` if the file is missing, is something else (a pickle is never opened) or a part of one, was
    changed after it was written, or holds the weights of another network.
    """
    from nas.files.tensors import load_tensors

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
