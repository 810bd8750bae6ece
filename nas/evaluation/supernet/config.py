"""Settings of a supernet's training, and its reports: plain values."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from nas.errors import UserError
from nas.training.precision import Precision
from nas.training.recipe import Recipe

LOG_STEPS = 25
"""Steps between two entries of a training's curve."""
RANDOM_PATHS = 2
"""Random paths per step where nothing else is said, besides those of the sandwich."""
_SGD: Mapping[str, Any] = {"name": "sgd", "lr": 0.05, "lr_batch_size": None, "fused": False}
_PLAIN: Mapping[str, Any] = {
    "accumulate_steps": 1,
    "ema_decay": None,
    "validate_on": "val",
    "recalibrate_images": 0,
}
"""Settings of a recipe that a supernet has no use for, with the values that say so."""


def supernet_recipe(recipe: Recipe) -> Recipe:
    """The recipe of a supernet, made of that for candidates: larger batches, less decay, a shorter warm-up, and SGD.

    Muon would turn a layer as far as all of its channels, of which most paths use a part.
    """
    if recipe.optimizer.name == "muon":
        recipe = recipe.changed(optimizer=_SGD, least_steps=0, clip_norm=2.0)
    return recipe.changed(
        batch_size=64,
        optimizer={"weight_decay": 1e-4},
        schedule={"warmup_fraction": 0.1},
        ema_decay=None,
        distillation={"teacher": None},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SupernetConfig:
    """Several paths per step, each on the same images.

    Raises:
        UserError: a value that makes no sense, or a recipe with settings that a supernet has no use for.
    """

    recipe: Recipe
    """Everything that any training is told; epochs do not count. `clip_norm` is of one path's gradients: those of
    several, which share little where families differ, may be larger by the root of their number."""
    steps: int = 2000
    sandwich: bool = True
    """Train a largest and a smallest path in every step, the largest one teaching the others. Without it all paths are
    random and learn from the labels (single path one-shot, Guo et al. 2020, https://arxiv.org/abs/1904.00420)."""
    random_paths: int = RANDOM_PATHS
    """Random paths per step, besides those of the sandwich."""
    fair: bool = False
    """Let the random paths of a step take turns: in each stage, as many of them have one block family as have any other
    (Chu et al. 2019, https://arxiv.org/abs/1907.01845). Give as many random paths as there are families."""
    distillation: float = 1.0
    """Share of in-place distillation in the loss of all but the largest path; the rest is the labels'."""

    def __post_init__(self) -> None:
        rules = {
            "steps": (self.steps >= 1, "at least 1"),
            "random_paths": (self.random_paths >= (not self.sandwich), "at least 0, or 1 without the sandwich"),
            "distillation": (0 <= self.distillation <= 1, "in [0, 1]"),
        }
        _require(self, "supernet", rules)
        for name, plain in _PLAIN.items():
            if getattr(self.recipe, name) != plain:
                raise UserError(
                    f"a supernet has no use for the setting {name} = {getattr(self.recipe, name)!r}",
                    f"set it to {plain!r}",
                )

    def to_json(self) -> dict[str, Any]:
        """A document for `from_json`."""
        return {field.name: getattr(self, field.name) for field in fields(self)} | {"recipe": self.recipe.to_json()}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "SupernetConfig":
        """Inverse of `to_json`."""
        return cls(**{**document, "recipe": Recipe.of(document["recipe"], "supernet")})


@dataclass(frozen=True, slots=True, kw_only=True)
class Adaptation:
    """Training of a single path before it is scored, from the shared weights on: a warm-up, then cosine decay."""

    steps: int = 250
    batch_size: int = 32
    lr: float = 0.02
    """Peak learning rate of SGD; the rest is as candidates are trained."""

    def __post_init__(self) -> None:
        rules = {
            "steps": (self.steps >= 1, "at least 1"),
            "batch_size": (self.batch_size >= 2, "at least 2 (batch norm)"),
            "lr": (self.lr > 0, "above 0"),
        }
        _require(self, "adaptation", rules)


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
    """Progress of a training, in all its sessions together."""

    steps: int
    seconds: float
    """Seconds of training, by the clock."""
    core_seconds: float
    """Processor time of this process while training."""
    precision: Precision
    curve: tuple[StepLog, ...]
    stopped: str | None = None
    """Reason why it ended before its last step; None where it did not."""

    @property
    def diverged(self) -> bool:
        return self.stopped is not None and self.stopped.startswith("diverged")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "SupernetLog":
        return cls(**{**document, "curve": tuple(StepLog(**entry) for entry in document["curve"])})


def _require(settings: object, kind: str, rules: Mapping[str, tuple[bool, str]]) -> None:
    """Raises `UserError` for the first setting that breaks its rule; `kind` names the settings in the message."""
    for name, (holds, rule) in rules.items():
        if not holds:
            raise UserError(f"{kind} setting {name} = {getattr(settings, name)!r}", f"{name} must be {rule}")
