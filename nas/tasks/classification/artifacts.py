"""The bundle of a network that tells the class of an image."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nas.data.images import Preprocess, image_side
from nas.data.portable import MAX_PIXELS, PADDING, affine, normalised, open_image, read_rgb, squared, to_rgb
from nas.data.preprocessing import PREPROCESS, preprocess_document, read_instructions, read_preprocess
from nas.data.processor import image_of, read_labels, sample_entries, usual_picture
from nas.data_options import Fit
from nas.errors import UserError
from nas.tasks.artifacts import Figures, Prepared, Sheet
from nas.tasks.classification.portable import postprocess, preprocess
from nas.tasks.script import script_of
from search_spaces import Signature, TensorSpec

if TYPE_CHECKING:
    from nas.data import ImageData
    from nas.tasks.task import Run

LABELS = "labels.json"
RESIZE: Mapping[Fit, str] = {
    "crop": "shorter side, bilinear with antialiasing, centre crop",
    "letterbox": "longer side, bilinear with antialiasing, in the middle of a grey square",
}
"""What `preprocess.json` says of each way to make a square, for people."""

_PURPOSE = "Classify an image: python run.py photo.jpg. Without one: run the sample and compare with its stored output."
_MAIN = """\
here = Path(__file__).resolve().parent
documents = "labels.json", "preprocess.json", "sample.json"
labels, how, sample = (json.loads((here / name).read_text("utf-8")) for name in documents)
file = Path(sys.argv[1]) if sys.argv[1:] else here / sample["image"]
inputs = preprocess(read_rgb(file), how)
{run}
for found in postprocess(output, labels)[:5]:
    print(f"{found['label']}: {found['score']:.1%}")
if not sys.argv[1:]:
    difference = float(np.abs(output - np.array(sample["logits"])).max())
    print(f"largest difference from the stored output: {difference:.2g}, allowed: {sample['tolerance']:.2g}")
    sys.exit(not difference <= sample["tolerance"])
"""


@dataclass(frozen=True, slots=True)
class ClassificationProcessor:
    """See `nas.tasks.artifacts.Processor`: every class with its probability."""

    how: Mapping[str, Any]
    labels: Sequence[str]

    def preprocess(self, example: Any) -> Prepared:
        image = image_of(example)
        return Prepared(preprocess(image, self.how), None, size=image.size)

    def postprocess(self, output: NDArray[np.float32], context: Any) -> list[dict[str, Any]]:
        if len(self.labels) != len(output):
            raise UserError(
                f"{LABELS} names {len(self.labels)} classes, the network tells {len(output)} apart",
                "export the network again",
            )
        return postprocess(output, self.labels)


class ClassificationArtifacts:
    """See `nas.tasks.artifacts.BundleArtifacts`."""

    def documents(self, preprocess: Preprocess, signature: Signature) -> dict[str, Any]:
        how: dict[str, Any] = {"fit": preprocess.framing, "resize": RESIZE[preprocess.framing]}
        if preprocess.framing == "letterbox":
            how["padding"] = PADDING
        return {PREPROCESS: preprocess_document(preprocess, image_side(signature.input), **how)}

    def read_preprocess(self, folder: Path) -> Preprocess | None:
        return read_preprocess(folder)

    def script(self, signature: Signature) -> str:
        parts = (to_rgb, open_image, read_rgb, squared, affine, normalised, preprocess, postprocess)
        return script_of(_PURPOSE, {"MAX_PIXELS": MAX_PIXELS, "PADDING": PADDING}, parts, _MAIN)

    def processor(self, folder: Path) -> ClassificationProcessor:
        return ClassificationProcessor(read_instructions(folder), read_labels(folder, LABELS))

    def write_sample(
        self, folder: Path, data: "ImageData", input: TensorSpec
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        example = data.for_input("val", input).some(1)
        image = sample_entries(folder, example.images[0], data.picture_size)
        return data.inputs(example), {**image, "label": data.classes[int(example.labels[0])]}

    def read_sample(self, folder: Path, sample: Mapping[str, Any]) -> NDArray[np.float32]:
        return self.processor(folder).preprocess(folder / Path(sample["image"]).name).inputs

    def usual_example(self, folder: Path, sample: Mapping[str, Any]) -> Any:
        return usual_picture(folder, sample)

    def write_output(self, folder: Path, output: NDArray[np.float32]) -> dict[str, Any]:
        return {"logits": [float(value) for value in output]}

    def read_output(self, folder: Path, sample: Mapping[str, Any]) -> NDArray[np.float32]:
        return np.array(sample["logits"], dtype=np.float32)

    def figures(self, run: "Run", data: "ImageData", signature: Signature, batch: int) -> Figures:
        return Figures()

    def sheet(self, run: "Run", data: "ImageData", signature: Signature, batch: int) -> Sheet | None:
        return None
