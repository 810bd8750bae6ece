"""What of a bundle depends on its task: pre- and post-processing, the sample, the script, further figures."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from nas.data.images import Preprocess
from nas.errors import UserError
from nas.networks.description import NetworkDescription, read_json
from nas.tasks import TaskData
from nas.tasks.task import Run

PREPROCESS = "preprocess.json"

Data = TypeVar("Data", bound=TaskData, contravariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a receipt says beyond what every task has."""

    accuracy: Mapping[str, Any] = field(default_factory=dict)
    """Further entries of `accuracy`."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further entries of the receipt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """A picture for reports."""

    file: str
    """Its name in a run's folder."""
    png: bytes
    caption: str


class Papers(Protocol[Data]):
    """A task's share of a bundle. Stateless."""

    def documents(self, preprocess: Preprocess, description: NetworkDescription) -> dict[str, Any]:
        """File name -> document: `PREPROCESS`, and whatever else is needed to use the network's output."""
        ...

    def script(self, description: NetworkDescription) -> str:
        """The template of `run.py`; see `nas.bundles.run_script.run_script`."""
        ...

    def sample(self, data: Data, resolution: int) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """A validation image (resolution, resolution, 3), and what `sample.json` tells of it."""
        ...

    def write_output(self, folder: Path, output: NDArray[np.float32]) -> dict[str, Any]:
        """Store the network's output for the sample; returns the entries of `sample.json` that hold it or name its
        file."""
        ...

    def read_output(self, folder: Path, sample: Mapping[str, Any]) -> NDArray[np.float32]:
        """What `write_output` stored. Raises KeyError, TypeError, ValueError or OSError for anything else."""
        ...

    def figures(self, run: Run, data: Data, description: NetworkDescription, batch: int) -> Figures:
        """Measured on the validation split with the deployed network; `run` always gets exactly `batch` images."""
        ...

    def sheet(self, run: Run, data: Data, description: NetworkDescription, batch: int) -> Sheet | None:
        """Validation images with the deployed network's answers; None where the task has no such picture."""
        ...


def preprocess_document(preprocess: Preprocess, resolution: int, **resizing: Any) -> dict[str, Any]:
    """How to make a network's input, for people and programs; `resizing` says what happens before scaling."""
    return {
        "layout": "NCHW float32",
        "resolution": resolution,
        **resizing,
        "scale": "x / 255, then (x - mean) / std per channel (RGB)",
        "mean": list(preprocess.mean),
        "std": list(preprocess.std),
    }


def read_preprocess(folder: Path) -> Preprocess | None:
    """What `folder` says of a network's input; None where it says nothing. Raises `UserError` for a damaged file."""
    path = folder / PREPROCESS
    if not path.is_file():
        return None
    document = read_json(path)
    try:
        if not isinstance(document, dict):
            raise TypeError(document)
        mean, std = (tuple(float(value) for value in document[name]) for name in ("mean", "std"))
        (r, g, b), (r_std, g_std, b_std) = mean, std
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"'{path}' has no mean and std of three channels", "remove it, or export again") from error
    return Preprocess((r, g, b), (r_std, g_std, b_std))
