"""Every request of a trial: when it should have started, when it did, when it was answered, and how."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

OK = 200
WRONG, NONSENSE, TIMED_OUT, RESET, REFUSED, NO_SOCKET = 1, 2, 3, 4, 5, 6
"""Codes of what went wrong besides an HTTP status, see `FAILURES`."""
FAILURES: Mapping[int, str] = {
    WRONG: "wrong answer",
    NONSENSE: "no answer in the response",
    TIMED_OUT: "timeout",
    RESET: "connection reset",
    REFUSED: "connection refused",
    NO_SOCKET: "no connection left",
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Records:
    """One entry per request, in the order of their ends; times in seconds since the warm-up was over (before: < 0)."""

    due_s: NDArray[np.float64]
    """When it should have started: in an open loop by the drawn times, in a closed loop when its client was free."""
    sent_s: NDArray[np.float64]
    """When its first byte was handed to the kernel."""
    done_s: NDArray[np.float64]
    """When the last byte of the answer had come, or it failed."""
    code: NDArray[np.int16]
    """The HTTP status, or one of `FAILURES`; `OK` only where the answer was right."""
    image: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.code)

    @property
    def ok(self) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = self.code == OK
        return found

    @property
    def latency_ms(self) -> NDArray[np.float32]:
        """From the scheduled start to the end; infinite for those that failed, which no user got an answer to."""
        taken = 1e3 * (self.done_s - self.due_s)
        return np.where(self.ok, taken, np.inf).astype(np.float32)

    @property
    def lag_ms(self) -> NDArray[np.float64]:
        """How late each was sent."""
        return 1e3 * (self.sent_s - self.due_s)

    def where(self, chosen: NDArray[np.bool_]) -> "Records":
        return Records(**{field.name: getattr(self, field.name)[chosen] for field in fields(self)})

    def save(self, path: Path) -> None:
        np.savez(path, **{field.name: getattr(self, field.name) for field in fields(self)})

    @classmethod
    def load(cls, path: Path) -> Self:
        with np.load(path, allow_pickle=False) as arrays:
            return cls(**{field.name: arrays[field.name] for field in fields(cls)})


def failure_name(code: int) -> str:
    """`503`, `timeout`."""
    return FAILURES.get(code, str(code))
