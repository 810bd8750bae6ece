"""A training's curve: one CSV file, and the same for TensorBoard."""

import csv
import io
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from nas.errors import UserError
from nas.files.writing import write_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRecord:
    """One finished epoch."""

    epoch: int
    """From 1."""
    lr: float
    """Of the last step."""
    train_loss: float
    """Mean over the epoch's batches, with augmentation, smoothing and distillation."""
    val_accuracy: float
    """Fraction, in the training's precision; of the averaged weights where the recipe has an average."""
    images_per_s: float
    """Training images per second of training time, waiting for data included."""
    data_wait_share: float
    """Of the training time, spent on fetching and augmenting images (fraction)."""
    seconds: float
    """Of the epoch, validation included."""


def write_csv(path: Path, curve: list[EpochRecord]) -> None:
    """Write the whole curve; a resumed training leaves no line twice.

    Raises:
        UserError: it cannot be written.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(EpochRecord)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(record) for record in curve)
    try:
        write_whole(path, text.getvalue().encode())
    except OSError as error:
        raise UserError(
            f"cannot write '{path}': {error.strerror}", "make room and run the same command again"
        ) from error


class TensorBoardLog:
    """Scalars of each epoch as event files; epochs that are done again after an interruption replace the old ones."""

    def __init__(self, folder: Path, first_epoch: int) -> None:
        from tensorboardX import SummaryWriter  # type: ignore[import-untyped]

        self._writer: Any = SummaryWriter(str(folder), purge_step=first_epoch)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

    def add(self, record: EpochRecord) -> None:
        for name, value in asdict(record).items():
            if name != "epoch":
                self._writer.add_scalar(name, value, record.epoch)
        self._writer.flush()
