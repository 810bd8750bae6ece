"""The libraries whose networks can be named: what each has, and the weights that it publishes."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from nas.data.images import Preprocess
from nas.networks.find import Kind

if TYPE_CHECKING:
    import torch

Tensors = Mapping[str, "torch.Tensor"]

_AUXILIARY: Mapping[str, tuple[str, ...]] = {"googlenet": ("aux1.", "aux2."), "inception_v3": ("AuxLogits.",)}
"""Beginnings of the names of tensors for answers that are given in training alone."""
_HALVES = Preprocess((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
"""What the networks of `_AUXILIARY` were published for: torchvision undoes ImageNet's normalisation inside them."""

_OLD_DENSENET = re.compile(r"(denselayer\d+\.(?:norm|conv))\.([12]\.)")
"""Names of DenseNet's tensors in the files that torchvision publishes: `norm.1` is `norm1` of today."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedWeights:
    """Weights that a library publishes of a network."""

    label: str
    """Name for people: `torchvision's IMAGENET1K_V1`."""
    place: str
    """Where they come from, for people."""
    classes: int
    preprocess: Preprocess
    """The normalisation that they were trained with."""
    load: Callable[[], Tensors]
    """All tensors by name, from the library's cache or the internet; raises whatever the library raises."""


class Library(Protocol):
    """Networks of a package, by the names that the package gives them. Stateless."""

    def names(self) -> list[str]:
        """All classification networks; empty where they cannot be listed."""
        ...

    def usual_preprocess(self, name: str) -> Preprocess | None:
        """The normalisation that the network is trained with; None where the library does not say."""
        ...

    def weights(self, name: str) -> PublishedWeights | None:
        """None where it publishes none of the network that answers with classes."""
        ...

    def today(self, name: str, tensors: Tensors) -> Tensors:
        """The tensors of a file of the network, as it calls them today, without those that serve its training alone."""
        ...

    def cached(self) -> Mapping[str, int]:
        """Bytes of the file of each network's weights that lies in the library's cache on this machine."""
        ...


class Torchvision:
    """torchvision's models; a task's own table may have more of that kind, such as resnet10."""

    def names(self) -> list[str]:
        from torchvision import models

        return list(models.list_models(module=models))

    def usual_preprocess(self, name: str) -> Preprocess | None:
        return self._normalisation(name, _best_weights(name)) if name in self.names() else None

    def weights(self, name: str) -> PublishedWeights | None:
        import torch

        if name not in self.names():
            return None
        best = _best_weights(name)

        def load() -> Tensors:
            tensors: Tensors = torch.hub.load_state_dict_from_url(
                best.url, map_location="cpu", progress=False, check_hash=True, weights_only=True
            )
            return self.today(name, tensors)

        return PublishedWeights(
            label=f"torchvision's {best.name}",
            place=f"{best.url}, kept as {_torchvision_file(best)}",
            classes=len(best.meta["categories"]),
            preprocess=self._normalisation(name, best),
            load=load,
        )

    def today(self, name: str, tensors: Tensors) -> Tensors:
        unused = _AUXILIARY.get(name, ())
        kept = {key: tensor for key, tensor in tensors.items() if not key.startswith(unused)}
        return {_OLD_DENSENET.sub(r"\1\2", key): tensor for key, tensor in kept.items()}

    def cached(self) -> Mapping[str, int]:
        import torch

        if not (Path(torch.hub.get_dir()) / "checkpoints").is_dir():
            return {}
        files = {name: _torchvision_file(_best_weights(name)) for name in self.names()}
        return {name: file.stat().st_size for name, file in files.items() if file.is_file()}

    @staticmethod
    def _normalisation(name: str, weights: Any) -> Preprocess:
        how = weights.transforms()
        return _HALVES if name in _AUXILIARY else Preprocess(_three(how.mean), _three(how.std))


def _best_weights(name: str) -> Any:
    """The weights that torchvision recommends, a member of its enumeration for the network."""
    from torchvision import models

    return models.get_model_weights(name).DEFAULT


def _torchvision_file(weights: Any) -> Path:
    import torch

    return Path(torch.hub.get_dir()) / "checkpoints" / Path(weights.url).name


class Timm:
    """timm's models."""

    def names(self) -> list[str]:
        import timm

        return list(timm.list_models())

    def usual_preprocess(self, name: str) -> Preprocess | None:
        facts = _timm_facts(name)
        return None if facts is None else Preprocess(_three(facts.mean), _three(facts.std))

    def weights(self, name: str) -> PublishedWeights | None:
        facts = _timm_facts(name)
        if facts is None or not facts.has_weights or facts.num_classes < 1:
            return None

        def load() -> Tensors:
            import timm

            tensors: Tensors = timm.create_model(name, pretrained=True, num_classes=facts.num_classes).state_dict()
            return tensors

        return PublishedWeights(
            label=f"timm's {facts.architecture}.{facts.tag}",
            place=str(facts.hf_hub_id or facts.url),
            classes=facts.num_classes,
            preprocess=Preprocess(_three(facts.mean), _three(facts.std)),
            load=load,
        )

    def today(self, name: str, tensors: Tensors) -> Tensors:
        return tensors

    def cached(self) -> Mapping[str, int]:
        from huggingface_hub import constants, try_to_load_from_cache

        found = {}
        for folder in sorted(Path(constants.HF_HUB_CACHE).glob("models--timm--*")):
            repository = folder.name.removeprefix("models--").replace("--", "/")
            name = repository.partition("/")[2].partition(".")[0]
            facts = _timm_facts(name)
            file = try_to_load_from_cache(repository, "model.safetensors")
            answers = facts is not None and facts.hf_hub_id == repository and facts.num_classes >= 1
            if answers and isinstance(file, str):
                found[name] = Path(file).stat().st_size
        return found


def _timm_facts(name: str) -> Any | None:
    """What timm says of the weights that it would load for the plain name."""
    import timm

    return timm.get_pretrained_cfg(name) if timm.is_model(name) else None


class Functions:
    """What functions of installed packages build: nothing is published of it, and nothing can be listed."""

    def names(self) -> list[str]:
        return []

    def usual_preprocess(self, name: str) -> Preprocess | None:
        return None

    def weights(self, name: str) -> PublishedWeights | None:
        return None

    def today(self, name: str, tensors: Tensors) -> Tensors:
        return tensors

    def cached(self) -> Mapping[str, int]:
        return {}


LIBRARIES: Mapping[Kind, Library] = {"torchvision": Torchvision(), "timm": Timm(), "python": Functions()}


def _three(values: Sequence[float]) -> tuple[float, float, float]:
    red, green, blue = values
    return red, green, blue
