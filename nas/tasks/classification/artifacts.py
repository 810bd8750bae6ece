"""The bundle of a network that tells the class of an image."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nas.data.images import Preprocess
from nas.data.preprocessing import PREPROCESS, preprocess_document, read_preprocess
from nas.tasks.artifacts import Figures, Sheet

if TYPE_CHECKING:
    from nas.data import ImageData
    from nas.networks.description import NetworkDescription
    from nas.tasks.task import Run

_SCRIPT = '''\
"""Classify an image: python run.py photo.jpg. Without one: run the sample and compare with its stored output."""

import json
import sys
from pathlib import Path

import numpy as np
{imports}
from PIL import Image, ImageOps

here = Path(__file__).resolve().parent
papers = "labels.json", "preprocess.json", "sample.json"
labels, how, sample = (json.loads((here / name).read_text("utf-8")) for name in papers)
size, mean, std = how["resolution"], np.array(how["mean"]), np.array(how["std"])
file = Path(sys.argv[1]) if sys.argv[1:] else here / sample["image"]
{open}
pixels = np.asarray(ImageOps.fit(image, (size, size), Image.Resampling.BILINEAR), np.float32)
pixels = pixels * (1 / (255 * std)).astype(np.float32) + (-mean / std).astype(np.float32)
images = np.ascontiguousarray(pixels.transpose(2, 0, 1)[None])
{run}
shares = np.exp(output - output.max()) / np.exp(output - output.max()).sum()
for best in output.argsort()[::-1][:5]:
    print(f"{labels[best]}: {shares[best]:.1%}")
if not sys.argv[1:]:
    difference = float(np.abs(output - np.array(sample["logits"])).max())
    print(f"largest difference from the stored output: {difference:.2g}, allowed: {sample['tolerance']:.2g}")
    sys.exit(not difference <= sample["tolerance"])
'''


class ClassificationArtifacts:
    """See `nas.tasks.artifacts.BundleArtifacts`."""

    def documents(self, preprocess: Preprocess, description: "NetworkDescription") -> dict[str, Any]:
        resize = "shorter side, bilinear with antialiasing, centre crop"
        return {PREPROCESS: preprocess_document(preprocess, description.resolution, resize=resize)}

    def read_preprocess(self, folder: Path) -> Preprocess | None:
        return read_preprocess(folder)

    def script(self, description: "NetworkDescription") -> str:
        return _SCRIPT

    def sample(self, data: "ImageData", resolution: int) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        example = data.at("val", resolution).some(1)
        return example.images[0], {"label": data.classes[int(example.labels[0])]}

    def write_output(self, folder: Path, output: NDArray[np.float32]) -> dict[str, Any]:
        return {"logits": [float(value) for value in output]}

    def read_output(self, folder: Path, sample: Mapping[str, Any]) -> NDArray[np.float32]:
        return np.array(sample["logits"], dtype=np.float32)

    def figures(self, run: "Run", data: "ImageData", description: "NetworkDescription", batch: int) -> Figures:
        return Figures()

    def sheet(self, run: "Run", data: "ImageData", description: "NetworkDescription", batch: int) -> Sheet | None:
        return None
