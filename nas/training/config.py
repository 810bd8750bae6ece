"""What a training is told and what it reports: plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from nas.errors import UserError

Augment = Literal["none", "light", "mosaic"]
Optimizer = Literal["sgd", "adamw"]
Precision = Literal["fp32", "bf16", "fp16"]
"""fp16 needs scaled losses: fine-tuning alone trains in it, short trainings refuse it."""
Stopped = Literal["diverged", "time limit", "pruned by callback"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """A short recipe: warm-up, then cosine decay to zero.

    The defaults are for classification (those of detection: `nas.tasks.detection.recipe`).

    They learn fast in few epochs from scratch. On 480 validation images of Imagenette at 64 px (one seed each) peak
    rates of 0.05 and 0.1, batches of 32 and 64 and smallest crops of 35 to 60 % ended within 1.5 points, which is
    within the noise; a rate of 0.025 ended 3 points lower.
    """

    epochs: int = 10
    batch_size: int = 32
    """Images per step; the learning rate is not scaled with it."""
    lr: float = 0.05
    """Peak learning rate."""
    optimizer: Optimizer = "sgd"
    """`sgd` has Nesterov momentum; `adamw` wants a rate some 10 to 50 times lower (Loshchilov & Hutter 2019)."""
    momentum: float = 0.9
    """Of sgd; adamw has its usual 0.9 and 0.999."""
    weight_decay: float = 5e-4
    """Not applied to norms and biases."""
    warmup_fraction: float = 0.2
    """Share of all steps in which the learning rate rises linearly."""
    label_smoothing: float = 0.1
    """Of classification."""
    clip_norm: float = 2.0
    """Largest norm of all gradients together."""
    ema_decay: float | None = None
    """Decay per step of an exponential moving average of the weights; None: none. Validation then uses the average."""
    augment: Augment = "light"
    """`light`: random crops (see `nas.training.augment`), and flips where `flip` is on.

    Detection has its own (see `nas.tasks.detection.augment`), and `mosaic`: four images in one, but for the last steps.
    """
    flip: bool = True
    """Mirror half of the images; set it from `ImageData.flip_ok`."""
    precision: Literal["auto"] | Precision = "auto"
    """`auto` measures a few steps each way (about 8 steps); choose once and pass it on to compare many networks."""
    seed: int = 0
    time_limit_s: float | None = None
    """Wall-clock limit of the whole call, validation included; the learning rate still ends at zero."""

    def __post_init__(self) -> None:
        rules = {
            **shared_rules(self),
            "augment": (self.augment in ("none", "light", "mosaic"), "'none', 'light' or, in detection, 'mosaic'"),
            "optimizer": (self.optimizer in ("sgd", "adamw"), "'sgd' or 'adamw'"),
            "epochs": (self.epochs >= 1, "at least 1"),
            "ema_decay": (self.ema_decay is None or 0 < self.ema_decay < 1, "in (0, 1), or left out"),
            "time_limit_s": (self.time_limit_s is None or self.time_limit_s > 0, "above 0, or left out"),
        }
        require(self, "training", rules)


class SharedSettings(Protocol):
    """What every training has to be told, whatever it trains."""

    @property
    def batch_size(self) -> int: ...
    @property
    def lr(self) -> float: ...
    @property
    def momentum(self) -> float: ...
    @property
    def weight_decay(self) -> float: ...
    @property
    def warmup_fraction(self) -> float: ...
    @property
    def label_smoothing(self) -> float: ...
    @property
    def clip_norm(self) -> float: ...
    @property
    def augment(self) -> str: ...
    @property
    def precision(self) -> str: ...


Rules = dict[str, tuple[bool, str]]
"""Setting -> whether its value makes sense, and what it must be."""


def shared_rules(settings: SharedSettings) -> Rules:
    """The rules of the settings that all trainings have."""
    return {
        "batch_size": (settings.batch_size >= 2, "at least 2 (batch norm)"),
        "lr": (settings.lr > 0, "above 0"),
        "momentum": (0 <= settings.momentum < 1, "in [0, 1)"),
        "weight_decay": (settings.weight_decay >= 0, "at least 0"),
        "warmup_fraction": (0 <= settings.warmup_fraction < 1, "in [0, 1)"),
        "label_smoothing": (0 <= settings.label_smoothing < 1, "in [0, 1)"),
        "clip_norm": (settings.clip_norm > 0, "above 0"),
        "augment": (settings.augment in ("none", "light"), "'none' or 'light'"),
        "precision": (settings.precision in ("auto", "fp32", "bf16"), "'auto', 'fp32' or 'bf16'"),
    }


def require(settings: object, kind: str, rules: Rules) -> None:
    """Raises `UserError` for the first setting that breaks its rule; `kind` names the settings in the message."""
    for name, (holds, rule) in rules.items():
        if not holds:
            raise UserError(f"{kind} setting {name} = {getattr(settings, name)!r}", f"{name} must be {rule}")


@dataclass(frozen=True, slots=True)
class EpochLog:
    """One finished epoch."""

    epoch: int
    """From 1."""
    train_loss: float
    """Mean over the epoch's steps, with augmentation and label smoothing."""
    val_accuracy: float
    """The task's metric, a fraction."""
    seconds: float
    """Since the call of `train`, validation included."""


@dataclass(frozen=True, slots=True)
class TrainResult:
    """How a training ended."""

    accuracy: float
    """The task's metric on val at the end, a fraction; 0 where training diverged (the weights are then useless).

    Classification: images that are right. Detection: mAP@50.
    """
    curve: tuple[EpochLog, ...]
    """The finished epochs."""
    seconds: float
    stopped: Stopped | None
    """None: all epochs were done."""
    images_per_second: float
    """Training images per second of training steps (validation excluded)."""
    precision: Precision
    """What it was trained in."""
    details: Mapping[str, float] = field(default_factory=dict)
    """Other metrics of the last validation by name, where the task has some."""
