"""Everything that defines a search, validated once at the edge."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from nas.calls import CONTINUOUS, calls_text, interval_ms_of
from nas.controller.usual_space import usual_space
from nas.data_options import DataOptions, Fit, Metric
from nas.deployment import ALONE, EXTENTS, Extent
from nas.errors import UnknownNameError, UserError
from nas.limits import NAMES, AccuracyLimit, Limits
from nas.tasks import task_named
from search_spaces import SearchSpace, resolve_space
from search_spaces.architecture import Option
from search_spaces.reference import at_resolutions

Objective = Literal["accuracy", "latency", "throughput", "pareto"]
"""The quantity for which networks are chosen among those that keep every limit."""
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
DEFAULT_BUDGET_S = 600.0
FRONT = 3
"""Networks delivered of a front, where `top` does not say how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchConfig:
    """One search. A run folder belongs to one configuration: see `identity`."""

    task: str = "classification"
    """See `nas.tasks.task_named`."""
    target: str = "local"
    calls: str = CONTINUOUS
    """Pattern in which the deployed network is called, see `nas.calls`: latencies are those of such calls."""
    limit_on: Extent = ALONE
    """What latencies are of, see `nas.deployment.Extent`."""
    limits: Limits = field(default_factory=Limits)
    """Accuracies among them get the task's metric as their name."""
    objective: Objective = "accuracy"
    data: str = ""
    """Empty: the task's default, where it has one."""
    flip: bool = True
    """False: a mirrored image is another thing than the image, see `nas.data_options`."""
    flip_anyway: bool = False
    """True: nobody looks whether mirrored images still show their classes."""
    fit: Fit | None = None
    max_resolution: int | None = None
    metric: Metric | None = None
    """What networks are compared by; None: the task's metric."""
    class_weights: bool = False
    """True: rare classes weigh more in the loss."""
    tokenizer: str | None = None
    """File or folder of the tokenizer of texts; None: one is learnt from the training texts."""
    space: str = ""
    """Reference, see `search_spaces.reference`; where a file was given, the name that its table gets. Empty: the usual
    one for such data, see `nas.controller.usual_space`."""
    space_document: str | None = None
    """The table that was in the file. The run keeps it as `space.json`."""
    budget_s: float | None = None
    """Wall-clock time for everything: measuring, search, training, baselines. None: as `max_trials` and `max_cost_usd`
    say, or 10 minutes where they say nothing either."""
    max_trials: int | None = None
    """Candidates that the search evaluates at most. Alone, without a time or a cost, nothing depends on the clock."""
    max_cost_usd: float | None = None
    price_per_hour: float | None = None
    """USD for an hour of this machine."""
    max_drop: float = 0.01
    """Accuracy (fraction) that a faster deployment may lose against the fp32 one."""
    top: int | None = None
    """Winners to deliver. None: 1, or 3 of a front."""
    threads: int | None = None
    """None: all usable cores."""
    seed: int = 0
    out: Path | None = None
    """None: `runs/<task's name>-<target>-<limit>`."""
    devices: tuple[str, ...] | None = None
    """Devices of the target to deploy on (`cpu`, `cuda:0`); None: those its profile knows, of a new one the CPU."""
    runtimes: tuple[str, ...] | None = None
    precisions: tuple[str, ...] | None = None
    allowed: Mapping[str, tuple[Option, ...]] = field(default_factory=dict)
    """Decision of the space -> the only options it may take; the task decides what is up to the data (resolutions)."""
    strict: bool = False
    """Refuse a profile of a host that differs from this one."""
    baselines: bool = False
    """Also train random and well-known networks in equal time, to compare the winner with."""
    estimator: str = "auto"
    """Estimator of the candidates: a name of `nas.evaluation.estimators.ESTIMATORS`, or `auto`."""
    sampler: str = "surrogate"
    """Sampler that proposes candidates: a name of `nas.samplers.SAMPLERS`."""
    storage: str | None = None
    """URL of a database server for the studies; None: an SQLite file in the run's folder."""
    workers: int | None = None
    """Short trainings at once (with more than one the same seed may propose others); None: one, or one for each GPU,
    or as Ray's cluster allows."""
    ray: str | None = None
    """Address of a Ray cluster for the short trainings, or `auto`; None: this machine alone."""
    teacher: str | None = None
    """Network that candidates and finalists also learn from, see `nas.networks.teachers`; None: from the labels
    alone."""
    unlabelled: str | None = None
    """File or folder of training examples that the teacher labels; None: there are none."""
    asha: bool = False
    """Stop short trainings early whose curves are hopeless (Ray Tune)."""
    command: str = ""
    """The command line as typed, for the record."""

    def __post_init__(self) -> None:
        task = task_named(self.task)
        object.__setattr__(self, "data", self.data or self._default_data(task.default_data))
        named = self.space or usual_space(self.task, self.target)
        space = resolve_space(named, self.out, document=self.space_document)
        if self.max_resolution is not None:
            space = at_resolutions(space, self.max_resolution)
        object.__setattr__(self, "space", space.name)
        object.__setattr__(self, "space_document", space.document)
        object.__setattr__(self, "limits", self.limits.changed(metric=self.data_options.metric_name(task.metric)))
        object.__setattr__(self, "calls", calls_text(interval_ms_of(self.calls)))
        self._check_question()
        self._check_money()
        self._check_teacher(task.teaching is not None)
        if self.limit_on not in EXTENTS:
            raise UnknownNameError("--limit-on", self.limit_on, EXTENTS)
        if self.budget_s is not None and not (math.isfinite(self.budget_s) and self.budget_s > 0):
            raise UserError(f"a budget of {self.budget_s} s makes no sense", "give a duration like 90s, 30m or 4h")
        if not 0 <= self.max_drop <= 1:
            raise UserError(f"a largest drop of {self.max_drop} makes no sense", "give percentage points, 0 to 100")
        if self.top is not None and not 1 <= self.top <= 5:
            raise UserError(f"--top {self.top} makes no sense", "ask for 1 to 5 winners")
        if self.threads is not None and self.threads < 1:
            raise UserError(f"--threads {self.threads} makes no sense", "give 1 or more")

    def _default_data(self, name: str | None) -> str:
        if name is None:
            raise UserError(f"nothing says what to learn {task_named(self.task).name} from", "give --data FOLDER")
        return name

    def _check_teacher(self, beforehand: bool) -> None:
        """`beforehand`: whether teachers of the task answer before any training."""
        if self.teacher is not None and self.ray is not None and not beforehand:
            raise UserError(
                f"the teacher {self.teacher!r} lies on this machine, and --ray trains on others",
                "leave out --teacher or --ray",
            )
        if self.unlabelled is not None and not beforehand:
            raise UserError(f"--unlabelled is not for {self.task}", "leave it out")
        if self.unlabelled is not None and self.teacher is None:
            raise UserError(
                "nobody says what the texts of --unlabelled are", "name a trained network that does: --teacher"
            )

    def _check_question(self) -> None:
        """Checks that the request is a question: something to maximise, and something in its way."""
        if self.objective not in OBJECTIVES:
            raise UnknownNameError("objective", self.objective, OBJECTIVES)
        limits = self.limits
        if self.objective in ("latency", "throughput") and AccuracyLimit.name not in limits:
            raise UserError(
                f"--objective {self.objective} without an accuracy would deliver a network that knows nothing",
                "say how accurate it has to be: --min-accuracy 90",
            )
        if self.objective == "accuracy" and not limits.predicted:
            raise UserError(
                "nothing limits the search, so the largest network would win",
                "give a limit such as --latency-ms 10 or --max-params 1M, or another --objective",
            )

    def _check_money(self) -> None:
        for option, value in (("--max-cost", self.max_cost_usd), ("--price-per-hour", self.price_per_hour)):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise UserError(f"{option} {value} makes no sense", "give USD above 0")
        if self.max_cost_usd is not None and self.price_per_hour is None:
            raise UserError("--max-cost says nothing without a price", "say what an hour costs: --price-per-hour 1.5")
        if self.max_trials is not None and self.max_trials < 1:
            raise UserError(f"--max-trials {self.max_trials} makes no sense", "give 1 or more")

    @property
    def data_options(self) -> DataOptions:
        """How the data are read."""
        return DataOptions.of({f.name: getattr(self, f.name) for f in fields(self)})

    @property
    def search_space(self) -> SearchSpace:
        """The space that `space` names."""
        return resolve_space(self.space, document=self.space_document)

    @property
    def interval_ms(self) -> float:
        """Milliseconds from call to call; 0 without a pause."""
        return interval_ms_of(self.calls)

    @property
    def seconds(self) -> float:
        """The budget as wall-clock time: the tightest of what was given; inf where trials alone end the search."""
        times = [self.budget_s] if self.budget_s is not None else []
        if self.max_cost_usd is not None and self.price_per_hour is not None:
            times.append(3600 * self.max_cost_usd / self.price_per_hour)
        return min(times, default=DEFAULT_BUDGET_S if self.max_trials is None else math.inf)

    @property
    def winners(self) -> int:
        """Number of networks to deliver."""
        return self.top or (FRONT if self.objective == "pareto" else 1)

    @property
    def run_dir(self) -> Path:
        task, goal = task_named(self.task), () if self.objective == "accuracy" else (self.objective,)
        pattern = (self.calls.replace("/", "-per-"),) if self.interval_ms else ()
        extent = (self.limit_on,) if self.limit_on != ALONE else ()
        parts = (task.name, self.target, *goal, self.limits.label, *pattern, *extent)
        return self.out or Path("runs") / "-".join(parts).strip("-")

    def shared_settings(self) -> dict[str, Any]:
        """The settings that must be equal where machines work on one search: `identity` without what is each one's own
        (paths, how it trains), and the budget, by which short trainings are planned."""
        own = ("data", "out", "command", "storage", "workers", "ray", "asha", "strict", "space_document")
        money = ("budget_s", "max_trials", "max_cost_usd", "price_per_hour", "limits")
        document = {name: value for name, value in asdict(self).items() if name not in (*own, *money)}
        for path in ("teacher", "unlabelled", "tokenizer"):
            document[path] = document[path] and Path(document[path]).name
        limits = {**dict.fromkeys(NAMES), **self.limits.to_json()}
        return {**document, **limits, "budget_s": self.seconds if math.isfinite(self.seconds) else None}

    def identity(self) -> dict[str, Any]:
        """The settings that must be equal for a run folder to be continued; budget and wording of the command may
        change."""
        document = {**asdict(self), "limits": self.limits.to_json()}
        for free in (
            *("budget_s", "max_trials", "max_cost_usd", "price_per_hour", "out", "command"),
            *("storage", "workers", "ray", "space_document"),
        ):
            del document[free]
        if self.devices is None:
            del document["devices"]
        if not self.interval_ms:  # as it always was
            del document["calls"]
        if self.limit_on == ALONE:
            del document["limit_on"]
        return document
