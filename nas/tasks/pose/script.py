"""`run.py` of a pose network: letterbox, run, decode, suppress, draw limbs; all but the drawing is this package's own
code."""

from nas.data.portable import MAX_PIXELS, affine, normalised, open_image, read_rgb, to_rgb
from nas.tasks.detection import decoding as boxes
from nas.tasks.detection import postprocess
from nas.tasks.detection.anchors import Level, anchors_of
from nas.tasks.detection.geometry import area, pairwise_iou
from nas.tasks.detection.portable import preprocess
from nas.tasks.pose import decoding
from nas.tasks.pose.portable import described_poses, find_poses, limbs_shown
from nas.tasks.script import script_of

_PURPOSE = (
    "Find poses: python run.py photo.jpg writes photo-poses.png. Without a photo: run the sample, compare outputs."
)
_MAIN = """\
here = Path(__file__).resolve().parent
documents = "labels.json", "preprocess.json", "postprocess.json", "skeleton.json", "sample.json"
labels, how, rules, skeleton, sample = (json.loads((here / name).read_text("utf-8")) for name in documents)
file = Path(sys.argv[1]) if sys.argv[1:] else here / sample["image"]
image = read_rgb(file)
inputs, factors = preprocess(image, how)
{run}
found = find_poses(output, rules, how["resolution"])

draw, width = ImageDraw.Draw(image), max(2, max(image.size) // 200)
for number, thing in enumerate(described_poses(found, factors, image.size, labels)):
    x0, y0, x1, y1 = thing["xyxy"]
    colour = f"hsl({number * 67 % 360}, 90%, 50%)"
    print(f"{thing['label']} {thing['score']:.0%}: {x0:.0f} {y0:.0f} {x1:.0f} {y1:.0f}")
    draw.rectangle((x0, y0, x1, y1), outline=colour, width=max(1, width // 2))
    for line in limbs_shown(thing["points"], skeleton["limbs"], rules["point"]):
        draw.line(line, fill=colour, width=width)
    for name, (x, y, sure) in zip(skeleton["names"], thing["points"]):
        if sure >= rules["point"]:
            print(f"  {name} {sure:.0%}: {x:.0f} {y:.0f}")
            draw.ellipse((x - width, y - width, x + width, y + width), fill="white", outline=colour)
image.save(f"{file.stem}-poses.png")
if not sys.argv[1:]:
    difference = float(np.abs(output - np.load(here / sample["outputs"])).max())
    print(f"largest difference from the stored output: {difference:.2g}, allowed: {sample['tolerance']:.2g}")
    sys.exit(not difference <= sample["tolerance"])
"""


def pose_script() -> str:
    """The template of `run.py`; see `nas.tasks.script.script_of`."""
    parts = (
        *(to_rgb, open_image, read_rgb, affine, normalised, preprocess),
        *(Level, anchors_of, boxes.boxes_from_raw, boxes.decode_anchor_free),
        *(area, pairwise_iou, postprocess.Found, postprocess.suppress),
        *(decoding.FoundPoses, decoding.decode_poses, decoding.found_poses),
        *(find_poses, described_poses, limbs_shown),
    )
    constants = {
        "MAX_PIXELS": MAX_PIXELS,
        "BLOCK": postprocess.BLOCK,
        "REACH": decoding.REACH,
        "BOX_VALUES": decoding.BOX_VALUES,
    }
    return script_of(_PURPOSE, constants, parts, _MAIN)
