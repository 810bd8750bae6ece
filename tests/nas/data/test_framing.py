"""Pictures of any aspect as squares: the middle of them, or all of them, alike in training data and in bundles."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nas.data import Preprocess
from nas.data.images import image_input, resize_images
from nas.data.portable import PADDING, squared
from nas.data_options import DataOptions
from nas.errors import UserError
from nas.tasks.classification.artifacts import ClassificationArtifacts, ClassificationProcessor
from nas.tasks.classification.data.registry import load_dataset
from search_spaces import OutputSpec, Signature

LETTERBOX = DataOptions(fit="letterbox", max_resolution=64)
HOW = Signature(image_input(48), OutputSpec("logits", (2,), (2,)))


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    """Photos of 160 x 80 pixels; only their left edge tells the class."""
    rng = np.random.default_rng(0)
    for label, name in enumerate(("plain", "marked")):
        for split, count in (("train", 6), ("val", 2), ("test", 2)):
            (tmp_path / split / name).mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 60, (80, 160, 3), dtype=np.uint8)
                pixels[:, :20] = 255 * label
                Image.fromarray(pixels).save(tmp_path / split / name / f"{number}.png")
    return tmp_path


def test_letterboxes_keep_edges_and_crops_lose_them(wide: Path) -> None:
    for options, expected in ((LETTERBOX, True), (DataOptions(max_resolution=64), False)):
        data = load_dataset(str(wide), options=options)
        marked = data.train.images[data.train.labels == data.classes.index("marked")]
        assert bool((marked > 200).any()) is expected
        assert any("--fit letterbox" in note for note in data.notes)
    assert (load_dataset(str(wide), options=LETTERBOX).train.images[:, :16] == PADDING).all()


@pytest.mark.parametrize("fit", ["crop", "letterbox"])
def test_a_bundle_makes_the_pixels_that_networks_are_judged_on(wide: Path, tmp_path: Path, fit: str) -> None:
    data = load_dataset(str(wide), options=DataOptions(fit=fit, max_resolution=64))  # type: ignore[arg-type]
    artifacts = ClassificationArtifacts()
    how = artifacts.documents(data.preprocess, HOW)["preprocess.json"]
    assert how["fit"] == fit
    processor = ClassificationProcessor(how, data.classes)
    files = sorted((wide / "val").glob("*/*.png"), key=lambda file: (data.classes.index(file.parent.name), file.name))
    made = np.concatenate([processor.preprocess(file).inputs for file in files])
    held = data.for_input("test", HOW.input)  # the given val
    tested = sorted((wide / "test").glob("*/*.png"), key=lambda file: (data.classes.index(file.parent.name), file.name))
    np.testing.assert_array_equal(data.inputs(data.for_input("val", HOW.input)), made)
    np.testing.assert_array_equal(data.inputs(held), np.concatenate([processor.preprocess(f).inputs for f in tested]))


def test_the_script_of_a_bundle_has_the_same_code() -> None:
    script = ClassificationArtifacts().script(HOW).replace("{imports}", "")
    names: dict[str, object] = {}
    exec(compile(script[: script.index("here = Path")], "run.py", "exec"), names)
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (30, 90, 3), dtype=np.uint8))
    how = ClassificationArtifacts().documents(Preprocess((0.5,) * 3, (0.2,) * 3, "letterbox"), HOW)["preprocess.json"]  # type: ignore[arg-type]
    expected = ClassificationProcessor(how, ()).preprocess(image).inputs
    np.testing.assert_array_equal(names["preprocess"](image, how), expected)  # type: ignore[operator]


def test_documents_say_how_and_old_ones_are_of_crops(tmp_path: Path) -> None:
    artifacts = ClassificationArtifacts()
    for framing in ("crop", "letterbox"):
        known = Preprocess((0.1, 0.2, 0.3), (0.4, 0.5, 0.6), framing)  # type: ignore[arg-type]
        document = artifacts.documents(known, HOW)["preprocess.json"]
        (tmp_path / "preprocess.json").write_text(json.dumps(document))
        assert artifacts.read_preprocess(tmp_path) == known
    del document["fit"]
    (tmp_path / "preprocess.json").write_text(json.dumps(document))
    assert artifacts.read_preprocess(tmp_path) == Preprocess((0.1, 0.2, 0.3), (0.4, 0.5, 0.6), "crop")
    (tmp_path / "preprocess.json").write_text(json.dumps({**document, "fit": "stretch"}))
    with pytest.raises(UserError, match="unknown fit"):
        artifacts.read_preprocess(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        *({"resolution": 0}, {"resolution": 10**30}, {"resolution": 48.0}, {"resolution": None}, {"padding": 300}),
        *({"mean": [0.1]}, {"mean": "abc"}, {"std": [0.1, 0.0, 0.1]}, {"std": [1e400, 1, 1]}, {"fit": ["crop"]}),
    ],
)
def test_instructions_that_no_input_can_be_made_by_are_refused(tmp_path: Path, change: dict[str, object]) -> None:
    known = Preprocess((0.1, 0.2, 0.3), (0.4, 0.5, 0.6), "letterbox")
    document = ClassificationArtifacts().documents(known, HOW)["preprocess.json"]
    (tmp_path / "labels.json").write_text('["a", "b"]')
    for content, refused in ((document, False), ({**document, **change}, True)):
        (tmp_path / "preprocess.json").write_text(json.dumps(content))
        if not refused:
            assert ClassificationArtifacts().processor(tmp_path).how == document
            continue
        with pytest.raises(UserError, match=r"preprocess\.json"):
            ClassificationArtifacts().processor(tmp_path)
    (tmp_path / "preprocess.json").write_text(json.dumps(document))
    (tmp_path / "labels.json").write_text('{"a": 1}')
    with pytest.raises(UserError, match="no list of names"):
        ClassificationArtifacts().processor(tmp_path)


def test_a_network_is_not_judged_on_pictures_of_another_fit(wide: Path) -> None:
    cut, whole = load_dataset(str(wide)), load_dataset(str(wide), options=LETTERBOX)
    with pytest.raises(UserError, match="seen pictures by --fit letterbox"):
        cut.with_preprocess(whole.preprocess)
    assert whole.with_preprocess(whole.preprocess).preprocess == whole.preprocess


@pytest.mark.parametrize("size", [(1, 4000), (4000, 1), (3, 2), (64, 64), (65, 64)])
@pytest.mark.parametrize("fit", ["crop", "letterbox"])
def test_extreme_pictures_become_squares(size: tuple[int, int], fit: str) -> None:
    image = Image.new("RGB", size, (255, 0, 0))
    assert squared(image, 64, fit).size == (64, 64)
    arrays = resize_images(np.asarray(image)[None], 64, fit)  # type: ignore[arg-type]
    assert arrays.shape == (1, 64, 64, 3)
    assert np.abs(arrays[0].astype(int) - np.asarray(squared(image, 64, fit))).max() <= 1


def test_larger_images_are_kept_where_asked(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(4):
            pixels = np.random.default_rng(number).integers(0, 256, (300, 320, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{number}{name}.png", compress_level=0)
    assert load_dataset(str(tmp_path)).native_resolution == 224
    assert load_dataset(str(tmp_path), options=DataOptions(max_resolution=320)).native_resolution == 300
