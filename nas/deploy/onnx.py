"""From a trained torch network to an ONNX file whose numbers were checked against it."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nas.deployment import CPU
from nas.files.writing import staged_file
from nas.runtimes.base import run_in_batches
from nas.runtimes.devices import execution_providers
from nas.runtimes.onnx_file import VALUES_KEY
from search_spaces import TensorSpec

if TYPE_CHECKING:
    from torch import nn

Agreement = Callable[[NDArray[np.float32], NDArray[np.float32]], float]

INPUT_NAME, OUTPUT_NAME = "input", "logits"
PARITY_MEAN = 1e-4
"""Mean absolute difference of the outputs, above which torch and ONNX do not compute the same."""


@dataclass(frozen=True, slots=True)
class Parity:
    """Distance of the ONNX file's outputs from torch's, on the same inputs, both in fp32."""

    images: int
    max_abs_difference: float
    mean_abs_difference: float
    agreement: float
    """Fraction of images with the same answer: the same top class, or the same detections."""

    @property
    def holds(self) -> bool:
        """True if both are the same network: equal answers everywhere, and differences of rounding alone."""
        return self.agreement == 1.0 and self.mean_abs_difference < PARITY_MEAN

    @property
    def defect(self) -> str:
        """Description of what does not hold; empty where everything does."""
        if self.holds:
            return ""
        return (
            f"the ONNX file does not compute what torch does: on {self.images} images the answers agree in "
            f"{self.agreement:.1%}, the mean difference is {self.mean_abs_difference:.2g}"
        )

    def to_json(self) -> dict[str, float]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Parity":
        """Inverse of `to_json`."""
        return cls(**document)


def export_onnx(network: "nn.Module", input: TensorSpec, path: Path, batch: int = 1) -> Path:
    """Write `network` (folded here) as ONNX that takes `batch` examples of `input`, no more and no less.

    The file appears whole or not at all. The TorchScript exporter is used while torch has it: for plain networks it
    writes the same graph as the newer one in a tenth of the time, and a search exports dozens of them.
    """
    import torch

    from search_spaces.modules import folded

    examples = torch.from_numpy(input.zeros(batch))
    with staged_file(path) as staged, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        # Shapes are static, as they are meant to be.
        warnings.simplefilter("ignore", torch.jit.TracerWarning)  # type: ignore[attr-defined]
        torch.onnx.export(
            folded(network.to("cpu", torch.float32)),
            (examples,),
            str(staged),
            input_names=[INPUT_NAME],
            output_names=[OUTPUT_NAME],
            dynamo=False,
        )
        if input.values is not None:
            _note_values(staged, input.values)
    return path


def _note_values(path: Path, values: int) -> None:
    """Write how many values the input takes into the file's metadata, where measuring looks for them."""
    import onnx

    model = onnx.load(path)
    onnx.helper.set_model_props(model, {VALUES_KEY: str(values)})
    onnx.save(model, path)


def check_parity(network: "nn.Module", path: Path, inputs: NDArray[Any], agreement: Agreement) -> Parity:
    """Compare torch and the ONNX file on pre-processed `inputs` (n, ...): torch one by one, the file by its batch.

    `agreement` of the two outputs (n, ...) is the fraction of examples with the same answer.
    """
    import onnxruntime
    import torch

    session = onnxruntime.InferenceSession(str(path), providers=execution_providers(CPU))
    network = network.eval().to("cpu", torch.float32)
    with torch.no_grad():
        expected = np.concatenate([network(torch.from_numpy(example[None])).numpy() for example in inputs])
    (batch, *_) = session.get_inputs()[0].shape
    got = run_in_batches(lambda given: session.run(None, {INPUT_NAME: given})[0], inputs, batch)
    difference = np.abs(got - expected)
    return Parity(
        images=len(inputs),
        max_abs_difference=float(difference.max()),
        mean_abs_difference=float(difference.mean()),
        agreement=agreement(got, expected),
    )
