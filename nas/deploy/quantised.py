"""The int8 file of a network that was quantised in training, as it lies beside the network: `qat/` and its record."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nas.deploy.onnx import Parity
from nas.errors import UserError
from nas.files.records import read_record, write_record
from nas.files.writing import sha256_of
from nas.networks.description import read_json

FOLDER, FILE, RECORD = "qat", "model.onnx", "qat.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantisedInTraining:
    """A file, and what is known of how it came about."""

    file: Path
    """ONNX with its ranges inside."""
    epochs: int
    val_accuracy_torch: float
    """Fraction of the validation images, of the rounded network in torch."""
    parity: Parity
    """Differences between the rounded network in torch and the file in ONNX Runtime."""

    def story(self) -> dict[str, Any]:
        """The facts that a receipt gives about the quantisation in training."""
        return {
            "epochs": self.epochs,
            "val_accuracy_torch": self.val_accuracy_torch,
            "parity": self.parity.to_json(),
        }


def write_quantised(made: QuantisedInTraining, weights: Path) -> None:
    """Write the record beside `made.file`; `weights` are those that it was made from."""
    write_record(made.file.parent, RECORD, {"weights_sha256": sha256_of(weights), **made.story()}, [made.file])


def read_quantised(folder: Path, weights: Path) -> QuantisedInTraining | None:
    """The quantised network in `folder`, if it was made from just these weights.

    Raises:
        UserError: its file is not the one that its record is about.
    """
    path = folder / RECORD
    if not (path.is_file() and weights.is_file()):
        return None
    record = read_json(path)
    if not isinstance(record, Mapping) or record.get("weights_sha256") != sha256_of(weights):
        return None
    whole = read_record(folder, RECORD, {})
    if whole is None:
        raise UserError(
            f"'{folder / FILE}' is not the file that was quantised in training: it is missing or was changed",
            f"run its `nas finetune` again, or remove '{folder}'",
        )
    return QuantisedInTraining(
        file=folder / FILE,
        epochs=whole["epochs"],
        val_accuracy_torch=whole["val_accuracy_torch"],
        parity=Parity.from_json(whole["parity"]),
    )
