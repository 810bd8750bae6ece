"""`run.py` of a detector: letterbox, run, decode, suppress, draw; all but the drawing is this package's own code."""

from nas.data.portable import MAX_PIXELS, affine, normalised, open_image, read_rgb, to_rgb
from nas.tasks.detection import decoding, postprocess
from nas.tasks.detection.anchors import Level, anchors_of
from nas.tasks.detection.decoding import DECODERS
from nas.tasks.detection.geometry import area, pairwise_iou
from nas.tasks.detection.portable import described, find, preprocess, raw_boxes
from nas.tasks.script import script_of

_PURPOSE = (
    "Find objects: python run.py photo.jpg writes photo-detected.png. Without a photo: run the sample, compare outputs."
)
_MAIN = """\
DECODERS = {"<kind>": <decoder>}

here = Path(__file__).resolve().parent
documents = "labels.json", "preprocess.json", "postprocess.json", "sample.json"
labels, how, rules, sample = (json.loads((here / name).read_text("utf-8")) for name in documents)
file = Path(sys.argv[1]) if sys.argv[1:] else here / sample["image"]
image = read_rgb(file)
inputs, factors = preprocess(image, how)
{run}
boxes, scores = raw_boxes(output, rules, how["resolution"])
found = find(boxes, scores, rules)

draw, height = ImageDraw.Draw(image), max(12, max(image.size) // 50)
for thing in described(found, factors, image.size, labels):
    x0, y0, x1, y1 = thing["xyxy"]
    text, colour = f"{thing['label']} {thing['score']:.0%}", f"hsl({labels.index(thing['label']) * 67 % 360}, 80%, 40%)"
    print(f"{text}: {x0:.0f} {y0:.0f} {x1:.0f} {y1:.0f}")
    draw.rectangle((x0, y0, x1, y1), outline=colour, width=max(2, height // 5))
    draw.rectangle(draw.textbbox((x0, y0), text, font_size=height), fill=colour)
    draw.text((x0, y0), text, fill="white", font_size=height)
image.save(f"{file.stem}-detected.png")
if not sys.argv[1:]:
    difference = float(np.abs(output - np.load(here / sample["outputs"])).max())
    print(f"largest difference from the stored output: {difference:.2g}, allowed: {sample['tolerance']:.2g}")
    sys.exit(not difference <= sample["tolerance"])
"""


def detection_script(head_kind: str) -> str:
    """The template of `run.py`; see `nas.tasks.script.script_of`."""
    decoder = DECODERS[head_kind]
    parts = (
        *(to_rgb, open_image, read_rgb, affine, normalised, preprocess),
        *(Level, anchors_of, decoding.boxes_from_raw, decoding.moved_anchors, decoding.sigmoid, decoder, raw_boxes),
        *(area, pairwise_iou, postprocess.Found, postprocess.suppress, postprocess.of_image, postprocess.detections),
        *(find, described),
    )
    constants = {
        "MAX_PIXELS": MAX_PIXELS,
        "LARGEST_GROWTH": decoding.LARGEST_GROWTH,
        "CANDIDATES": postprocess.CANDIDATES,
        "BLOCK": postprocess.BLOCK,
    }
    main = _MAIN.replace("<kind>", head_kind).replace("<decoder>", decoder.__name__)
    return script_of(_PURPOSE, constants, parts, main)
