"""The bundle of a network that finds poses in an image."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nas.data.preprocessing import read_instructions
from nas.data.processor import image_of, read_document, read_labels, sample_entries
from nas.errors import UserError
from nas.files.writing import write_json
from nas.tasks.artifacts import Figures, Sheet
from nas.tasks.detection.artifacts import (
    LABELS,
    POSTPROCESS,
    SHEET_IMAGES,
    TIMED_IMAGES,
    ObjectArtifacts,
    ObjectProcessor,
    levels_of,
    postprocess_ms,
)
from nas.tasks.pose.data.skeleton import Skeleton
from nas.tasks.pose.portable import described_poses, find_poses
from nas.tasks.pose.script import pose_script
from search_spaces import Signature, TensorSpec

if TYPE_CHECKING:
    from nas.tasks.pose.data.values import PoseData
    from nas.tasks.task import Run

SKELETON, SHEET = "skeleton.json", "poses.png"


@dataclass(frozen=True, slots=True)
class PoseProcessor(ObjectProcessor):
    """See `nas.tasks.artifacts.Processor`: label, score, box and points of each object, in pixels of the picture."""

    skeleton: Skeleton

    def postprocess(self, output: NDArray[np.float32], context: Any) -> list[dict[str, Any]]:
        factors, size = context
        return described_poses(find_poses(output, self.rules, self.how["resolution"]), factors, size, self.labels)

    def drawn(self, example: Any, answer: Sequence[Mapping[str, Any]]) -> bytes:
        """See `nas.tasks.artifacts.Locating`."""
        from nas.tasks.pose.pictures import draw_answer

        image, png = image_of(example), io.BytesIO()
        draw_answer(image, answer, self.skeleton.limbs)
        image.save(png, "PNG")
        return png.getvalue()


class PoseArtifacts(ObjectArtifacts):
    """See `nas.tasks.artifacts.BundleArtifacts`."""

    def rules(self, kind: str, side: int) -> dict[str, Any]:
        return postprocess_document(kind, side)

    def script(self, signature: Signature) -> str:
        return pose_script()

    def processor(self, folder: Path) -> PoseProcessor:
        rules = read_document(folder, POSTPROCESS)
        return PoseProcessor(read_instructions(folder), rules, read_labels(folder, LABELS), _read_skeleton(folder))

    def write_sample(
        self, folder: Path, data: "PoseData", input: TensorSpec
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """See `nas.tasks.artifacts.BundleArtifacts.write_sample`; also writes what the points are called and how they
        hang together."""
        write_json(folder / SKELETON, data.skeleton.to_json())
        split = data.for_input("val", input)
        with_poses = [i for i, poses in enumerate(split.boxes) if poses.labelled.any()]
        example = (split.take(with_poses) if with_poses else split).some(1)
        (poses,) = example.boxes
        truth = [
            {
                "label": data.classes[0],
                "xyxy": [round(float(edge), 1) for edge in box],
                "points": [[round(float(value), 1) for value in point] for point in points],
            }
            for box, points in zip(poses.xyxy, poses.points, strict=True)
        ]
        return data.inputs(example), {**sample_entries(folder, example.images[0], data.picture_size), "truth": truth}

    def figures(self, run: "Run", data: "PoseData", signature: Signature, batch: int) -> Figures:
        from nas.tasks.detection.agreement import MOST_SHOWN, SHOWN_IOU
        from nas.tasks.pose.evaluate import SHOWN_SCORE, figures_of, found_in_runtime, poses_of
        from nas.tasks.pose.floors import in_boxes_found, mean_pose
        from nas.tasks.pose.metrics import oks_precision

        def decode(raw: NDArray[np.float32]) -> None:
            poses_of(raw, split.resolution, SHOWN_SCORE, iou=SHOWN_IOU, most=MOST_SHOWN)

        split = data.for_input("val", signature.input)
        found = found_in_runtime(run, split, data.preprocess, batch=batch)
        figures = figures_of(found, split)
        same_boxes = in_boxes_found(found, mean_pose(data.train))
        floor = oks_precision(same_boxes, split.boxes, split.skeleton.sigmas)
        return Figures(
            accuracy={
                "oks_map50": figures.map50,
                "box_map50": figures.box_map50,
                "mean_pose_in_found_boxes": floor.map50_95,
                "sigmas_assumed": data.skeleton.assumed,
            },
            more={"postprocess_ms": postprocess_ms(run, split.some(TIMED_IMAGES), data.preprocess, decode, batch)},
        )

    def sheet(self, run: "Run", data: "PoseData", signature: Signature, batch: int) -> Sheet | None:
        from nas.tasks.pose.evaluate import SHOWN_SCORE, found_in_runtime
        from nas.tasks.pose.pictures import sheet

        split = data.for_input("val", signature.input).some(SHEET_IMAGES)
        found = found_in_runtime(run, split, data.preprocess, batch=batch, least_score=SHOWN_SCORE)
        png = io.BytesIO()
        sheet(split, found, data.classes[0]).save(png, "PNG", optimize=True)
        caption = (
            f"{len(split)} validation images, chosen by chance: the points that are labelled on them, and what the "
            f"first winner's deployed file finds with a score of at least {SHOWN_SCORE:g}."
        )
        return Sheet(file=SHEET, png=png.getvalue(), caption=caption)


def postprocess_document(kind: str, resolution: int) -> dict[str, Any]:
    """From raw outputs to poses, for people and programs; lengths in pixels of the network's input."""
    from nas.tasks.detection.agreement import MOST_SHOWN, SHOWN_IOU
    from nas.tasks.detection.postprocess import CANDIDATES
    from nas.tasks.pose.agreement import SHOWN_POINT
    from nas.tasks.pose.evaluate import SHOWN_SCORE

    return {
        "head_kind": kind,
        "score": SHOWN_SCORE,
        "iou": SHOWN_IOU,
        "candidates": CANDIDATES,
        "most": MOST_SHOWN,
        "point": SHOWN_POINT,
        "levels": [asdict(level) for level in levels_of(kind, resolution)],
    }


def _read_skeleton(folder: Path) -> Skeleton:
    try:
        return Skeleton.from_json(read_document(folder, SKELETON))
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"'{folder / SKELETON}' does not describe points: {error}", "export the network again"
        ) from error
