"""The file of every cell: exported or changed to its batch, and quantised; what fails is a reason, not the end."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nas.bench.cells import Cell
from nas.bench.models import INTEGERS, BenchModel, rebatched_name
from nas.bench.onnx_graph import TOLERANCE, FixedBatchError, with_batch
from nas.bench.rebatch import INT8_TOLERANCE, rebatched
from nas.deploy.onnx import export_onnx
from nas.deployment import Deployment
from nas.errors import UserError
from nas.networks.description import NetworkDescription, load_network, save_network
from nas.runtimes import load_runtime
from search_spaces import TensorSpec

if TYPE_CHECKING:
    import torch
    from torch import nn

CALIBRATION_INPUTS = 8
"""Random ones: speed does not depend on the ranges."""
TORCHVISION_SIZE = (1000,)

REFUSALS = (UserError, RuntimeError, ValueError, LookupError, TypeError, AttributeError, AssertionError, OSError)
"""What exporters and quantisers refuse a graph with: whatever their code runs into."""


def prepare_cells(models: Sequence[BenchModel], cells: Sequence[Cell], folder: Path) -> "list[Path | str]":
    """The file to load for each cell, or why there is none."""
    files = [ModelFiles(model, folder / str(i)) for i, model in enumerate(models)]
    known: dict[tuple[int, Deployment], Path | str] = {}
    for cell in cells:
        key = (cell.model, cell.deployment)
        if key not in known:
            known[key] = path_or_reason(files[cell.model], cell.deployment)
    return [known[cell.model, cell.deployment] for cell in cells]


def path_or_reason(files: "ModelFiles", deployment: Deployment) -> "Path | str":
    """The file of a network for a deployment, or a sentence that says why there is none."""
    from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

    try:
        return files.path(deployment)
    except (
        *REFUSALS,
        ort_errors.Fail,
        ort_errors.InvalidArgument,
        ort_errors.InvalidGraph,
        ort_errors.NotImplemented,
        ort_errors.RuntimeException,
    ) as error:
        return str(error).strip().partition("\n")[0] or type(error).__name__


class ModelFiles:
    """Makes one network's files in a folder of its own, each once."""

    def __init__(self, model: BenchModel, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._model = model
        self._folder = folder
        self._exported: dict[int, Path] = {}
        self._rounded: dict[tuple[str, str, int], Path] = {}

    def path(self, deployment: Deployment) -> Path:
        """File that the deployment's runtime loads. Raises what exporters and quantisers do."""
        runtime, precision, batch = deployment.runtime, deployment.precision, deployment.batch
        if self._model.integers is not None:
            return self._as_it_is(precision, batch)
        if runtime == "torch":
            return load_runtime(runtime).prepare(self.exported_for_torch(), precision, self._folder, None)
        if precision in INTEGERS:
            return self.integers(runtime, precision, batch)
        return load_runtime(runtime).prepare(self.onnx(batch), precision, self._folder, None)

    def onnx(self, batch: int) -> Path:
        """The network as ONNX for that batch: in fp32, or as it was given."""
        if batch not in self._exported:
            out = self._folder / f"b{batch}.onnx"
            if self._model.onnx is not None:
                tolerance = TOLERANCE if self._model.integers is None else INT8_TOLERANCE
                with_batch(self._model.onnx, batch, self._model.input, out, tolerance)
            else:
                export_onnx(self._network[0], self._model.input, out, batch)
            self._exported[batch] = out
        return self._exported[batch]

    def integers(self, runtime: str, precision: str, batch: int) -> Path:
        """Quantised once and then changed to the batch where that is possible, else quantised for the batch."""
        key = (runtime, precision, batch)
        if key not in self._rounded:
            self._rounded[key] = self._integers(*key)
        return self._rounded[key]

    def exported_for_torch(self) -> Path:
        """An ONNX file with the PyTorch network beside it."""
        exported = self.onnx(1)
        description = self._network[1] if self._model.onnx is None else None
        if description is None:
            raise UserError(
                f"{self._model.name} is not known as a PyTorch network", "give a bundle, or a network of the zoo"
            )
        save_network(self._network[0], description, self._folder / f"{exported.stem}.network.json")
        return exported

    def _as_it_is(self, precision: str, batch: int) -> Path:
        """The file of a network that is quantised already."""
        name, known = self._model.name, self._model.integers
        if precision != known:
            raise UserError(f"{name} is quantised already: it is timed in {known} alone", "give its original")
        return self.onnx(batch)

    def _integers(self, runtime: str, precision: str, batch: int) -> Path:
        given = self._model.delivered.get((runtime, precision))
        made = (path for (*way, _), path in self._rounded.items() if way == [runtime, precision])
        first = given or next(made, None)
        if first is not None:
            try:
                return self._rebatched(first, batch)
            except (FixedBatchError, RuntimeError):
                pass
        return load_runtime(runtime).prepare(self.onnx(batch), precision, self._folder, self._calibration())

    def _rebatched(self, path: Path, batch: int) -> Path:
        out = self._folder / rebatched_name(path, batch)
        return rebatched(path, batch, self._model.input, out, INT8_TOLERANCE)

    def _calibration(self) -> NDArray[Any]:
        return self._model.input.draw(np.random.default_rng(0), CALIBRATION_INPUTS)

    @cached_property
    def _network(self) -> "tuple[nn.Module, NetworkDescription | None]":
        """Trained or random, and what rebuilds it in another process."""
        if self._model.network is not None:
            return load_network(self._model.network, fold=False), _read_description(self._model.network)
        assert self._model.torchvision is not None
        return untrained(self._model.torchvision, self._model.input)


def _read_description(path: Path) -> NetworkDescription:
    import json

    return NetworkDescription.from_json(json.loads(path.read_text(encoding="utf-8")))


def untrained(name: str, input: TensorSpec) -> "tuple[nn.Module, NetworkDescription | None]":
    import torch
    from torchvision.models import get_model

    from nas.tasks import TASKS
    from search_spaces.modules import set_norm_statistics

    with torch.random.fork_rng():
        torch.manual_seed(0)
        network: nn.Module = get_model(name, weights=None, num_classes=TORCHVISION_SIZE[0]).eval()
        set_norm_statistics(network, input.draw_torch(4))
    if not any(name in task.baselines for task in TASKS.values()):
        return network, None
    description = NetworkDescription.of_baseline(name, TORCHVISION_SIZE, input)
    with torch.random.fork_rng():
        rebuilt = description.build()  # a baseline may differ from torchvision's network for small images
    return network, description if _shapes(rebuilt) == _shapes(network) else None


def _shapes(network: "nn.Module") -> "dict[str, torch.Size]":
    return {key: tensor.shape for key, tensor in network.state_dict().items()}
