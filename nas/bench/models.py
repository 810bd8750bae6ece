"""The networks that `nas bench` measures: an ONNX file, a bundle, a network of ours, `RUN#k` or `torchvision:NAME`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from nas.data.images import image_input
from nas.deploy.onnx import Parity
from nas.deployment import DYNAMIC_INT8
from nas.errors import UserError
from nas.files.records import read_record
from nas.networks.description import weights_path
from nas.networks.find import FoundNetwork, find_network
from nas.networks.run_networks import DEPLOYED
from nas.tasks.baseline import TORCHVISION
from search_spaces import TensorSpec

DEFAULT_RESOLUTION = 224
INTEGERS = ("int8", DYNAMIC_INT8)
"""Precisions whose file is kept, where there is one, rather than made again."""
FORMS = "give an ONNX file, a bundle's folder, RUN#k, NAME.network.json or torchvision:NAME"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchModel:
    """One network to measure. Exactly one of `onnx`, `network` and `torchvision` says where it comes from."""

    name: str
    """The network as the user typed it."""
    input: TensorSpec
    onnx: Path | None = None
    """A file that nothing but its graph is known of."""
    network: Path | None = None
    """A `.network.json`, from which it is built and exported for any batch."""
    torchvision: str | None = None
    """Name of an architecture, built with random weights."""
    delivered: Mapping[tuple[str, str], Path] = field(default_factory=dict)
    """(runtime, precision of `INTEGERS`) -> the file that was made of the trained network."""
    integers: str | None = None
    """The one of `INTEGERS` that the file `onnx` is in already: it is timed in this precision, as it is, and in no
    other."""

    @property
    def weights(self) -> str:
        """`random` where nothing was ever trained, so that its outputs mean nothing."""
        return "random" if self.torchvision is not None else "as given"


def on_tokens(models: Sequence[BenchModel]) -> bool:
    """True if all networks read token ids: those are tried in `nas.deployment.DYNAMIC_INT8` too."""
    return all(model.input.dtype == "int64" for model in models)


def rebatched_name(given: Path, batch: int) -> str:
    """Name of the copy of a network's file for another batch."""
    return f"{given.stem}.b{batch}{given.suffix}"


def is_rebatched(path: Path, given: Path) -> bool:
    """True if the file at `path` is a copy of `given` for some batch."""
    return path.name.startswith(f"{given.stem}.b")


def read_models(texts: Sequence[str], resolution: int | None) -> list[BenchModel]:
    """The networks of a command line, all checked before anything is measured.

    Args:
        texts: as typed.
        resolution: input height = width for what leaves it open; torchvision's default is 224.

    Raises:
        UserError: a missing file, no ONNX file, an open image size without `resolution`, an unknown name, or a
            network given twice.
    """
    repeated = next((text for i, text in enumerate(texts) if text in texts[:i]), None)
    if repeated is not None:
        raise UserError(f"{repeated!r} is given twice", "name each network once")
    return [read_model(text, resolution) for text in texts]


def read_model(text: str, resolution: int | None) -> BenchModel:
    """One network; see `read_models`."""
    found = find_network(text, accept=("network", "onnx", "torchvision"), forms=FORMS)
    if found.published is not None:
        return _torchvision(found, found.published, resolution or DEFAULT_RESOLUTION)
    if found.description is None:
        return _graph(found, resolution)
    assert found.file is not None
    if not weights_path(found.file).is_file():
        if found.onnx is not None:
            return _graph(found, resolution)
        raise UserError(
            f"{text} cannot be timed: its weights in '{found.folder}' are gone",
            "search or train again: both resume",
        )
    spec = found.description.signature.input
    delivered = _delivered(found) if found.receipt else _deployed(found)
    return BenchModel(name=text, input=spec, network=found.file, delivered=delivered)


def _torchvision(found: FoundNetwork, name: str, resolution: int) -> BenchModel:
    from torchvision import models

    known = models.list_models(module=models)
    if name not in known:
        near = get_close_matches(name, known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(TORCHVISION + n for n in near)}?" if near else f"known: {', '.join(known)}"
        raise UserError(f"torchvision has no classification network {name!r}", hint)
    if found.weights is not None:
        raise UserError(f"{found.text} names weights, and is timed with random ones", f"give {TORCHVISION}{name}")
    return BenchModel(name=found.text, input=image_input(resolution), torchvision=name)


def _deployed(found: FoundNetwork) -> dict[tuple[str, str], Path]:
    """The files of a run's finalist that were calibrated for its deployments, if there are any.

    Raises:
        UserError: the search found that none of its files may be timed.
    """
    text, folder = found.text, found.folder
    record: dict[str, Any] = read_record(folder, DEPLOYED, {}) or {"tried": [], "parity": None}
    tried: list[dict[str, Any]] = record["tried"]
    defect = Parity.from_json(record["parity"]).defect if record["parity"] else ""
    if tried and all(t["file"] is None for t in tried):
        defect = f"no deployment of it works, {_name_of(tried[0])} {tried[0]['reason']}"
    if defect:
        raise UserError(f"{text} cannot be timed: {defect}", f"`nas finetune {text}` can still train it")
    # Of several ways of rounding in one runtime the last: each was tried because those before had lost too much.
    return {
        (t["deployment"]["runtime"], t["deployment"]["precision"]): folder / t["file"]
        for t in tried
        if t["deployment"]["precision"] in INTEGERS and t["file"] is not None
    }


def _name_of(tried: Mapping[str, Any]) -> str:
    return f"{tried['deployment']['runtime']}-{tried['deployment']['precision']}"


def _delivered(found: FoundNetwork) -> dict[tuple[str, str], Path]:
    """The quantised file a bundle was made for; its fp32 file is nothing special."""
    runtime, precision, model = (found.receipt.get(key) for key in ("runtime", "precision", "model"))
    if precision not in INTEGERS or not isinstance(runtime, str) or not isinstance(model, str):
        return {}
    file = found.folder / Path(model).name
    return {(runtime, precision): file} if file.is_file() else {}


def _graph(found: FoundNetwork, resolution: int | None) -> BenchModel:
    """A file of others, or a bundle of which only the graph is left."""
    from nas.bench.onnx_graph import input_of, integers_of

    assert found.onnx is not None
    spec = input_of(found.onnx, resolution)
    return BenchModel(
        name=found.text, input=spec, onnx=found.onnx, delivered=_delivered(found), integers=integers_of(found.onnx)
    )
