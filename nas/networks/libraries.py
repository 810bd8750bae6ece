"""Trained networks of torchvision and timm: with the weights of a file, or with those that the library publishes."""

from dataclasses import dataclass
from difflib import SequenceMatcher
from pickle import UnpicklingError
from typing import TYPE_CHECKING

from nas.data.images import Preprocess
from nas.errors import UnknownNameError, UserError
from nas.networks.description import NetworkDescription
from nas.networks.find import PREFIXES, FoundNetwork, find_network
from nas.networks.published import LIBRARIES, Tensors
from nas.networks.weights import Misfit
from nas.tasks import TASKS, TaskData, task_of_baseline
from search_spaces import TensorSpec
from search_spaces.signature import Size

if TYPE_CHECKING:
    from torch import nn

_TRIED = 24
"""So many networks of nearly that name are compared with weights that do not fit."""
_REFUSALS = (RuntimeError, ValueError, AssertionError, LookupError, TypeError)
"""What networks refuse an input with."""
_UNREACHABLE = (OSError, EOFError, RuntimeError, ValueError, UnpicklingError)
"""What downloads fail with: no internet, another content than was published."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublishedNetwork:
    """A library's network with the weights that the library publishes."""

    description: NetworkDescription
    network: "nn.Module"
    """On the CPU, in eval mode."""
    preprocess: Preprocess
    """The normalisation that it was trained with."""
    weights: str
    """Name of the weights for people: `torchvision's IMAGENET1K_V1`."""


def baseline_names(found: FoundNetwork) -> tuple[str, ...]:
    """Names of a library's network in the `baselines` of tasks: in the table, where it is there, and as published.

    Raises:
        UserError: the library has no such network (`UnknownNameError`), or is not installed.
    """
    full = _full_name(found)
    names = (str(found.published), full) if found.kind == "torchvision" else (full,)
    known = tuple(name for name in names if any(name in task.baselines for task in TASKS.values()))
    if not known:
        raise UnknownNameError("network", full, [PREFIXES[found.kind] + name for name in LIBRARIES[found.kind].names()])
    return known


def network_of_file(
    found: FoundNetwork, given: Tensors, size: Size, input: TensorSpec
) -> "tuple[NetworkDescription, nn.Module]":
    """The variant of a library's network that the tensors of its file fit, with these, in eval mode on the CPU.

    Args:
        size: hoped for of the answer. With weights for another number of classes it is that of the weights.
        input: of the network.

    Raises:
        UserError: there is no such network, the tensors fit none of its variants, or it does not take that input.
    """
    tensors, misfits = LIBRARIES[found.kind].today(str(found.published), given), []
    for name in baseline_names(found):
        description = NetworkDescription.of_baseline(name, size, input)
        network = description.build()
        misfit = Misfit.of(network.state_dict(), tensors)
        classes = _other_classes(size, network.state_dict(), tensors, misfit)
        if classes is not None:
            description = description.resized((classes,))
            network = description.build()
            misfit = Misfit.of(network.state_dict(), tensors)
        if not misfit:
            network.load_state_dict({**network.state_dict(), **tensors})
            _check_answer(found, description, network.eval())
            return description, network
        misfits.append(misfit)
    near = _nearest(found, given, size, input)
    raise UserError(
        f"'{found.weights}' does not fit {_full_name(found)}: {min(misfits, key=len)}",
        f"it fits {near}: give {near}:{found.weights}" if near else "give the weights of just this architecture",
    )


def require_task(found: FoundNetwork, data: TaskData, role: str = "network") -> None:
    """Raises `UserError` where a network is for another task than `data`."""
    task = found.task if found.published is None else task_of_baseline(baseline_names(found)[0])
    if task != data.task:
        raise UserError(
            f"the {role} {found.text!r} is for {task}, the data are for {data.task}",
            f"give a {role} that was trained on these data",
        )


def published_network(
    found: FoundNetwork, data: TaskData, input: TensorSpec, *, same_classes: bool = True
) -> PublishedNetwork:
    """A library's network as the library publishes it, with weights from its cache or the internet.

    Without `same_classes` it may be for another number of classes than `data` have: for its own.

    Raises:
        UserError: there is no such network, it is for another task or other classes than `data` have, the library has
            no weights of it, or they cannot be had.
    """
    from safetensors import SafetensorError

    name = baseline_names(found)[-1]
    require_task(found, data)
    weights = LIBRARIES[found.kind].weights(str(found.published))
    if weights is None:
        raise UserError(
            f"{found.text!r} names no weights, and none are published", f"write {_full_name(found)}:FILE.safetensors"
        )
    asked = NetworkDescription.of_baseline(name, data.output_size, input)
    description = _for_classes(found, weights.classes, asked, same_classes)
    try:
        tensors = weights.load()
    except (*_UNREACHABLE, SafetensorError) as error:
        raise _unreachable(found, weights.place, error) from error
    network = description.build()
    misfit = Misfit.of(network.state_dict(), tensors)
    if misfit:
        raise UserError(
            f"the published weights of {found.text!r} do not fit it: {misfit}", "install another version of the library"
        )
    network.load_state_dict({**network.state_dict(), **tensors})
    _check_answer(found, description, network.eval())
    return PublishedNetwork(
        description=description, network=network, preprocess=weights.preprocess, weights=weights.label
    )


