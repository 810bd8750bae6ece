"""The network that advice is asked for: what is known of it, and its file for a deployment."""

from dataclasses import dataclass, replace
from pathlib import Path

from nas.advice.graph import PRODUCTS, Graph, read_graph, with_names
from nas.advice.parts import Part, parts_of
from nas.bench.models import DEFAULT_RESOLUTION, BenchModel, read_model
from nas.bench.preparing import ModelFiles
from nas.data.images import image_input
from nas.deploy.onnx import export_onnx
from nas.errors import UserError
from nas.networks.description import NetworkDescription
from nas.networks.find import FoundNetwork, find_network
from nas.networks.libraries import baseline_names
from search_spaces import Architecture, space_of
from search_spaces.signature import Size

FORMS = "give a bundle's folder, an ONNX file, RUN#k, NAME.network.json, ARCH.json, torchvision:NAME or timm:NAME"
CLASSES = 1000
"""Of timm's networks, and of an architecture that nothing tells its data of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One network."""

    model: BenchModel
    """How its files are made."""
    architecture: Architecture | None
    """None for networks that are of no space."""
    size: Size
    """Of its answer, where it has an architecture."""
    own: tuple[str, str] | None
    """Runtime and precision that a bundle was delivered for; None for other networks."""

    @property
    def name(self) -> str:
        return self.model.name

    def modules(self) -> dict[str, str] | None:
        """Path of each block's module -> the family of the block; None where the network is of no space, or its space
        does not name them."""
        if self.architecture is None:
            return None
        space = space_of(self.architecture)
        places = space.slot_places(self.architecture)
        if places is None:
            return None
        slots = space.slots(space.choices([self.architecture]), self.size)
        kinds = [slots.families[kind].name for kind in slots.kind[0]]
        return {module: kind for modules, kind in zip(places, kinds, strict=True) for module in modules}


def read_subject(text: str, resolution: int | None, folder: Path) -> Subject:
    """The network that `text` names.

    Args:
        resolution: height and width of the input of what leaves it open.
        folder: for files that have to be made; it exists.

    Raises:
        UserError: no such network, or one that cannot be exported.
    """
    found = find_network(text, forms=FORMS)
    if found.kind == "timm":
        return _plain(_timm(found, resolution or DEFAULT_RESOLUTION, folder))
    if found.architecture is not None:
        return _architecture(found.text, found.architecture, folder)
    model = read_model(text, resolution)
    if model.onnx is not None:
        model = replace(model, onnx=with_names(model.onnx, folder / "named.onnx"))
    own = _own(found)
    source = found.description.source if found.description is not None else None
    if isinstance(source, Architecture):
        assert found.description is not None
        return Subject(model=model, architecture=source, size=found.description.signature.output.size, own=own)
    return replace(_plain(model), own=own)


def described(subject: Subject, files: ModelFiles, batch: int) -> tuple[Graph, tuple[Part, ...]]:
    """The graph of a network for a batch, and its blocks.

    Raises:
        UserError: it multiplies nothing, or consists of a single block, of which nothing can be compared.
    """
    graph = read_graph(files.onnx(batch))
    if not any(layer.op in PRODUCTS for layer in graph.layers):
        raise UserError(f"{subject.name} has no convolution and no other product", "give the file of a network")
    parts = parts_of(graph, subject.modules())
    if len(parts) < 2:
        raise UserError(
            f"{subject.name} consists of one block, {parts[0].name!r}, so there are no blocks to compare",
            "`nas bench MODEL --operators 10` lists its operators",
        )
    return graph, parts


def _plain(model: BenchModel) -> Subject:
    return Subject(model=model, architecture=None, size=(), own=None)


def _own(found: FoundNetwork) -> tuple[str, str] | None:
    runtime, precision = found.receipt.get("runtime"), found.receipt.get("precision")
    return (runtime, precision) if isinstance(runtime, str) and isinstance(precision, str) else None


def _timm(found: FoundNetwork, resolution: int, folder: Path) -> BenchModel:
    (name, *_) = baseline_names(found)
    if found.weights is not None:
        raise UserError(f"{found.text} names weights, and is timed with random ones", f"give timm:{found.published}")
    input = image_input(resolution)
    onnx = _exported(NetworkDescription.of_baseline(name, (CLASSES,), input), folder / "timm.onnx", found.text)
    return BenchModel(name=found.text, input=input, onnx=onnx)


def _architecture(text: str, arch: Architecture, folder: Path) -> Subject:
    space = space_of(arch)
    description = NetworkDescription.of_architecture(space, arch, space.usual_size)
    onnx = _exported(description, folder / "architecture.onnx", text)
    model = BenchModel(name=text, input=description.signature.input, onnx=onnx)
    return Subject(model=model, architecture=arch, size=space.usual_size, own=None)


def _exported(description: NetworkDescription, path: Path, text: str) -> Path:
    """The network with random weights, which does for its speed, as ONNX."""
    import torch

    from search_spaces.modules import set_norm_statistics

    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = description.build()
        try:
            set_norm_statistics(network, description.signature.input.draw_torch(4))
            return export_onnx(network, description.signature.input, path)
        except (RuntimeError, ValueError, AssertionError) as error:
            raise UserError(
                f"{text} cannot be exported: {str(error).partition(chr(10))[0]}", "try another --resolution"
            ) from error
