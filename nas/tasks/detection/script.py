"""`run.py` of a detector: letterbox, run, decode as `nas.tasks.detection.heads` does, suppress, draw."""

from collections.abc import Mapping

_SCRIPT = '''\
"""Find objects: python run.py photo.jpg writes photo-detected.png. Without a photo: run the sample, compare outputs."""

import json
import sys
from pathlib import Path

import numpy as np
{imports}
from PIL import Image, ImageDraw, ImageOps

here = Path(__file__).resolve().parent
papers = "labels.json", "preprocess.json", "postprocess.json", "sample.json"
labels, how, rules, sample = (json.loads((here / name).read_text("utf-8")) for name in papers)
file = Path(sys.argv[1]) if sys.argv[1:] else here / sample["image"]
{open}

# The picture lies at the top left of a grey square: boxes are scaled, never shifted.
size, mean, std = how["resolution"], np.array(how["mean"]), np.array(how["std"])
fitted = [max(1, round(side * (size / max(image.size)))) for side in image.size]
square = Image.new("RGB", (size, size), (how["padding"],) * 3)
square.paste(image.resize(fitted, Image.Resampling.BILINEAR))
pixels = np.asarray(square, np.float32) * (1 / (255 * std)).astype(np.float32) + (-mean / std).astype(np.float32)
images = np.ascontiguousarray(pixels.transpose(2, 0, 1)[None])
{run}

# Each prediction has a point, and an anchor whose width and height its box is relative to.
points, anchors = [], []
for level in rules["levels"]:
    line = (np.arange(level["cells"]) + level["offset"]) * level["step_px"]
    grid = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    points.append(np.repeat(grid, len(level["sizes_px"]), axis=0))
    anchors.append(np.tile(level["sizes_px"], (len(grid), 1)))
points, anchors = np.concatenate(points), np.concatenate(anchors)
sigmoid = lambda logits: 0.5 * (1 + np.tanh(0.5 * logits))
{decode}
boxes = boxes.clip(0, size)

# Best first; a box that overlaps a better one of its class too much is the same object once more.
found = []
good = sorted(np.argwhere(scores > rules["score"]), key=lambda pair: -scores[tuple(pair)])
for at, label in good[: rules["candidates"]]:
    box, better = boxes[at], np.array([boxes[i] for i, other in found if other == label]).reshape(-1, 4)
    common = (np.minimum(better[:, 2:], box[2:]) - np.maximum(better[:, :2], box[:2])).clip(0).prod(axis=1)
    union = (better[:, 2:] - better[:, :2]).prod(axis=1) + (box[2:] - box[:2]).prod() - common
    if (common <= rules["iou"] * union).all():
        found.append((at, label))

draw, height = ImageDraw.Draw(image), max(12, max(image.size) // 50)
for at, label in found[: rules["most"]]:
    x0, y0, x1, y1 = (boxes[at] * np.tile(np.divide(image.size, fitted), 2)).clip(0, image.size * 2).tolist()
    text, colour = f"{labels[label]} {scores[at, label]:.0%}", f"hsl({label * 67 % 360}, 80%, 40%)"
    print(f"{text}: {x0:.0f} {y0:.0f} {x1:.0f} {y1:.0f}")
    draw.rectangle((x0, y0, x1, y1), outline=colour, width=max(2, height // 5))
    draw.rectangle(draw.textbbox((x0, y0), text, font_size=height), fill=colour)
    draw.text((x0, y0), text, fill="white", font_size=height)
image.save(f"{file.stem}-detected.png")
if not sys.argv[1:]:
    difference = float(np.abs(output - np.load(here / sample["outputs"])).max())
    print(f"largest difference from the stored output: {difference:.2g}, allowed: {sample['tolerance']:.2g}")
    sys.exit(not difference <= sample["tolerance"])
'''

_MOVED = """\
moved = output[:, :4] / rules["weights"]
middles = points + anchors * moved[:, :2]
halves = anchors * np.exp(moved[:, 2:].clip(None, rules["largest_growth"])) / 2
boxes = np.hstack([middles - halves, middles + halves])
"""

_DECODE: Mapping[str, str] = {
    "anchor-free": """\
reach = np.logaddexp(0, output[:, :4]) * np.tile(anchors, 2)
boxes, scores = np.hstack([points - reach[:, :2], points + reach[:, 2:]]), sigmoid(output[:, 4:])""",
    "fcos": """\
reach = output[:, :4] * np.tile(anchors, 2)
boxes = np.hstack([points - reach[:, :2], points + reach[:, 2:]])
scores = np.sqrt(sigmoid(output[:, 4:-1]) * sigmoid(output[:, -1:]))""",
    "retinanet": _MOVED + "scores = sigmoid(output[:, 4:])",
    "ssd": _MOVED
    + """\
shares = np.exp(output[:, 4:] - output[:, 4:].max(axis=1, keepdims=True))
scores = (shares / shares.sum(axis=1, keepdims=True))[:, 1:]""",
}
"""Head kind -> lines that turn `output` (A, 4 + ...), `points` and `anchors` (A, 2) into `boxes` (A, 4) and `scores`
(A, c)."""


def detection_script(head_kind: str) -> str:
    """The template of `run.py`; see `nas.bundles.run_script.run_script`."""
    return _SCRIPT.replace("{decode}", _DECODE[head_kind])
