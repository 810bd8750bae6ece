"""The script that travels with a bundle: it needs numpy, Pillow and the runtime, and nothing of this project."""

from collections.abc import Callable, Mapping

from nas.deployment import Deployment

_SCRIPT = '''\
"""Classify an image: python run.py photo.jpg. Without one: run the sample and compare with its stored output."""

import json
import sys
from pathlib import Path

import numpy as np
{imports}
from PIL import Image, ImageOps

here = Path(__file__).resolve().parent
labels, how, sample = (json.loads((here / f).read_text("utf-8")) for f in ({papers}))
size, mean, std = how["resolution"], np.array(how["mean"]), np.array(how["std"])
image = ImageOps.exif_transpose(Image.open(sys.argv[1] if sys.argv[1:] else here / sample["image"])).convert("RGB")
pixels = np.asarray(ImageOps.fit(image, (size, size), Image.Resampling.BILINEAR), np.float32)
pixels = pixels * (1 / (255 * std)).astype(np.float32) + (-mean / std).astype(np.float32)
images = np.ascontiguousarray(pixels.transpose(2, 0, 1)[None])
{run}
shares = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
for best in logits.argsort()[::-1][:5]:
    print(f"{{labels[best]}}: {{shares[best]:.1%}}")
if not sys.argv[1:]:
    difference = float(np.abs(logits - np.array(sample["logits"])).max())
    print(f"largest difference from the stored output: {{difference:.2g}}, allowed: {{sample['tolerance']:.2g}}")
    sys.exit(not difference <= sample["tolerance"])
'''


_PAPERS = '"labels.json", "preprocess.json", "sample.json"'


def _onnxruntime(deployment: Deployment, file: str) -> tuple[str, str]:
    return "import onnxruntime", (
        f"options = onnxruntime.SessionOptions()\n"
        f"options.intra_op_num_threads = {deployment.threads}\n"
        f'session = onnxruntime.InferenceSession(here / "{file}", options, providers=["CPUExecutionProvider"])\n'
        f"logits = session.run(None, {{session.get_inputs()[0].name: images}})[0][0]"
    )


def _openvino(deployment: Deployment, file: str) -> tuple[str, str]:
    # A processor without bf16 takes that hint and computes in fp32.
    hint = "f32" if deployment.precision == "fp32" else "bf16"
    options = f'"INFERENCE_NUM_THREADS": {deployment.threads}, "INFERENCE_PRECISION_HINT": "{hint}"'
    return "import openvino", (
        f'config = {{"PERFORMANCE_HINT": "LATENCY", {options}}}\n'
        f'logits = openvino.Core().compile_model(here / "{file}", "CPU", config)([images])[0][0]'
    )


def _torch(deployment: Deployment, file: str) -> tuple[str, str]:
    """A network in torch is built by code: this one alone needs the package that wrote the bundle."""
    dtype = "bfloat16" if deployment.precision == "bf16" else "float32"
    return "import torch\nfrom nas.export.checkpoint import load_network", (
        f'where = {{"device": "cuda" if torch.cuda.is_available() else "cpu", "dtype": torch.{dtype}}}\n'
        f'network = load_network(here / "{file}").to(**where)\n'
        f"with torch.inference_mode():\n"
        f"    logits = network(torch.from_numpy(images).to(**where))[0].float().cpu().numpy()"
    )


_LOADERS: Mapping[str, Callable[[Deployment, str], tuple[str, str]]] = {
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
    "torch": _torch,
}
"""Runtime -> (its imports, the lines that turn `images` into `logits`)."""


def run_script(deployment: Deployment, file: str) -> str | None:
    """The text of `run.py` for a bundle whose model is `file`; None for a runtime that has no such script."""
    loader = _LOADERS.get(deployment.runtime)
    if loader is None:
        return None
    imports, run = loader(deployment, file)
    return _SCRIPT.format(papers=_PAPERS, imports=imports, run=run)
