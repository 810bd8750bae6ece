"""The bundle of a network that finds objects in an image."""

import io
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nas.data.images import Preprocess, image_side
from nas.data.portable import PADDING
from nas.data.preprocessing import PREPROCESS, preprocess_document, read_instructions, read_preprocess
from nas.data.processor import image_of, read_document, read_labels, sample_entries, usual_picture
from nas.tasks.artifacts import Figures, Prepared, Sheet
from nas.tasks.detection.portable import described, find, preprocess, raw_boxes
from nas.tasks.detection.script import detection_script
from search_spaces import Signature, TensorSpec

if TYPE_CHECKING:
    from nas.tasks.detection.anchors import Level
    from nas.tasks.detection.data.values import DetectionData, DetectionSplit
    from nas.tasks.task import Run

LABELS, POSTPROCESS, OUTPUT = "labels.json", "postprocess.json", "sample.npy"
TIMED_IMAGES = 50
"""Most validation images on which decoding and suppression are timed."""
SHEET, SHEET_IMAGES = "detections.png", 12


@dataclass(frozen=True, slots=True)
class ObjectProcessor:
    """The half of `nas.tasks.artifacts.Processor` that does not depend on what is told of each object."""

    how: Mapping[str, Any]
    rules: Mapping[str, Any]
    labels: Sequence[str]

    def preprocess(self, example: Any) -> Prepared:
        image = image_of(example)
        inputs, factors = preprocess(image, self.how)
        return Prepared(inputs, (factors, image.size), size=image.size)


@dataclass(frozen=True, slots=True)
class DetectionProcessor(ObjectProcessor):
    """See `nas.tasks.artifacts.Processor`: label, score and box of each object, in pixels of the picture."""

    def postprocess(self, output: NDArray[np.float32], context: Any) -> list[dict[str, Any]]:
        factors, size = context
        found = find(*raw_boxes(output, self.rules, self.how["resolution"]), self.rules)
        return described(found, factors, size, self.labels)

    def drawn(self, example: Any, answer: Sequence[Mapping[str, Any]]) -> bytes:
        """See `nas.tasks.artifacts.Locating`."""
        from nas.tasks.detection.pictures import draw_answer

        image, png = image_of(example), io.BytesIO()
        draw_answer(image, answer)
        image.save(png, "PNG")
        return png.getvalue()


class ObjectArtifacts(ABC):
    """The part of `nas.tasks.artifacts.BundleArtifacts` that does not depend on what is told of each object."""

    @abstractmethod
    def rules(self, kind: str, side: int) -> dict[str, Any]:
        """From raw outputs of a head of that kind to answers, for images of `side` pixels."""

    @abstractmethod
    def processor(self, folder: Path) -> ObjectProcessor:
        """See `nas.tasks.artifacts.BundleArtifacts.processor`."""

    def documents(self, preprocess: Preprocess, signature: Signature) -> dict[str, Any]:
        resize = "longer side, bilinear with antialiasing; the picture at the top left, the rest of the square grey"
        side = image_side(signature.input)
        return {
            PREPROCESS: preprocess_document(preprocess, side, resize=resize, padding=PADDING),
            POSTPROCESS: self.rules(signature.output.kind, side),
        }

    def read_preprocess(self, folder: Path) -> Preprocess | None:
        return read_preprocess(folder)

    def read_sample(self, folder: Path, sample: Mapping[str, Any]) -> NDArray[np.float32]:
        return self.processor(folder).preprocess(folder / Path(sample["image"]).name).inputs

    def usual_example(self, folder: Path, sample: Mapping[str, Any]) -> Any:
        return usual_picture(folder, sample)

    def write_output(self, folder: Path, output: NDArray[np.float32]) -> dict[str, Any]:
        # Many numbers: thousands of places, for each of which there are four and the classes.
        np.save(folder / OUTPUT, output, allow_pickle=False)
        return {"outputs": OUTPUT}

    def read_output(self, folder: Path, sample: Mapping[str, Any]) -> NDArray[np.float32]:
        output: NDArray[np.float32] = np.load(folder / Path(sample["outputs"]).name, allow_pickle=False)
        return output


