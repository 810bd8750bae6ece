"""How detectors are trained where nothing else is said."""

from typing import Any

from nas.training.config import TrainConfig


def recipe(**settings: Any) -> TrainConfig:
    """The recipe of short trainings from scratch, with some `settings` of `TrainConfig` changed."""
    defaults: dict[str, Any] = {
        "epochs": 30,
        "batch_size": 8,
        "lr": 2e-3,
        "optimizer": "adamw",
        "weight_decay": 0.05,
        "clip_norm": 10.0,
        "ema_decay": 0.998,
        "augment": "mosaic",
    }
    return TrainConfig(**{**defaults, **settings})
