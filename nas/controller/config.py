"""Everything that defines a search, validated once at the edge."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nas.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchConfig:
    """One search. A run folder belongs to one configuration: see `identity`."""

    target: str = "local"
    latency_ms: float
    """The limit, kept by the median latency of each fresh session."""
    data: str = "digits"
    space: str = "mixed"
    budget_s: float = 600.0
    """Wall-clock time for everything: measuring, search, training, baselines."""
    max_drop: float = 0.01
    """Accuracy (fraction) that a faster deployment may lose against the fp32 one."""
    top: int = 1
    """Winners to deliver."""
    threads: int | None = None
    """None: all usable cores."""
    seed: int = 0
    out: Path | None = None
    """None: `runs/<task>-<target>-<limit>`."""
    runtimes: tuple[str, ...] | None = None
    precisions: tuple[str, ...] | None = None
    resolutions: tuple[int, ...] | None = None
    """None: chosen from the data's native resolution."""
    baselines: bool = True
    command: str = ""
    """As typed, for the record."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.latency_ms) and self.latency_ms > 0):
            raise UserError(f"a latency limit of {self.latency_ms} ms makes no sense", "give a number above 0, in ms")
        if not (math.isfinite(self.budget_s) and self.budget_s > 0):
            raise UserError(f"a budget of {self.budget_s} s makes no sense", "give a duration like 90s, 30m or 4h")
        if not 0 <= self.max_drop <= 1:
            raise UserError(f"a largest drop of {self.max_drop} makes no sense", "give percentage points, 0 to 100")
        if not 1 <= self.top <= 5:
            raise UserError(f"--top {self.top} makes no sense", "ask for 1 to 5 winners")
        if self.threads is not None and self.threads < 1:
            raise UserError(f"--threads {self.threads} makes no sense", "give 1 or more")

    @property
    def run_dir(self) -> Path:
        return self.out or Path("runs") / f"classification-{self.target}-{self.latency_ms:g}ms"

    def identity(self) -> dict[str, Any]:
        """What must be equal for a run folder to be continued; budget and wording of the command may change."""
        document = asdict(self)
        for free in ("budget_s", "out", "command"):
            del document[free]
        return document
