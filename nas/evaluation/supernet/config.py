"""What the training of a supernet is told and what it reports: plain values."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from nas.training.config import Augment, Precision, require, shared_rules

LOG_STEPS = 25
"""Steps between two entries of a training's curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupernetConfig:
    """Warm-up and cosine decay; several paths per step."""

    steps: int = 2000
    batch_size: int = 64
    """Images per step; every path of the step sees the same ones."""
    lr: float = 0.05
    """Peak learning rate; a weight's gradient is the mean over the step's paths that use it."""
    optimizer: Literal["sgd", "adamw"] = "sgd"
    """`sgd` has Nesterov momentum. `adamw` wants rates of about 0.001: its steps are as long for blocks that few paths
    use as for the stem that all use."""
    momentum: float = 0.9
    """Of `sgd`."""
    weight_decay: float = 1e-4
    """Not applied to norms and biases."""
    warmup_fraction: float = 0.1
    label_smoothing: float = 0.1
    """Of the largest path's labels; the others learn from its outputs."""
    clip_norm: float = 2.0
    """Largest norm of one path's gradients. Those of several paths, which share little where families differ, may be
    larger by the root of their number."""
    sandwich: bool = True
    """Train a largest and a smallest path in every step, the largest one teaching the others. Without it all paths are
    random and learn from the labels (single path one-shot, Guo et al. 2020, https://arxiv.org/abs/1904.00420)."""
    random_paths: int = 2
    """Random paths per step, besides those of the sandwich."""
    fair: bool = False
    """Let the random paths of a step take turns: in each stage, as many of them have one block family as have any other
    (Chu et al. 2019, https://arxiv.org/abs/1907.01845). Give as many random paths as there are families."""
    anchored_share: float = 0.0
    """Share of the steps over which random paths leave the anchor: for its first fifth they are the anchor, then ever
    more of their stages are drawn. So each block learns between neighbours that already fit together."""
    small_share: float = 0.0
    """Share of the steps, the first ones, in which every path sees its images at half the size: they cost 0.36 times
    as much at 32 px (progressive learning, Tan & Le 2021, https://arxiv.org/abs/2104.00298)."""
    distillation: float = 1.0
    """Share of in-place distillation in the loss of all but the largest path; the rest is the labels'."""
    augment: Augment = "light"
    flip: bool = True
    """Mirror half of the images; set it from `ImageData.flip_ok`."""
    precision: Literal["auto"] | Precision = "auto"
    seed: int = 0
    seconds: float | None = None
    """Limit of the time spent in training, earlier sessions included; the learning rate still ends at zero."""

    def __post_init__(self) -> None:
        rules = {
            **shared_rules(self),
            "steps": (self.steps >= 1, "at least 1"),
            "random_paths": (self.random_paths >= (not self.sandwich), "at least 0, or 1 without the sandwich"),
            "optimizer": (self.optimizer in ("sgd", "adamw"), "'sgd' or 'adamw'"),
            "anchored_share": (0 <= self.anchored_share <= 1, "in [0, 1]"),
            "small_share": (0 <= self.small_share <= 1, "in [0, 1]"),
            "distillation": (0 <= self.distillation <= 1, "in [0, 1]"),
            "seconds": (self.seconds is None or self.seconds > 0, "above 0, or left out"),
        }
        require(self, "supernet", rules)

    def freedom(self, progress: float) -> float:
        """How much of a random path is drawn at `progress` in [0, 1] of the training; the rest is the anchor's."""
        if progress >= self.anchored_share:
            return 1.0
        return max(0.0, (progress / self.anchored_share - 0.2) / 0.8)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Adaptation:
    """How a path is trained alone before it is scored, from the shared weights on: a warm-up, then cosine decay."""

    steps: int = 250
    batch_size: int = 32
    lr: float = 0.02
    """Peak learning rate of SGD; the rest is as in `TrainConfig`."""

    def __post_init__(self) -> None:
        rules = {
            "steps": (self.steps >= 1, "at least 1"),
            "batch_size": (self.batch_size >= 2, "at least 2 (batch norm)"),
            "lr": (self.lr > 0, "above 0"),
        }
        require(self, "adaptation", rules)


@dataclass(frozen=True, slots=True)
class StepLog:
    """Losses around one step: means over the steps since the last log."""

    step: int
    """Steps done."""
    largest: float
    """Cross-entropy of the largest path."""
    smallest: float
    """Loss of the smallest path: against the largest one's outputs, where there is distillation. Without the sandwich
    the two are the first and the last random path."""


@dataclass(frozen=True, slots=True)
class SupernetLog:
    """How far a training came, in all its sessions together."""

    steps: int
    seconds: float
    """Of training, by the clock."""
    core_seconds: float
    """Processor time of this process while training."""
    precision: Precision
    curve: tuple[StepLog, ...]
    stopped: str | None = None
    """Why it ended before its last step; None where it did not."""

    @property
    def diverged(self) -> bool:
        return self.stopped is not None and self.stopped.startswith("diverged")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "SupernetLog":
        return cls(**{**document, "curve": tuple(StepLog(**entry) for entry in document["curve"])})
