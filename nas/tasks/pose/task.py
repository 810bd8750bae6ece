"""Pose estimation as a `nas.tasks.task.Task`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nas.data.images import Preprocess, image_side
from nas.data_options import USUAL, DataOptions, refuse
from nas.tasks.baseline import BaselineNetwork
from nas.tasks.floor import Floor
from nas.tasks.objects import ObjectTask
from nas.tasks.pose.artifacts import PoseArtifacts
from nas.tasks.pose.data.skeleton import Skeleton
from nas.tasks.pose.data.values import PoseData, Poses, PoseSplit
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

SHAPE = TrainingShape(short_epochs=(10, 40), min_short_images=128, final_epochs=(30, 300))
"""Points are learnt after boxes: more passes than detection needs before networks can be compared."""


@dataclass(frozen=True, slots=True)
class Pose(ObjectTask[PoseData, PoseSplit]):
    """Boxes of one class with points, mean average precision by object keypoint similarity."""

    name: str = "pose"
    metric: str = "OKS-mAP@50:95"
    examples: str = "images"
    """Not at 0.5 alone: rounding to int8 moves points by pixels, which only the stricter similarities see."""
    default_space: str = "pose"
    fallback_space: str = "pose"
    default_data: str | None = None
    default_recipe: str = "pose-fast"
    shape: TrainingShape = SHAPE
    proxies: tuple[str, ...] = ("synflow", "naswot")
    estimators: tuple[str, ...] = ("zero-cost", "short", "predictor")
    int8_float_part: str = "last layer"
    """See `nas.tasks.task.PartlyFloat`: boxes, scores and points are one tensor, and scores vanish on its one scale."""

    @property
    def baselines(self) -> Mapping[str, BaselineNetwork]:
        return MappingProxyType({})

    @property
    def artifacts(self) -> PoseArtifacts:
        return PoseArtifacts()

    def load(self, name_or_path: str, *, seed: int, options: DataOptions = USUAL) -> PoseData:
        from nas.tasks.detection.data.load import MAX_RESOLUTION
        from nas.tasks.pose.data.load import load_pose

        refuse(options, self.name, "fit", "metric", "class_weights", "tokenizer")
        data = load_pose(name_or_path, seed=seed, max_resolution=options.cap(MAX_RESOLUTION))
        return replace(data, flip_ok=data.flip_ok and options.flip)

    def arrays(self, split: PoseSplit) -> dict[str, Any]:
        """Objects of all images in one array each, with `ends` (n,): their number up to and with each image; and the
        skeleton as JSON."""
        points = len(split.skeleton)
        empty = {
            "area": np.empty(0, np.float32),
            "classes": np.empty(0, np.int64),
            "crowd": np.empty(0, np.bool_),
            "points": np.empty((0, points, 3), np.float32),
            "xyxy": np.empty((0, 4), np.float32),
        }
        return {
            **{name: np.concatenate([none, *(getattr(p, name) for p in split.boxes)]) for name, none in empty.items()},
            "ends": np.cumsum([len(poses) for poses in split.boxes], dtype=np.int64),
            "extents": split.extents,
            "images": split.images,
            "skeleton": np.frombuffer(json.dumps(split.skeleton.to_json()).encode(), np.uint8),
        }

    def split_of(self, arrays: Mapping[str, Any]) -> PoseSplit:
        images, cuts = arrays["images"], arrays["ends"][:-1]
        parts = (np.split(arrays[name], cuts) for name in ("xyxy", "classes", "crowd", "points", "area"))
        poses = tuple(Poses(*of_image) for of_image in zip(*parts, strict=True)) if len(images) else ()
        skeleton = Skeleton.from_json(json.loads(arrays["skeleton"].tobytes()))
        return PoseSplit(images, poses, arrays["extents"], skeleton=skeleton)

    def objective(
        self,
        network: "nn.Module",
        examples: "Examples[PoseSplit]",
        recipe: "Recipe",
        *,
        device: "torch.device",
        teacher: "Teacher | None" = None,
    ) -> "Objective":
        from nas.tasks.pose.objective import PoseObjective

        return PoseObjective(network, examples, recipe, device, teacher)

    @property
    def teaching(self) -> None:
        return None

    def accuracy(
        self,
        network: "nn.Module",
        split: PoseSplit,
        preprocess: Preprocess,
        *,
        precision: Precision = "fp32",
        device: str = "auto",
    ) -> float:
        from nas.tasks.pose.evaluate import figures_of, found_by

        return figures_of(found_by(network, split, preprocess, precision=precision, device=device), split).map50_95

    def accuracy_in_runtime(
        self, run: Run, split: PoseSplit, preprocess: Preprocess, signature: Signature, *, batch: int = 1
    ) -> float:
        from nas.tasks.pose.evaluate import figures_of, found_in_runtime

        return figures_of(found_in_runtime(run, split, preprocess, batch=batch), split).map50_95

    def figures_in_runtime(
        self,
        run: Run,
        split: PoseSplit,
        preprocess: Preprocess,
        signature: Signature,
        *,
        classes: Sequence[str],
        batch: int = 1,
    ) -> dict[str, float]:
        """OKS-mAP@50:95, OKS-mAP@50 and the boxes' mAP@50."""
        from nas.tasks.pose.evaluate import figures_of, found_in_runtime

        found = figures_of(found_in_runtime(run, split, preprocess, batch=batch), split)
        return {self.metric: found.map50_95, "OKS-mAP@50": found.map50, "box mAP@50": found.box_map50}

    def agreement(self, got: NDArray[np.float32], expected: NDArray[np.float32], signature: Signature) -> float:
        """See `nas.tasks.pose.agreement`."""
        from nas.tasks.pose.agreement import agreement

        return agreement(got, expected, resolution=image_side(signature.input))

    def floors(self, data: PoseData, seed: int) -> tuple[Floor, ...]:
        from nas.tasks.pose.floors import pose_floors

        return pose_floors(data)
