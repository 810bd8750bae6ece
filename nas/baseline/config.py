"""Everything that defines a derivation from a trained network, validated once at the edge."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from nas.calls import CONTINUOUS, calls_text, interval_ms_of
from nas.controller.config import DEFAULT_BUDGET_S
from nas.data_options import DataOptions, Fit
from nas.deployment import ALONE, EXTENTS, Extent
from nas.errors import UnknownNameError, UserError
from nas.limits import LatencyLimit, Limits
from nas.tasks import task_named

MAX_LOSS = 0.01
MODE = "baseline"
"""What `config.json` of such a run calls itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineConfig:
    """A faster network is asked for that is made of a trained one. A run folder belongs to one configuration."""

    baseline: str
    """The trained network, see `nas.networks.reference`."""
    task: str = "classification"
    data: str
    flip: bool = True
    """False: a mirrored image is another thing than the image, see `nas.data_options`."""
    flip_anyway: bool = False
    """True: nobody looks whether mirrored images still show their classes."""
    fit: Fit | None = None
    max_resolution: int | None = None
    target: str = "local"
    limits: Limits = field(default_factory=Limits)
    speedup: float | None = None
    """So many times as fast as the baseline in its own fastest deployment; instead of a latency."""
    max_loss: float = MAX_LOSS
    """Accuracy (fraction) that the network may lose against the baseline in fp32."""
    calls: str = CONTINUOUS
    """Pattern of calls, see `nas.calls`."""
    limit_on: Extent = ALONE
    """What latencies are of, see `nas.deployment.Extent`."""
    resolution: int | None = None
    """Rows and columns of the input of a network whose input is not known otherwise, and of everything that is made of
    it; None: those of the images, and networks that are made may take smaller ones."""
    budget_s: float | None = None
    """Wall-clock time for everything."""
    threads: int | None = None
    """None: all usable cores."""
    runtimes: tuple[str, ...] | None = None
    precisions: tuple[str, ...] | None = None
    max_drop: float = 0.01
    """Accuracy (fraction) that a faster deployment may lose against the same network in fp32."""
    accuracy_first: bool = False
    """True: of the deployments within the limit the most accurate is delivered, the fastest of those within a standard
    error of it; False: the fastest that `max_drop` allows."""
    seed: int = 0
    out: Path | None = None
    command: str = ""
    """The command line as typed, for the record."""

    def __post_init__(self) -> None:
        task_named(self.task)
        object.__setattr__(self, "calls", calls_text(interval_ms_of(self.calls)))
        if not self.data:
            raise UserError("nothing says which data the network is for", "give them: --data FOLDER")
        if self.target != "local":
            raise UserError(
                f"what a network can be made of is measured, and target {self.target!r} is not this host",
                "run the same command with --target local on that device",
            )
        if self.limit_on not in EXTENTS:
            raise UnknownNameError("--limit-on", self.limit_on, EXTENTS)
        self._check_question()
        for name, value in (("--max-loss", self.max_loss), ("--max-drop", self.max_drop)):
            if not 0 <= value <= 1:
                raise UserError(f"{name} {100 * value:g} makes no sense", "give percentage points, 0 to 100")
        if self.budget_s is not None and not (math.isfinite(self.budget_s) and self.budget_s > 0):
            raise UserError(f"a budget of {self.budget_s} s makes no sense", "give a duration like 90s, 30m or 4h")
        if self.threads is not None and self.threads < 1:
            raise UserError(f"--threads {self.threads} makes no sense", "give 1 or more")

    def _check_question(self) -> None:
        unusual = [limit.name for limit in self.limits if limit.name != LatencyLimit.name]
        if unusual:
            raise UserError(
                f"--{unusual[0].replace('_', '-')} is not supported where a search begins from a trained network",
                "limit the latency alone",
            )
        if self.limits.limits_tail:
            raise UserError(
                f"--percentile {self.limits.percentile} is not supported where a search begins from a trained network",
                "leave it out, and give a lower --latency-ms",
            )
        if (self.limits.latency is None) == (self.speedup is None):
            raise UserError(
                "how fast the network has to be is said once, by a latency or by a factor",
                "give either --latency-ms 4 or --speedup 3",
            )
        if self.speedup is not None and not (math.isfinite(self.speedup) and self.speedup > 1):
            raise UserError(f"--speedup {self.speedup:g} makes nothing faster", "give a factor above 1, such as 3")

    @property
    def data_options(self) -> DataOptions:
        """How the data are read."""
        return DataOptions.of({f.name: getattr(self, f.name) for f in fields(self)})

    @property
    def interval_ms(self) -> float:
        """Milliseconds from call to call; 0 without a pause."""
        return interval_ms_of(self.calls)

    @property
    def seconds(self) -> float:
        """The budget as wall-clock time."""
        return DEFAULT_BUDGET_S if self.budget_s is None else self.budget_s

    @property
    def run_dir(self) -> Path:
        goal = self.limits.label or f"{self.speedup:g}x"
        pattern = (self.calls.replace("/", "-per-"),) if self.interval_ms else ()
        extent = (self.limit_on,) if self.limit_on != ALONE else ()
        parts = (task_named(self.task).name, "baseline", self.target, goal, *pattern, *extent)
        return self.out or Path("runs") / "-".join(parts)

    def identity(self) -> dict[str, Any]:
        """The settings that must be equal for a run folder to be continued."""
        document = {"mode": MODE, **asdict(self), "limits": self.limits.to_json()}
        for free in ("budget_s", "out", "command"):
            del document[free]
        return document


def is_baseline_run(config: Mapping[str, Any]) -> bool:
    """True if a run's `config.json` is of such a run."""
    return config.get("mode") == MODE
