"""The tables of the bundled staged spaces."""

from collections.abc import Mapping

from search_spaces.architecture import Option
from search_spaces.detect import DetectTable
from search_spaces.pose import PoseTable
from search_spaces.staged import EARLY, SpaceTable, StageTable


def _uniform(
    stem: int, family: str | None, widths: tuple[int, ...], depths: tuple[int, ...], **options: Option
) -> Mapping[str, Option]:
    """An anchor whose stages share all options but width and depth."""
    anchor: dict[str, Option] = {"stem.width": stem}
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True), start=1):
        anchor |= {f"stage{stage}.{short}": option for short, option in options.items()}
        anchor |= {f"stage{stage}.width": width, f"stage{stage}.depth": depth}
        if family is not None:
            anchor[f"stage{stage}.family"] = family
    return anchor


_DENSE_STAGES = (
    StageTable((32, 48, 64, 96), (1, 2, 3)),
    StageTable((48, 64, 96, 128), (1, 2, 3, 4)),
    StageTable((96, 128, 192, 256), (1, 2, 3, 4, 6)),
    StageTable((160, 256, 384, 512), (1, 2, 3)),
)

MOBILE = SpaceTable(
    name="mobile",
    families=("mbconv",),
    stem_widths=(16, 24, 32),
    stages=(
        StageTable((16, 24, 32, 40), (1, 2, 3)),
        StageTable((24, 32, 48, 64), (1, 2, 3, 4)),
        StageTable((64, 80, 96, 128), (1, 2, 3, 4, 6)),
        StageTable((96, 160, 192, 256), (1, 2, 3, 4)),
    ),
    anchors=(
        _uniform(32, None, (24, 32, 96, 160), (2, 3, 6, 3), expansion="high", kernel=3),  # like MobileNetV2
        _uniform(16, None, (24, 48, 96, 160), (2, 3, 4, 3), expansion="medium", kernel=5, se=1, act="hardswish"),
    ),
)

_DENSE_ANCHORS = (
    _uniform(16, "basic", (32, 64, 128, 256), (1, 1, 1, 1)),  # like ResNet-10, half as wide
    _uniform(32, "basic", (64, 96, 192, 384), (1, 1, 1, 1)),  # like ResNet-10, 3/4 wide
    _uniform(32, "basic", (64, 128, 256, 512), (1, 1, 1, 1)),  # like ResNet-10
    _uniform(32, "rep", (48, 96, 192, 384), (2, 3, 4, 1)),  # like a small RepVGG
)

DENSE = SpaceTable(
    name="dense",
    families=("basic", "bottleneck", "fused", "rep"),
    stem_widths=(16, 32, 48, 64),
    stages=_DENSE_STAGES,
    anchors=_DENSE_ANCHORS,
)

MIXED = SpaceTable(
    name="mixed",
    families=("mbconv", "fused", "basic", "bottleneck", "rep"),
    stem_widths=(16, 32, 48, 64),
    stages=_DENSE_STAGES,
    anchors=(
        *_DENSE_ANCHORS,
        _uniform(32, "mbconv", (32, 48, 96, 160), (2, 3, 4, 2), expansion="medium", kernel=3),  # like MobileNetV2
    ),
)


def _speed_run(stem: int, first: int, widths: tuple[int, int, int]) -> Mapping[str, Option]:
    """A pooled network whose first stage, which sees the whole image, is a single convolution."""
    return {**_uniform(stem, "pooled", (first, *widths), (1, 1, 1, 1)), "stage1.family": "rep"}


COMPACT = SpaceTable(
    name="compact",
    families=("pooled", "basic", "rep"),
    stem_widths=(16, 24, 32, 48),
    early=True,
    stages=(
        StageTable((16, 24, 32, 48, 64), (1, 2)),
        StageTable((32, 48, 64, 96, 128), (1, 2)),
        StageTable((64, 96, 128, 192, 256), (1, 2, 3)),
        StageTable((96, 128, 192, 256, 384, 512), (1, 2)),
    ),
    anchors=(
        _speed_run(32, 32, (64, 256, 256)),  # like airbench94 (Jordan 2024)
        _speed_run(32, 32, (48, 192, 192)),
        _speed_run(16, 16, (32, 128, 128)),
        _uniform(16, "basic", (32, 64, 128, 256), (1, 1, 1, 1)),  # like ResNet-10, half as wide
        _uniform(24, "basic", (48, 96, 192, 384), (1, 1, 1, 1)),  # like ResNet-10, 3/4 wide
        # Few wide convolutions on small maps, for limits near the time of a call itself.
        {**_uniform(48, "rep", (64, 128, 256, 256), (1, 2, 1, 1)), EARLY: 1},
        {**_uniform(32, "rep", (48, 96, 192, 192), (1, 2, 1, 1)), EARLY: 1},
    ),
)


def _detector(anchor: Mapping[str, Option], neck_width: int, **head: Option) -> Mapping[str, Option]:
    """A classification anchor's backbone with a PAN neck; neck and head share all options but width and depth."""
    shared = {f"{section}.{short}": option for section in ("neck", "head") for short, option in head.items()}
    return {**anchor, "neck.path": "pan", "neck.width": neck_width, **shared}


_BASIC_HALF, _BASIC_THREE_QUARTERS, _BASIC, _REP, _MOBILE = MIXED.anchors

DETECT = DetectTable(
    name="detect",
    families=MIXED.families,
    stem_widths=MIXED.stem_widths,
    stages=MIXED.stages,
    resolutions=(128, 192, 224, 256, 320, 384, 416),
    neck_widths=(32, 48, 64, 96, 128),
    neck_depths=(1, 2, 3),
    head_depths=(1, 2),
    anchors=(
        _detector(_MOBILE, 64, family="mbconv", kernel=3, expansion="low"),  # like a small YOLOX with MobileNetV2
        _detector(_BASIC_HALF, 48, family="rep"),
        _detector(_BASIC_HALF, 64, family="mbconv", kernel=5, expansion="low", act="hardswish"),
        _detector(_BASIC, 64, family="rep"),  # like YOLOv6 on ResNet-10
        _detector(_REP, 64, family="rep"),
    ),
)


def _pose(detector: Mapping[str, Option], depth: int) -> Mapping[str, Option]:
    """A detector with a tower of `depth` blocks like those of its head for the points."""
    head = {short: detector[f"head.{short}"] for short in ("family", "kernel", "expansion", "act")
            if f"head.{short}" in detector}  # fmt: skip
    return {**detector, **{f"pose.{short}": option for short, option in head.items()}, "pose.depth": depth}


POSE = PoseTable(
    name="pose",
    families=DETECT.families,
    stem_widths=DETECT.stem_widths,
    stages=DETECT.stages,
    resolutions=(*DETECT.resolutions, 512),
    neck_widths=DETECT.neck_widths,
    neck_depths=DETECT.neck_depths,
    head_depths=DETECT.head_depths,
    pose_depths=(1, 2, 3),
    pose_width_percents=(100, 150, 200),
    anchors=tuple(_pose(detector, 1) for detector in DETECT.anchors),
)
