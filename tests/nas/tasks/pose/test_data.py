"""Pose data from files: what is read, what is mended and said, and what is refused in a sentence."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from experiments.stick_figures import SKELETON, figures, write_coco_figures
from nas.data_options import USUAL
from nas.errors import UserError
from nas.tasks import TASKS
from nas.tasks.detection.data.load import load_detection
from nas.tasks.pose.data import PoseData, Skeleton, load_pose
from nas.tasks.pose.data.skeleton import COCO_SIGMAS, mirror_of, sigmas_of

REAL = Path(__file__).parents[4] / "shared" / "data" / "keypoints" / "coco_person_kp.tar"
TRAIN = "annotations/person_keypoints_train.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_coco_figures(tmp_path / "figures", {"train": 12, "val": 4, "test": 4}, 64)


def changed(folder: Path, change: Callable[[dict[str, Any]], object], name: str = TRAIN) -> Path:
    """The folder with one of its documents changed in place."""
    document = json.loads((folder / name).read_text())
    change(document)
    (folder / name).write_text(json.dumps(document))
    return folder


def test_a_folder_is_read_as_it_was_written(folder: Path) -> None:
    data, written = load_pose(folder), figures(12, 0, 64)
    assert isinstance(data, PoseData)
    assert (data.task, data.classes, data.output_size, data.native_resolution) == ("pose", ("person",), (1, 17), 64)
    assert data.skeleton == SKELETON
    assert [len(split) for split in (data.train, data.val, data.test)] == [12, 4, 4]
    by_image = {image.tobytes(): poses for image, poses in zip(written.images, written.boxes, strict=True)}
    for image, poses in zip(data.train.images, data.train.boxes, strict=True):
        truth = by_image[image.tobytes()]
        np.testing.assert_allclose(poses.xyxy, truth.xyxy, atol=1e-3)
        np.testing.assert_allclose(poses.points, truth.points, atol=1e-3)
        np.testing.assert_allclose(poses.area, truth.area, rtol=1e-4)
    half = data.at("train", 32)
    np.testing.assert_allclose(half.boxes[0].points[..., :2] * 2, data.train.boxes[0].points[..., :2], atol=1e-3)
    assert np.array_equal(half.boxes[0].points[..., 2], data.train.boxes[0].points[..., 2])
    np.testing.assert_allclose(half.boxes[0].area * 4, data.train.boxes[0].area, rtol=1e-5)


def test_fingerprints_tell_where_points_are(folder: Path) -> None:
    before = load_pose(folder).train.fingerprints
    changed(folder, lambda d: d["annotations"][0]["keypoints"].__setitem__(0, d["annotations"][0]["keypoints"][0] + 1))
    assert (load_pose(folder).train.fingerprints != before).sum() == 1


def test_any_number_of_points_and_their_sigmas(folder: Path) -> None:
    def three(document: dict[str, Any]) -> None:
        document["categories"][0] |= {"keypoints": ["head", "tail", "nose"], "skeleton": [[1, 2]]}
        del document["categories"][0]["sigmas"]
        for annotation in document["annotations"]:
            annotation["keypoints"] = annotation["keypoints"][:9]

    for name in ("train", "val", "test"):
        changed(folder, three, f"annotations/person_keypoints_{name}.json")
    data = load_pose(folder)
    assert data.skeleton.sigmas == (0.05, 0.05, COCO_SIGMAS["nose"])
    assert data.skeleton.assumed
    assert data.skeleton.mirror is None
    assert not data.traits.flip_ok
    assert any("sigmas are assumed" in note for note in data.notes)
    assert any("mirror" in note for note in data.notes)


def test_what_is_mended_is_said(folder: Path) -> None:
    def flaws(document: dict[str, Any]) -> None:
        first, second, third, *_ = document["annotations"]
        first["area"] = 0
        second["keypoints"][0:3] = [float("nan"), 5, 2]
        second["keypoints"][3:6] = [999, 5, 2]
        second["keypoints"][6:9] = [0, 0, 0]
        third["keypoints"] = [0] * 51
        del third["area"]

    data = load_pose(changed(folder, flaws))
    assert any(
        note.startswith("areas that are missing or 0 are taken for 0.53 of the box's: 1 ") for note in data.notes
    )
    assert any(note.startswith("points outside their image are not labelled: 1 ") for note in data.notes)
    assert any(note.startswith("points that are no finite numbers are not labelled: 1 ") for note in data.notes)
    assert all((poses.area > 0).all() for poses in data.train.boxes)
    for poses in data.train.boxes:
        assert (poses.points[poses.points[..., 2] == 0] == 0).all()
        assert np.isfinite(poses.points).all()
        assert poses.points[..., :2].max() <= 64
    assert sum(int((~poses.labelled).sum()) for poses in data.train.boxes) == 1


def points_of(number: int) -> Callable[[dict[str, Any]], object]:
    return lambda d: d["annotations"][0].update(keypoints=[1] * number)


def boxes_alone(document: dict[str, Any]) -> None:
    del document["categories"][0]["keypoints"]


def two_skeletons(document: dict[str, Any]) -> None:
    document["categories"].append({"id": 2, "name": "dog", "keypoints": ["nose", "tail"]})


def other_ids(document: dict[str, Any]) -> None:
    for annotation in document["annotations"]:
        annotation["image_id"] += 10_000


def unlabelled(document: dict[str, Any]) -> None:
    for annotation in document["annotations"]:
        annotation["keypoints"] = [0] * 51


BAD: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (points_of(50), r"annotation 1 in '.*train.json' has 50 numbers in keypoints, but the category has 17 points"),
    (two_skeletons, r"the categories 1 \(17 points\), 2 \(2 points\) all have points"),
    (other_ids, r"no annotation of '.*train.json' is of an image that it lists"),
    (unlabelled, r"data set 'figures' has 0 objects with labelled points in train, 10 are needed"),
    (lambda d: d["categories"][0].update(sigmas=[0.05] * 16), r"has 17 points, but sigmas \[0.05, "),
    (lambda d: d["categories"][0].update(sigmas=[0.05] * 16 + [-1]), r"has 17 points, but sigmas"),
    (lambda d: d["categories"][0].update(skeleton=[[1, 18]]), r"has a skeleton that does not fit its 17 points"),
    (lambda d: d["categories"][0].update(keypoints=["a"] * 17), r"has the points \['a', "),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_what_cannot_be_used_is_refused(folder: Path, change: Callable[[dict[str, Any]], object], message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        load_pose(changed(folder, change))
    assert error.value.hint


def test_boxes_alone_are_refused_with_what_to_give(folder: Path) -> None:
    for name in ("train", "val", "test"):
        changed(folder, boxes_alone, f"annotations/person_keypoints_{name}.json")
        (folder / f"annotations/person_keypoints_{name}.json").rename(folder / f"annotations/instances_{name}.json")
    with pytest.raises(UserError, match=r"no category in .*instances_.* has points: they hold boxes alone") as error:
        load_pose(folder)
    assert "person_keypoints_train.json" in (error.value.hint or "")
    assert len(load_detection(folder).train) == 12, "they are fine for detection"


def write_yolo(folder: Path, yaml: str, lines: Callable[[int], str]) -> Path:
    for split, count in (("train", 12), ("val", 2), ("test", 2)):
        for kind in ("images", "labels"):
            (folder / kind / split).mkdir(parents=True)
        for i in range(count):
            Image.new("RGB", (64, 48), (i, 0, 0)).save(folder / "images" / split / f"{i}.png")
            (folder / "labels" / split / f"{i}.txt").write_text(lines(i))
    (folder / "data.yaml").write_text(yaml)
    return folder


def test_yolo_labels_with_and_without_flags(tmp_path: Path) -> None:
    box = "0 0.5 0.5 0.5 0.5"
    flags = write_yolo(
        tmp_path / "flags", "names: [tiger]\nkpt_shape: [3, 3]\nflip_idx: [0, 2, 1]\n",
        lambda i: f"{box} 0.5 0.25 2 0.25 0.5 1 0 0 0\n",
    )  # fmt: skip
    data = load_pose(flags)
    (points,) = data.train.boxes[0].points
    assert points.tolist() == [[32, 12, 2], [16, 24, 1], [0, 0, 0]]
    assert data.train.boxes[0].area.tolist() == pytest.approx([0.53 * 32 * 24])
    assert (data.classes, data.skeleton.mirror) == (("tiger",), (0, 2, 1))
    pairs = write_yolo(tmp_path / "pairs", "names: [tiger]\nkpt_shape: [2, 2]\n", lambda i: f"{box} 0.5 0.25 0 0\n")
    (points,) = load_pose(pairs).train.boxes[0].points
    assert points.tolist() == [[32, 12, 2], [0, 0, 0]]
    assert load_pose(pairs).skeleton.mirror is None


@pytest.mark.parametrize(
    ("yaml", "line", "message"),
    [
        ("names: [a]\n", "0 .5 .5 .5 .5", "no data.yaml of this YOLO folder has kpt_shape"),
        ("names: [a]\nkpt_shape: [2, 4]\n", "0 .5 .5 .5 .5", "kpt_shape in 'data.yaml' is"),
        ("names: [a]\nkpt_shape: [2, 3]\n", "0 .5 .5 .5 .5 .1 .1 .2 .2", "has 9 fields, but kpt_shape: .* makes 11"),
        ("names: [a]\nkpt_shape: [1, 2]\n", "0 .5 .5 .5 .5 30 40", "line 1 of 'labels/.*' has coordinates in pixels"),
        ("names: [a]\nkpt_shape: [1, 2]\n", "3 .5 .5 .5 .5 .1 .1", "has class '3', which is not declared"),
        ("names: [a, b]\nkpt_shape: [1, 2]\n", "0 .5 .5 .5 .5 .1 .1", "names the classes a, b, and a pose network"),
        (
            "names: [a]\nkpt_shape: [2, 2]\nflip_idx: [0, 0]\n", "0 .5 .5 .5 .5 .1 .1 .2 .2",
            "flip_idx in 'data.yaml' is no permutation of 0 to 1",
        ),
    ],
)  # fmt: skip
def test_yolo_labels_that_cannot_be_used(tmp_path: Path, yaml: str, line: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        load_pose(write_yolo(tmp_path / "set", yaml, lambda i: line))
    assert error.value.hint


def test_other_folders_are_refused(tmp_path: Path) -> None:
    Image.new("RGB", (32, 32)).save(tmp_path / "a.png")
    with pytest.raises(UserError, match="no annotations of points of training images"):
        load_pose(tmp_path)
    with pytest.raises(UserError, match="no such file or folder"):
        load_pose(tmp_path / "absent")
    with pytest.raises(UserError, match="metric"):
        TASKS["pose"].load(str(tmp_path), seed=0, options=type(USUAL)(metric="balanced-accuracy"))


def test_mirrors_and_sigmas_by_name() -> None:
    assert mirror_of(["nose", "left_eye", "right_eye"]) == (0, 2, 1)
    assert mirror_of(["Left Hand", "Right Hand"]) == (1, 0)
    assert mirror_of(["left_eye", "nose"]) is None, "there is no right one"
    assert mirror_of(["a", "b"]) is None, "nobody can tell"
    assert mirror_of(list(COCO_SIGMAS)) == SKELETON.mirror
    assert sigmas_of(["nose"]) == ((0.026,), False)
    assert Skeleton.from_json(json.loads(json.dumps(SKELETON.to_json()))) == SKELETON
    for wrong in (
        {"sigmas": (0.1,)}, {"sigmas": (0.1, 0.0)}, {"limbs": ((0, 2),)}, {"mirror": (0, 0)}, {"names": ("a", "a")},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"points|sigmas"):
            Skeleton(**{"names": ("a", "b"), "limbs": (), "sigmas": (0.1, 0.1), "mirror": None, **wrong})  # type: ignore[arg-type]


@pytest.mark.skipif(not REAL.exists(), reason=f"{REAL.name} is not beside the checkout")
def test_photographs() -> None:
    data = load_pose(REAL, max_resolution=320)
    assert (len(data.train) + len(data.val), len(data.test)) == (56, 65)
    assert sum(int(p.labelled.sum()) for s in (data.train, data.val) for p in s.boxes) == 159
    assert sum(int(p.labelled.sum()) for p in data.test.boxes) == 209
    assert not data.skeleton.assumed
    assert data.skeleton.mirror is not None
