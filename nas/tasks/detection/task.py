"""Object detection as a `nas.tasks.task.Task`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nas.data.images import Preprocess, image_side
from nas.data_options import USUAL, DataOptions, refuse
from nas.tasks.baseline import BaselineNetwork
from nas.tasks.detection.artifacts import DetectionArtifacts
from nas.tasks.detection.baselines import BASELINES
from nas.tasks.detection.data import Boxes, DetectionData, DetectionSplit
from nas.tasks.floor import Floor
from nas.tasks.objects import ObjectTask
from nas.tasks.task import Run, TrainingShape
from nas.training.precision import Precision
from search_spaces import Signature

if TYPE_CHECKING:
    import torch
    from torch import nn

    from nas.tasks.examples import Examples
    from nas.training.distill import Teacher
    from nas.training.objective import Objective
    from nas.training.recipe import Recipe

SHAPE = TrainingShape(short_epochs=(5, 30), min_short_images=128, final_epochs=(15, 150))
"""Sets of boxes have hundreds of images, not thousands: many passes over few of them. A mean average precision is near
zero for the first dozen steps, whatever the network (one network on BCCD at 256 px: 0.003 after 12 steps, 0.16
after 25, 0.38 after 38)."""


@dataclass(frozen=True, slots=True)
class Detection(ObjectTask[DetectionData, DetectionSplit]):
    """Boxes with classes, mean average precision at an IoU of 0.5."""

    name: str = "detection"
    metric: str = "mAP@50"
    examples: str = "images"
    default_space: str = "detect"
    fallback_space: str = "detect"
    default_data: str | None = None
    default_recipe: str = "detection-fast"
    shape: TrainingShape = SHAPE
    proxies: tuple[str, ...] = ("synflow", "naswot")
    """Those that need a class per image do not exist here."""
    estimators: tuple[str, ...] = ("zero-cost", "short", "predictor")

    @property
    def baselines(self) -> Mapping[str, BaselineNetwork]:
        return BASELINES

    @property
    def artifacts(self) -> DetectionArtifacts:
        return DetectionArtifacts()

    def load(self, name_or_path: str, *, seed: int, options: DataOptions = USUAL) -> DetectionData:
        from nas.tasks.detection.data.load import MAX_RESOLUTION, load_detection

        refuse(options, self.name, "fit", "metric", "class_weights", "tokenizer")
        data = load_detection(name_or_path, seed=seed, max_resolution=options.cap(MAX_RESOLUTION))
        return replace(data, flip_ok=data.flip_ok and options.flip)

    def arrays(self, split: DetectionSplit) -> dict[str, Any]:
        """Boxes of all images in one array each, with `ends` (n,): the number of boxes up to and with each image."""
        return {
            "images": split.images,
            "classes": np.concatenate([np.empty(0, np.int64), *(b.classes for b in split.boxes)]),
            "crowd": np.concatenate([np.empty(0, np.bool_), *(b.crowd for b in split.boxes)]),
            "ends": np.cumsum([len(b) for b in split.boxes], dtype=np.int64),
            "extents": split.extents,
            "xyxy": np.concatenate([np.empty((0, 4), np.float32), *(b.xyxy for b in split.boxes)]),
        }

    def split_of(self, arrays: Mapping[str, Any]) -> DetectionSplit:
        images, cuts = arrays["images"], arrays["ends"][:-1]
        parts = (np.split(arrays[name], cuts) for name in ("xyxy", "classes", "crowd"))
        boxes = tuple(Boxes(*of_image) for of_image in zip(*parts, strict=True)) if len(images) else ()
        return DetectionSplit(images, boxes, arrays["extents"])

    def objective(
        self,
        network: "nn.Module",
        examples: "Examples[DetectionSplit]",
        recipe: "Recipe",
        *,
        device: "torch.device",
        teacher: "Teacher | None" = None,
    ) -> "Objective":
        from nas.tasks.detection.objective import DetectionObjective

        return DetectionObjective(network, examples, recipe, device, teacher)

    @property
    def teaching(self) -> None:
        return None

    def accuracy(
        self,
        network: "nn.Module",
        split: DetectionSplit,
        preprocess: Preprocess,
        *,
        precision: Precision = "fp32",
        device: str = "auto",
    ) -> float:
        from nas.tasks.detection.evaluate import metrics_of

        return metrics_of(network, split, preprocess, precision=precision, device=device).map50

    def accuracy_in_runtime(
        self, run: Run, split: DetectionSplit, preprocess: Preprocess, signature: Signature, *, batch: int = 1
    ) -> float:
        from nas.tasks.detection.evaluate import metrics_in_runtime

        return metrics_in_runtime(run, split, preprocess, head_kind=signature.output.kind, batch=batch).map50

    def figures_in_runtime(
        self,
        run: Run,
        split: DetectionSplit,
        preprocess: Preprocess,
        signature: Signature,
        *,
        classes: Sequence[str],
        batch: int = 1,
    ) -> dict[str, float]:
        """mAP@50, mAP@50:95, and AP@50 of each class that has objects."""
        from nas.tasks.detection.evaluate import metrics_in_runtime

        found = metrics_in_runtime(run, split, preprocess, head_kind=signature.output.kind, batch=batch)
        per_class = zip(classes, found.per_class_ap50, strict=True)
        return {
            self.metric: found.map50,
            "mAP@50:95": found.map50_95,
            **{f"AP@50 {name}": ap for name, ap in per_class if not math.isnan(ap)},
        }

    def agreement(self, got: NDArray[np.float32], expected: NDArray[np.float32], signature: Signature) -> float:
        """See `nas.tasks.detection.agreement`."""
        from nas.tasks.detection.agreement import agreement

        side = image_side(signature.input)
        return agreement(got, expected, head_kind=signature.output.kind, resolution=side)

    def floors(self, data: DetectionData, seed: int) -> tuple[Floor, ...]:
        return ()  # no box is found by guessing