def usual_preprocess(found: FoundNetwork) -> Preprocess | None:
    """The normalisation that the library trains the network with; None where it does not say."""
    return LIBRARIES[found.kind].usual_preprocess(str(found.published))


def cached_networks(task: str) -> list[str]:
    """References of the libraries' networks for `task` whose published weights lie in a cache on this machine, as
    `nas.networks.find.find_network` takes them; those of the smallest files first."""
    sizes = {PREFIXES[kind] + name: size for kind, lib in LIBRARIES.items() for name, size in lib.cached().items()}
    fitting = [text for text in sizes if task_of_baseline(baseline_names(find_network(text))[0]) == task]
    return sorted(fitting, key=lambda text: (sizes[text], text))


def _for_classes(
    found: FoundNetwork, known: int, description: NetworkDescription, same_classes: bool
) -> NetworkDescription:
    """The network for the `known` classes. Raises `UserError` where these have to be as many as the data's."""
    asked = description.signature.output.size
    if asked != (known,) and same_classes:
        have = " x ".join(map(str, asked))
        raise UserError(
            f"the published weights of {found.text!r} know {known} classes, the data have {have}",
            f"fine-tune it on the data first: nas finetune {found.text} --data DATA; or give the weights of such a "
            f"network: {_full_name(found)}:FILE.safetensors",
        )
    return description.resized((known,))


def _unreachable(found: FoundNetwork, tried: str, error: Exception) -> UserError:
    reason = str(error).partition("\n")[0] or type(error).__name__
    return UserError(
        f"cannot get the published weights of {found.text!r} from {tried}: {reason}",
        f"give a file that is here: {_full_name(found)}:FILE.safetensors",
    )


def _check_answer(found: FoundNetwork, description: NetworkDescription, network: "nn.Module") -> None:
    """Raises `UserError` where the network does not answer one input as its description says."""
    import torch

    input, output = description.signature.input, description.signature.output
    try:
        with torch.inference_mode():
            answer = network(torch.from_numpy(input.zeros(1)))
    except _REFUSALS as error:
        raise UserError(
            f"the network {found.text!r} takes no input of {' x '.join(map(str, input.shape))}: {error}",
            "give the size of images that it was trained with, or another network",
        ) from error
    if not isinstance(answer, torch.Tensor) or tuple(answer.shape) != (1, *output.shape):
        raise UserError(f"the network {found.text!r} does not give one number per class", "give another network")


def _other_classes(size: Size, own: Tensors, given: Tensors, misfit: Misfit) -> int | None:
    """Number of classes of the given tensors, where nothing but that number differs from the network's `own`."""
    if len(size) != 1 or misfit.missing or misfit.unexpected:
        return None
    shapes = [(own[name].shape, given[name].shape) for name in misfit.reshaped]
    counts = {new[0] if new and old == (*size, *new[1:]) else None for old, new in shapes}
    return counts.pop() if len(counts) == 1 else None


def _nearest(found: FoundNetwork, given: Tensors, size: Size, input: TensorSpec) -> str | None:
    """A network of the same library, of nearly that name, that the tensors fit; the number of classes may differ."""
    import torch

    own = str(found.published)
    alike = [name for name in LIBRARIES[found.kind].names() if name[:3] == own[:3] and name != own]
    alike.sort(key=lambda name: SequenceMatcher(None, own, name).ratio(), reverse=True)
    for name in alike[:_TRIED]:
        full, tensors = PREFIXES[found.kind] + name, LIBRARIES[found.kind].today(name, given)
        try:
            with torch.device("meta"):
                shapes = NetworkDescription.of_baseline(full, size, input).build().state_dict()
        except (NotImplementedError, *_REFUSALS):  # it computes with values while it is built
            continue
        misfit = Misfit.of(shapes, tensors)
        if not misfit or _other_classes(size, shapes, tensors, misfit) is not None:
            return full
    return None


def _full_name(found: FoundNetwork) -> str:
    return f"{PREFIXES[found.kind]}{found.published}"
