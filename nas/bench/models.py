"""What a person may name as a network: an ONNX file, a bundle, `RUN#k` or `torchvision:NAME`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from nas.bundles.receipt import RECEIPT
from nas.deploy.onnx import Parity
from nas.errors import UserError
from nas.files.records import read_record
from nas.networks.description import NETWORK, NetworkDescription, weights_path
from nas.networks.run_networks import DEPLOYED, RunNetwork, numbered_network, split_number

TORCHVISION = "torchvision:"
DEFAULT_RESOLUTION = 224
FORMS = "give an ONNX file, a bundle's folder, RUN#k (the k-th network of a run) or torchvision:NAME"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchModel:
    """One network to measure. Exactly one of `onnx`, `network` and `torchvision` says where it comes from."""

    name: str
    """As typed."""
    channels: int = 3
    resolution: tuple[int, int]
    """Rows and columns of the input, in pixels."""
    onnx: Path | None = None
    """A file that nothing but its graph is known of."""
    network: Path | None = None
    """A `.network.json`, from which it is built and exported for any batch."""
    torchvision: str | None = None
    """Name of an architecture, built with random weights."""
    delivered: Mapping[tuple[str, str], Path] = field(default_factory=dict)
    """(runtime, precision) -> a file that was calibrated on training images."""

    @property
    def weights(self) -> str:
        """`random` where nothing was ever trained, so that its outputs mean nothing."""
        return "random" if self.torchvision is not None else "as given"


def rebatched_name(given: Path, batch: int) -> str:
    """What the copy of a network's file for another batch is called."""
    return f"{given.stem}.b{batch}{given.suffix}"


def is_rebatched(path: Path, given: Path) -> bool:
    """Whether the file at `path` is a copy of `given` for some batch."""
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
    if text.startswith(TORCHVISION):
        return _torchvision(text, resolution or DEFAULT_RESOLUTION)
    path = Path(text)
    if path.is_dir():
        return _bundle(text, path, resolution)
    if path.is_file():
        return _onnx_file(text, path, resolution)
    numbered = split_number(text)
    if numbered is None:
        raise UserError(f"no such file or folder: '{text}'", FORMS)
    network = numbered_network(*numbered)
    delivered = (network.folder / RECEIPT).is_file()
    return _bundle(text, network.folder, resolution) if delivered else _undelivered(text, network)


def _torchvision(text: str, resolution: int) -> BenchModel:
    from torchvision import models

    name = text.removeprefix(TORCHVISION)
    known = models.list_models(module=models)
    if name not in known:
        near = get_close_matches(name, known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(TORCHVISION + n for n in near)}?" if near else f"known: {', '.join(known)}"
        raise UserError(f"torchvision has no classification network {name!r}", hint)
    return BenchModel(name=text, resolution=(resolution, resolution), torchvision=name)


def _undelivered(text: str, network: RunNetwork) -> BenchModel:
    """A finalist, with the files that were calibrated for its deployments, if there are any.

    Raises:
        UserError: its weights are gone, or the search found that none of its files may be timed.
    """
    if not weights_path(network.file).is_file():
        raise UserError(
            f"{text} cannot be timed: its weights in '{network.folder}' are gone", "run the search again: it resumes"
        )
    record: dict[str, Any] = read_record(network.folder, DEPLOYED, {}) or {"tried": [], "parity": None}
    tried: list[dict[str, Any]] = record["tried"]
    defect = Parity.from_json(record["parity"]).defect if record["parity"] else ""
    if tried and all(t["file"] is None for t in tried):
        defect = f"no deployment of it works, {_name_of(tried[0])} {tried[0]['reason']}"
    if defect:
        raise UserError(f"{text} cannot be timed: {defect}", f"`nas finetune {text}` can still train it")
    # Of several ways of rounding in one runtime the last: each was tried because those before had lost too much.
    int8 = {
        (t["deployment"]["runtime"], "int8"): network.folder / t["file"]
        for t in tried
        if t["deployment"]["precision"] == "int8" and t["file"] is not None
    }
    size = network.description.resolution
    return BenchModel(name=text, resolution=(size, size), network=network.file, delivered=int8)


def _name_of(tried: Mapping[str, Any]) -> str:
    return f"{tried['deployment']['runtime']}-{tried['deployment']['precision']}"


def _bundle(text: str, folder: Path, resolution: int | None) -> BenchModel:
    """A folder with `receipt.json` and model files, as a search or `nas export` delivers it."""
    receipt = _receipt(folder)
    delivered = _delivered(folder, receipt)
    network = folder / NETWORK
    if network.is_file() and weights_path(network).is_file():
        described = _description(network)
        size = (described.resolution, described.resolution)
        return BenchModel(name=text, resolution=size, network=network, delivered=delivered)
    named = receipt.get("onnx")
    files = [folder / Path(named).name] if isinstance(named, str) else []
    onnx = next((f for f in (*files, folder / "model.onnx") if f.is_file()), None)
    if onnx is None:
        raise UserError(f"'{folder}' holds no model.onnx", "give the folder that a search or `nas export` wrote")
    bare = _onnx_file(text, onnx, resolution)
    return BenchModel(
        name=text, channels=bare.channels, resolution=bare.resolution, onnx=onnx, delivered=delivered
    )  # fmt: skip


def _receipt(folder: Path) -> dict[str, Any]:
    path = folder / RECEIPT
    if not path.is_file():
        hint = "name one of its winners: RUN#1" if (folder / "result.json").is_file() else FORMS
        raise UserError(f"the folder '{folder}' is no bundle: it has no {RECEIPT}", hint)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"'{path}' is not JSON: {error}", "export the network again") from error
    if not isinstance(document, dict):
        raise UserError(f"'{path}' is no receipt", "export the network again")
    return document


def _delivered(folder: Path, receipt: Mapping[str, Any]) -> dict[tuple[str, str], Path]:
    """The quantised file the bundle was made for; its fp32 file is nothing special."""
    runtime, precision, model = (receipt.get(key) for key in ("runtime", "precision", "model"))
    if precision != "int8" or not isinstance(runtime, str) or not isinstance(model, str):
        return {}
    file = folder / Path(model).name
    return {(runtime, "int8"): file} if file.is_file() else {}


def _description(path: Path) -> NetworkDescription:
    try:
        return NetworkDescription.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"'{path}' is not JSON: {error}", "export the network again") from error


def _onnx_file(text: str, path: Path, resolution: int | None) -> BenchModel:
    from nas.bench.onnx_graph import image_input

    if path.suffix != ".onnx":
        raise UserError(f"'{path}' is not an ONNX file", FORMS)
    channels, height, width = image_input(path)
    if (height is None or width is None) and resolution is None:
        raise UserError(f"{path.name} leaves the size of its image open", "say it: --resolution 224")
    size = (height or resolution or 0, width or resolution or 0)
    return BenchModel(name=text, channels=channels, resolution=size, onnx=path)
