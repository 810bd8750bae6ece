"""Position of a worker process in its work, as a small file that its supervisor reads when it dies or stands still."""

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Step:
    """Position of a worker in its work."""

    count: int
    """Grows by one with each step: a worker whose count stands still is stuck."""
    index: int
    """The caller's number for the piece of work it is busy with, or -1."""
    phase: str
    """One word: `starting`, `loading`, `running`, ..."""


_STEP_BYTES = 48


def encode_step(step: Step) -> bytes:
    """A fixed-size record, so that one write replaces the last one whole."""
    return f"{step.count} {step.index} {step.phase}".ljust(_STEP_BYTES).encode()


def decode_step(record: bytes) -> Step:
    """The step in a record; a worker that has written none yet is starting."""
    parts = record.decode().split()
    return Step(int(parts[0]), int(parts[1]), parts[2]) if len(parts) == 3 else Step(0, -1, "starting")


class Heartbeat:
    """Notes the present step in a file; unlike a message, that wakes nobody up while times are taken."""

    def __init__(self, path: Path | None) -> None:
        self._file = None if path is None else os.open(path, os.O_WRONLY | os.O_CREAT)
        self._count = 0

    def note(self, index: int, phase: str) -> None:
        if self._file is None:
            return
        self._count += 1
        os.pwrite(self._file, encode_step(Step(self._count, index, phase)), 0)
