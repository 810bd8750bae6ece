"""The part of a bundle that depends on its task: pre- and post-processing, the sample, the script, further figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from nas.tasks.task import Run, TaskData
from search_spaces import Signature, TensorSpec

Data = TypeVar("Data", bound=TaskData, contravariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Entries of a receipt that only this task has."""

    accuracy: Mapping[str, Any] = field(default_factory=dict)
    """Further entries of `accuracy`."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further entries of the receipt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """A picture for reports."""

    file: str
    """Name of the file in a run's folder."""
    png: bytes
    caption: str


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """One example, ready for a network."""

    inputs: NDArray[Any]
    """(1, ...), what the network takes."""
    context: Any
    """Facts about the example that `Processor.postprocess` has to know, such as the size of a picture."""
    size: tuple[int, int] | None = None
    """(width, height) in pixels of the upright picture, where the example is one."""


class Processor(Protocol):
    """Pre- and post-processing of one network, made from the documents of its bundle. Needs no torch.

    Without state: several threads may use one at the same time.
    """

    def preprocess(self, example: Any) -> Prepared:
        """Raises `UserError` for an example that cannot be read.

        Args:
            example: a file's path, or what the task says it takes too (for images: a Pillow image, or an array
                (h, w, 3) uint8, RGB).
        """
        ...

    def postprocess(self, output: NDArray[np.float32], context: Any) -> list[dict[str, Any]]:
        """The answer, as plain values, the surest first, of one example's output (without batch axis).

        `context` is that of `preprocess`.
        """
        ...


@runtime_checkable
class Locating(Protocol):
    """What a `Processor` can do besides whose answers are objects with boxes: `label`, `score`, `xyxy`."""

    def drawn(self, example: Any, answer: Sequence[Mapping[str, Any]]) -> bytes:
        """A PNG of the example with its answer drawn into it.

        Args:
            example: as `Processor.preprocess` takes it. Raises `UserError` where it cannot be read.
            answer: what `Processor.postprocess` said of it.
        """
        ...


class BundleArtifacts(Protocol[Data]):
    """A task's share of a bundle. Stateless."""

    def documents(self, preprocess: Any, signature: Signature) -> dict[str, Any]:
        """File name -> JSON document: all it takes to make the network's input and to use its output."""
        ...

    def read_preprocess(self, folder: Path) -> Any | None:
        """The task's preprocessing (`TaskData.preprocess`) that `documents` wrote into `folder`; None without one.

        Raises:
            UserError: the file is damaged.
        """
        ...

    def processor(self, folder: Path) -> Processor:
        """The processor of the bundle in `folder`, from its `labels.json` and the documents that `documents` has made.

        Raises:
            UserError: a document is missing or damaged.
        """
        ...

    def script(self, signature: Signature) -> str:
        """The template of `run.py`; see `nas.bundles.run_script.run_script`."""
        ...

    def write_sample(self, folder: Path, data: Data, input: TensorSpec) -> tuple[NDArray[Any], dict[str, Any]]:
        """Store a validation example in `folder`.

        Returns:
            The example as a network takes it, (1, ...), and the entries of `sample.json` that hold it or name its file,
            and say what it shows.
        """
        ...

    def read_sample(self, folder: Path, sample: Mapping[str, Any]) -> NDArray[Any]:
        """The example that `write_sample` stored, as the network takes it, (1, ...); `sample` is `sample.json`.

        Raises:
            UserError, KeyError, TypeError, ValueError or OSError: it is damaged.
        """
        ...

    def usual_example(self, folder: Path, sample: Mapping[str, Any]) -> Any:
        """An example like the user's, as an application holds it in memory (for images: decoded, at the size of a usual
        picture), for `Processor.preprocess`; `sample` is `sample.json`.

        Raises:
            UserError, KeyError, TypeError, ValueError or OSError: it is damaged.
        """
        ...

    def write_output(self, folder: Path, output: NDArray[np.float32]) -> dict[str, Any]:
        """Store the network's output for the sample; returns the entries of `sample.json` that hold it or name its
        file."""
        ...

    def read_output(self, folder: Path, sample: Mapping[str, Any]) -> NDArray[np.float32]:
        """The output that `write_output` stored. Raises KeyError, TypeError, ValueError or OSError for anything
        else."""
        ...

    def figures(self, run: Run, data: Data, signature: Signature, batch: int) -> Figures:
        """Measured on the validation split with the deployed network; `run` always gets exactly `batch` images."""
        ...

    def sheet(self, run: Run, data: Data, signature: Signature, batch: int) -> Sheet | None:
        """Validation images with the deployed network's answers; None where the task has no such picture."""
        ...
