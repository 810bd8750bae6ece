"""`nas export`'s view of a network that was found: its weights, and what its run was asked."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nas.calls import CONTINUOUS
from nas.data import Preprocess
from nas.data_options import DataSource
from nas.deploy.quantised import FOLDER as QUANTISED
from nas.deploy.quantised import QuantisedInTraining, read_quantised
from nas.deployment import ALONE, Deployment, Extent, common_batch
from nas.errors import UserError
from nas.limits import Limits
from nas.networks.description import NetworkDescription, read_json
from nas.networks.find import FoundNetwork, find_network
from nas.networks.run_networks import TARGET
from nas.networks.trained_on import trained_on
from nas.networks.weights import load_weights
from search_spaces import space_of
from search_spaces.signature import Size

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """The settings of a run: the defaults for exporting a network of it."""

    target: str
    threads: int | None
    calls: str
    """Pattern of calls it was searched for, see `nas.calls`."""
    limit_on: Extent
    """What its latencies are of, see `nas.deployment.Extent`."""
    batch: int
    """Images in a call, as its target's profile was measured."""
    max_drop: float
    limits: Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A network with weights, and what is known of how it was trained."""

    found: FoundNetwork
    path: Path
    """The network's JSON file."""
    weights: Path
    run: RunSettings | None
    data: DataSource | None
    """The data that it was trained on; None where no file tells."""
    preprocess: Preprocess | None
    """The normalisation it was trained with; None where no file tells, then the data's own is used."""
    labels: tuple[str, ...] | None
    in_training: QuantisedInTraining | None
    """The network quantised in training, where that was done from just these weights."""

    def described(self, size: Size) -> NetworkDescription:
        """The network for data that ask for an answer of `size`. Raises `UserError` where it has another one."""
        description, architecture = self.found.description, self.found.architecture
        if description is None:
            assert architecture is not None
            space = space_of(architecture)
            return NetworkDescription.of_architecture(space, architecture, size)
        known = description.signature.output.size
        if known != size:
            raise UserError(
                f"{self.found.text} has {times(known)} outputs, the data has {times(size)} classes",
                "give the data it was trained on with --data",
            )
        return description

    def load(self, description: NetworkDescription) -> "nn.Module":
        """The network with its weights, in eval mode. Raises `UserError` where they do not fit or were changed."""
        network = description.build()
        load_weights(network, self.weights, sha256=self.found.sha256)
        return network.eval()


def times(size: Size) -> str:
    """A size for people: `10`, `3 x 17`."""
    return " x ".join(map(str, size))


def resolve(model: str, checkpoint: Path | None = None) -> Source:
    """Find the network that `model` names.

    Args:
        model: see `nas.networks.find`: a network with weights, or an architecture.
        checkpoint: weights; without, those beside the network's file.

    Raises:
        UserError: there is no such network, or it has no weights.
    """
    forms = "give RUN#1, NAME.network.json, or ARCH.json with --checkpoint"
    found = find_network(model, accept=("network", "architecture"), weights=checkpoint, forms=forms)
    if found.weights is None:
        raise UserError(
            f"'{model}' is an architecture without weights", "give its trained weights: --checkpoint FILE.safetensors"
        )
    assert found.file is not None
    return Source(
        found=found,
        path=found.file,
        weights=found.weights,
        run=_settings(found.run) if found.run is not None else None,
        data=trained_on(found),
        preprocess=found.preprocess(found.task),
        labels=found.labels(),
        in_training=read_quantised(found.file.parent / QUANTISED, found.weights),
    )


def _settings(folder: Path) -> RunSettings | None:
    """The settings of the run in `folder`; None where it does not say."""
    path = folder / "config.json"
    config: Any = read_json(path) if path.is_file() else {}
    if not (isinstance(config, dict) and {"data", "seed", "target", "max_drop", "limits"} <= config.keys()):
        return None
    return RunSettings(
        target=config["target"],
        threads=config.get("threads"),
        calls=config.get("calls", CONTINUOUS),
        limit_on=config.get("limit_on", ALONE),
        batch=_batch(folder),
        max_drop=config["max_drop"],
        limits=Limits.of(**config["limits"]),
    )


def _batch(run: Path) -> int:
    """Images in a call of the run's deployments, by what the search knew of its target; 1 where no file tells."""
    path = run / TARGET
    if not path.is_file():
        return 1
    document: Any = read_json(path)
    try:
        return common_batch(Deployment(**entry["deployment"]) for entry in document["deployments"])
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"'{path}' is not what a search wrote: {error}", "restore it, or search again") from error
