"""The weights of a network as safetensors files. No code that a file holds is ever run.

What others saved with `torch.save` is read by `read_weights` alone, where a person names the file, as tensors alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

from nas.errors import UserError

if TYPE_CHECKING:
    import torch
    from torch import nn

PICKLED = (".pth", ".pt")
"""Endings of files of `torch.save`."""
NESTED = ("state_dict", "model", "model_state_dict")
"""Keys under which training scripts save the tensors beside other things."""
_PARALLEL = "module."
"""Begins every name where `DataParallel` was saved."""
_COUNTER = ".num_batches_tracked"
"""End of the names of tensors that old files lack and no answer depends on."""
_AS_SAFETENSORS = "save its tensors: safetensors.torch.save_file(network.state_dict(), 'NAME.safetensors')"


def weights_of(network: "nn.Module") -> bytes:
    """All parameters and buffers, as the content of a safetensors file."""
    from safetensors.torch import save

    # Copies: a layer in two places has one memory, which safetensors refuses to write twice.
    return save({k: v.detach().cpu().contiguous().clone() for k, v in network.state_dict().items()})


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


@dataclass(frozen=True, slots=True)
class Misfit:
    """In which tensors weights differ from what a network has, by name; false where they fit."""

    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    reshaped: tuple[str, ...]
    """Of another shape than the network's."""

    @classmethod
    def of(cls, own: Mapping[str, "torch.Tensor"], given: Mapping[str, "torch.Tensor"]) -> "Misfit":
        """The differences of `given` from the network's `own` tensors, in their order there.

        The counters of batch norms may be missing.
        """
        return cls(
            missing=tuple(name for name in own if name not in given and not name.endswith(_COUNTER)),
            unexpected=tuple(name for name in given if name not in own),
            reshaped=tuple(name for name in own if name in given and own[name].shape != given[name].shape),
        )

    def __len__(self) -> int:
        """Number of tensors."""
        return len(self.missing) + len(self.unexpected) + len(self.reshaped)

    def __str__(self) -> str:
        """How many there are of each kind, and the names of the first three: `2 missing (a, b), 1 unexpected (c)`."""
        kinds = {"missing": self.missing, "unexpected": self.unexpected, "of another shape": self.reshaped}
        return ", ".join(
            f"{len(names)} {kind} ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"
            for kind, names in kinds.items()
            if names
        )


def read_weights(path: Path) -> dict[str, "torch.Tensor"]:
    """The tensors, on the CPU, of a file that somebody names as the weights of a network.

    The file is safetensors, or a `.pth` or `.pt` file of `torch.save` with tensors by name, alone or under a key of
    `NESTED` beside other things. What `DataParallel` puts before all names is left out.

    Raises:
        UserError: the file is missing, damaged, holds anything that could run code, or no tensors by name.
    """
    from nas.files.tensors import is_pickle, load_tensors

    if path.suffix in PICKLED and path.is_file() and is_pickle(path):
        tensors = _unpickled(path)
    else:
        tensors = load_tensors(path)[0]
    if tensors and all(name.startswith(_PARALLEL) for name in tensors):
        return {name.removeprefix(_PARALLEL): tensor for name, tensor in tensors.items()}
    return tensors


def _unpickled(path: Path) -> dict[str, "torch.Tensor"]:
    import torch

    try:
        document: Any = torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        raise UserError(
            f"'{path}' holds more than tensors, which could run any code, and is not loaded", _AS_SAFETENSORS
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, LookupError, AttributeError, TypeError) as error:
        raise UserError(f"'{path}' cannot be read as tensors: it is damaged, or no weights", _AS_SAFETENSORS) from error
    if isinstance(document, Mapping):
        for found in (document, *(document.get(key) for key in NESTED)):
            if isinstance(found, Mapping) and found and all(_is_named_tensor(*entry) for entry in found.items()):
                return dict(found)
    raise UserError(f"'{path}' holds no tensors by name, nor under {', '.join(NESTED)}", _AS_SAFETENSORS)


def _is_named_tensor(name: object, value: object) -> bool:
    import torch

    return isinstance(name, str) and isinstance(value, torch.Tensor)
