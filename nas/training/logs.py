"""A training's curve: one CSV file, and the same for TensorBoard."""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from nas.errors import UserError
from nas.files.writing import write_whole
from nas.training.result import EpochRecord


def write_csv(path: Path, curve: Sequence[EpochRecord]) -> None:
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
            if name != "epoch" and not math.isnan(value):  # of epochs that were not validated
                self._writer.add_scalar(name, value, record.epoch)
        self._writer.flush()
