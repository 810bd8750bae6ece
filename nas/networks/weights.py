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


def load_weights(
    network: "nn.Module", weights: Path, *, sha256: str | None = None, classes: tuple[int, int] | None = None
) -> bool:
    """Give `network` the weights in a safetensors file.

    Args:
        sha256: of the file, where it is known.
        classes: of the weights and of the network. Where these differ, tensors with a row for each class are left as
            they are in `network`.

    Returns:
        Whether all tensors were taken.

    Raises:
        UserError: the file is missing, is something else (a pickle is never opened) or a part of one, was changed after
            it was written, or holds the weights of another network.
    """
    from nas.files.tensors import load_tensors
    from nas.files.writing import sha256_of

    given, _ = load_tensors(weights)
    if sha256 is not None and sha256_of(weights) != sha256:
        raise UserError(
            f"{weights} was changed after it was written: its checksum is not the one recorded beside it",
            "restore it, or train the network again",
        )
    own = network.state_dict()
    old, new = classes or (0, 0)
    heads = {
        name
        for name in own.keys() & given.keys()
        if old != new
        and (given[name].shape[:1], own[name].shape[:1]) == ((old,), (new,))
        and given[name].shape[1:] == own[name].shape[1:]
    }
    wrong = sorted(own.keys() ^ given.keys())
    wrong += sorted(n for n in own.keys() & given.keys() if n not in heads and own[n].shape != given[n].shape)
    if wrong:
        raise UserError(
            f"{weights} holds the weights of another network: {len(wrong)} tensors differ, the first is {wrong[0]!r}",
            "give the weights of just this architecture, with as many classes",
        )
    network.load_state_dict({**own, **{n: t for n, t in given.items() if n not in heads}})
    return not heads