class DetectionArtifacts(ObjectArtifacts):
    """See `nas.tasks.artifacts.BundleArtifacts`."""

    def rules(self, kind: str, side: int) -> dict[str, Any]:
        return postprocess_document(kind, side)

    def script(self, signature: Signature) -> str:
        return detection_script(signature.output.kind)

    def processor(self, folder: Path) -> DetectionProcessor:
        rules = read_document(folder, POSTPROCESS)
        return DetectionProcessor(read_instructions(folder), rules, read_labels(folder, LABELS))

    def write_sample(
        self, folder: Path, data: "DetectionData", input: TensorSpec
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        split = data.for_input("val", input)
        with_objects = [i for i, boxes in enumerate(split.boxes) if len(boxes)]
        example = (split.take(with_objects) if with_objects else split).some(1)
        (boxes,) = example.boxes
        truth = [
            {"label": data.classes[label], "xyxy": [round(float(edge), 1) for edge in box]}
            for label, box in zip(boxes.classes, boxes.xyxy, strict=True)
        ]
        return data.inputs(example), {**sample_entries(folder, example.images[0], data.picture_size), "truth": truth}

    def figures(self, run: "Run", data: "DetectionData", signature: Signature, batch: int) -> Figures:
        from nas.tasks.detection.agreement import shown
        from nas.tasks.detection.evaluate import metrics_in_runtime
        from nas.tasks.detection.heads import HEADS

        split, head_kind = data.for_input("val", signature.input), signature.output.kind

        def decode(raw: NDArray[np.float32]) -> None:
            shown(*HEADS[head_kind].decode(raw, split.resolution))

        found = metrics_in_runtime(run, split, data.preprocess, head_kind=head_kind, batch=batch)
        by_class = dict(zip(data.classes, (None if math.isnan(ap) else ap for ap in found.per_class_ap50), strict=True))
        return Figures(
            accuracy={"map50_95": found.map50_95, "per_class_ap50": by_class},
            more={"postprocess_ms": postprocess_ms(run, split.some(TIMED_IMAGES), data.preprocess, decode, batch)},
        )

    def sheet(self, run: "Run", data: "DetectionData", signature: Signature, batch: int) -> Sheet | None:
        from nas.tasks.detection.agreement import SHOWN_SCORE
        from nas.tasks.detection.evaluate import found_in_runtime
        from nas.tasks.detection.pictures import sheet

        split = data.for_input("val", signature.input).some(SHEET_IMAGES)
        found, _ = found_in_runtime(
            run, split, data.preprocess, head_kind=signature.output.kind, batch=batch, least_score=SHOWN_SCORE
        )
        png = io.BytesIO()
        sheet(split, found, data.classes).save(png, "PNG", optimize=True)
        caption = (
            f"{len(split)} validation images, chosen by chance: what is on them, and what the first winner's deployed "
            f"file finds with a score of at least {SHOWN_SCORE:g}."
        )
        return Sheet(file=SHEET, png=png.getvalue(), caption=caption)


def postprocess_document(head_kind: str, resolution: int) -> dict[str, Any]:
    """From raw outputs to objects, for people and programs; lengths in pixels of the network's input."""
    from nas.tasks.detection.agreement import MOST_SHOWN, SHOWN_IOU, SHOWN_SCORE
    from nas.tasks.detection.decoding import LARGEST_GROWTH
    from nas.tasks.detection.postprocess import CANDIDATES
    from nas.tasks.detection.torchvision_heads import OFFSET_WEIGHTS

    weights = OFFSET_WEIGHTS.get(head_kind)
    return {
        "head_kind": head_kind,
        "score": SHOWN_SCORE,
        "iou": SHOWN_IOU,
        "candidates": CANDIDATES,
        "most": MOST_SHOWN,
        "levels": [asdict(level) for level in levels_of(head_kind, resolution)],
        **({"weights": list(weights), "largest_growth": LARGEST_GROWTH} if weights is not None else {}),
    }


def levels_of(head_kind: str, resolution: int) -> "tuple[Level, ...]":
    """The places of the predictions of that kind on an image of `resolution` rows and columns."""
    from nas.tasks.detection.anchors import Level
    from nas.tasks.detection.geometry import STRIDES
    from nas.tasks.detection.torchvision_heads import TORCHVISION_HEADS

    if head_kind in TORCHVISION_HEADS:
        return TORCHVISION_HEADS[head_kind].levels(resolution)
    return tuple(Level(resolution // stride, float(stride), 0.5, ((float(stride),) * 2,)) for stride in STRIDES)


def postprocess_ms(
    run: "Run",
    split: "DetectionSplit",
    preprocess: Preprocess,
    decode: Callable[[NDArray[np.float32]], Any],
    batch: int,
) -> float:
    """Median milliseconds of `decode`, which makes answers of an image's raw outputs (1, ...)."""
    times_ms = []
    for number in range(len(split)):
        image = split.images[number]
        raw = run(preprocess.array(np.repeat(image[None], batch, axis=0)))[:1]
        start = time.perf_counter()
        decode(raw)
        times_ms.append(1e3 * (time.perf_counter() - start))
    return float(np.median(times_ms))
