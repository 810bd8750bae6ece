"""Trained networks of torchvision and timm: with the weights of a file, or with those that the library publishes."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

from nas.data.images import Preprocess
from nas.errors import UnknownNameError, UserError
from nas.networks.description import NetworkDescription
from nas.networks.find import PREFIXES, FoundNetwork
from nas.networks.weights import Misfit
from nas.tasks import TASKS, TaskData, task_of_baseline
from search_spaces import TensorSpec
from search_spaces.signature import Size

if TYPE_CHECKING:
    import torch
    from torch import nn

_Tensors = Mapping[str, "torch.Tensor"]

_AUXILIARY: Mapping[str, tuple[str, ...]] = {"googlenet": ("aux1.", "aux2."), "inception_v3": ("AuxLogits.",)}
"""Beginnings of the names of tensors for answers that are given in training alone."""
_HALVES = Preprocess((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
"""What the networks of `_AUXILIARY` were published for: torchvision undoes ImageNet's normalisation inside them."""
_OLD_DENSENET = re.compile(r"(denselayer\d+\.(?:norm|conv))\.([12]\.)")
"""Names of DenseNet's tensors in the files that torchvision publishes: `norm.1` is `norm1` of today."""
_TRIED = 24
"""So many networks of nearly that name are compared with weights that do not fit."""
_REFUSALS = (RuntimeError, ValueError, AssertionError, LookupError, TypeError)
"""What networks refuse an input with."""
_UNREACHABLE = (OSError, RuntimeError, ValueError, UnpicklingError)
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
        raise UnknownNameError("network", full, [PREFIXES[found.kind] + name for name in _library_names(found)])
    return known


def network_of_file(
    found: FoundNetwork, given: _Tensors, size: Size, input: TensorSpec
) -> "tuple[NetworkDescription, nn.Module]":
    """The variant of a library's network that the tensors of its file fit, with these, in eval mode on the CPU.

    Args:
        size: hoped for of the answer. With weights for another number of classes it is that of the weights.
        input: of the network.

    Raises:
        UserError: there is no such network, the tensors fit none of its variants, or it does not take that input.
    """
    tensors, misfits = _renamed(str(found.published), given), []
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
    name = baseline_names(found)[-1]
    if found.kind == "python":
        raise UserError(f"{found.text!r} names no weights", f"write {found.text}:FILE.safetensors")
    require_task(found, data)
    description = NetworkDescription.of_baseline(name, data.output_size, input)
    load = _load_from_torchvision if found.kind == "torchvision" else _load_from_timm
    published = load(found, description, same_classes)
    _check_answer(found, published.description, published.network.eval())
    return published


def usual_preprocess(found: FoundNetwork) -> Preprocess | None:
    """The normalisation that the library trains the network with; None where it does not say."""
    name = str(found.published)
    if found.kind == "torchvision":
        from torchvision import models

        if name not in models.list_models(module=models):
            return None  # of the table of a task, as resnet10
        return _normalisation_of_torchvision(name, models.get_model_weights(name).DEFAULT)
    if found.kind == "python":
        return None
    import timm

    facts = timm.get_pretrained_cfg(name)
    return None if facts is None else Preprocess(_three(facts.mean), _three(facts.std))


def _normalisation_of_torchvision(name: str, weights: Any) -> Preprocess:
    how = weights.transforms()
    return _HALVES if name in _AUXILIARY else Preprocess(_three(how.mean), _three(how.std))


def _load_from_torchvision(
    found: FoundNetwork, description: NetworkDescription, same_classes: bool
) -> PublishedNetwork:
    import torch
    from torchvision.models import get_model_weights

    name = str(found.published)
    weights = get_model_weights(name).DEFAULT
    description = _for_classes(found, len(weights.meta["categories"]), description, same_classes)
    try:
        downloaded = torch.hub.load_state_dict_from_url(
            weights.url, map_location="cpu", progress=False, check_hash=True, weights_only=True
        )
    except _UNREACHABLE as error:
        cached = Path(torch.hub.get_dir()) / "checkpoints" / Path(weights.url).name
        raise _unreachable(found, f"{weights.url}, kept as {cached}", error) from error
    network = description.build()
    network.load_state_dict({**network.state_dict(), **_renamed(name, downloaded)})
    return PublishedNetwork(
        description=description,
        network=network,
        preprocess=_normalisation_of_torchvision(name, weights),
        weights=f"torchvision's {weights.name}",
    )


def _load_from_timm(found: FoundNetwork, description: NetworkDescription, same_classes: bool) -> PublishedNetwork:
    import timm

    name = str(found.published)
    facts = timm.get_pretrained_cfg(name)
    if facts is None or not facts.has_weights:
        raise UserError(f"timm publishes no weights of {name}", f"give your own: {_full_name(found)}:FILE.safetensors")
    description = _for_classes(found, facts.num_classes, description, same_classes)
    try:
        trained = timm.create_model(name, pretrained=True, num_classes=facts.num_classes)
    except _UNREACHABLE as error:
        raise _unreachable(found, str(facts.hf_hub_id or facts.url), error) from error
    network = description.build()
    network.load_state_dict(trained.state_dict())
    return PublishedNetwork(
        description=description,
        network=network,
        preprocess=Preprocess(_three(facts.mean), _three(facts.std)),
        weights=f"timm's {facts.architecture}.{facts.tag}",
    )


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


def _other_classes(size: Size, own: _Tensors, given: _Tensors, misfit: Misfit) -> int | None:
    """Number of classes of the given tensors, where nothing but that number differs from the network's `own`."""
    if len(size) != 1 or misfit.missing or misfit.unexpected:
        return None
    shapes = [(own[name].shape, given[name].shape) for name in misfit.reshaped]
    counts = {new[0] if new and old == (*size, *new[1:]) else None for old, new in shapes}
    return counts.pop() if len(counts) == 1 else None


def _nearest(found: FoundNetwork, given: _Tensors, size: Size, input: TensorSpec) -> str | None:
    """A network of the same library, of nearly that name, that the tensors fit; the number of classes may differ."""
    import torch

    own = str(found.published)
    alike = [name for name in _library_names(found) if name[:3] == own[:3] and name != own]
    alike.sort(key=lambda name: SequenceMatcher(None, own, name).ratio(), reverse=True)
    for name in alike[:_TRIED]:
        full, tensors = PREFIXES[found.kind] + name, _renamed(name, given)
        try:
            with torch.device("meta"):
                shapes = NetworkDescription.of_baseline(full, size, input).build().state_dict()
        except (NotImplementedError, *_REFUSALS):  # it computes with values while it is built
            continue
        misfit = Misfit.of(shapes, tensors)
        if not misfit or _other_classes(size, shapes, tensors, misfit) is not None:
            return full
    return None


def _renamed(name: str, tensors: _Tensors) -> _Tensors:
    """The tensors as the network `name` calls them today, without those that serve its training alone."""
    unused = _AUXILIARY.get(name, ())
    kept = {key: tensor for key, tensor in tensors.items() if not key.startswith(unused)}
    return {_OLD_DENSENET.sub(r"\1\2", key): tensor for key, tensor in kept.items()}


def _library_names(found: FoundNetwork) -> list[str]:
    """All classification networks of the library; none of somebody's own functions."""
    if found.kind == "python":
        return []
    if found.kind == "torchvision":
        from torchvision import models

        return list(models.list_models(module=models))
    import timm

    return list(timm.list_models())


def _full_name(found: FoundNetwork) -> str:
    return f"{PREFIXES[found.kind]}{found.published}"


def _three(values: Sequence[float]) -> tuple[float, float, float]:
    red, green, blue = values
    return red, green, blue
