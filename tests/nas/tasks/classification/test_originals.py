"""Networks are judged on the very pixels that a bundle makes of the original files."""

import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nas.data import ImageData
from nas.data.images import image_input, image_side
from nas.data_options import DataOptions
from nas.errors import UserError
from nas.executors.shared_data import without_files
from nas.tasks.classification.artifacts import ClassificationArtifacts, ClassificationProcessor
from nas.tasks.classification.data.registry import load_dataset
from search_spaces import OutputSpec, Signature, TensorSpec

SIZE = 300, 420
"""Columns and rows of the photos: at 64 px and below a JPEG is decoded in part, unless it has to be exact."""


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """JPEG files with detail in every pixel."""
    root, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for split, count in (("train", 6), ("val", 2), ("test", 3)):
        for label, name in enumerate(("dark", "light")):
            (root / split / name).mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 128, (SIZE[1], SIZE[0], 3)) + 100 * label
                Image.fromarray(pixels.astype(np.uint8)).save(root / split / name / f"{number}.jpg", quality=95)
    return root


def bundle_inputs(data: ImageData, split: str, input: TensorSpec, root: Path) -> np.ndarray:
    """What a bundle's code makes of the files, in the order of the split."""
    signature = Signature(input, OutputSpec("logits", (2,), (2,)))
    how = ClassificationArtifacts().documents(data.preprocess, signature)["preprocess.json"]
    processor = ClassificationProcessor(how, data.classes)
    files = sorted((root / split).glob("*/*.jpg"))
    return np.concatenate([processor.preprocess(file).inputs for file in files])


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("stored", [96, 64])
@pytest.mark.parametrize("side", [64, 48])
def test_pixels_are_those_of_a_bundle(photos: Path, tmp_path: Path, packed: bool, stored: int, side: int) -> None:
    source, input = photos, image_input(side)
    if packed:
        source = tmp_path / "photos.tar"
        with tarfile.open(source, "w") as archive:
            archive.add(photos, "photos")
    data = load_dataset(str(source), options=DataOptions(max_resolution=stored))
    assert data.picture_size == (SIZE[1], SIZE[0])
    for name in ("val", "test"):
        split = data.for_input(name, input)
        assert image_side(split.input) == side
        np.testing.assert_array_equal(data.inputs(split), bundle_inputs(data, name, input, photos))
        assert split.labels.tolist() == getattr(data, name).labels.tolist()
        assert data.for_input(name, input) is split, "decoded once"
    trained_on = data.inputs(data.for_input("train", input))
    exact = bundle_inputs(data, "train", input, photos)
    assert np.abs(trained_on - exact).mean() < 0.2 * exact.std(), "nearly the same, and much faster to make"


def test_parts_and_copies_of_a_split_know_their_files(photos: Path) -> None:
    data = load_dataset(str(photos), options=DataOptions(max_resolution=96))
    part = data.test.take([4, 1])
    assert part.originals is not None
    assert part.originals.names == (("test", "light", "1.jpg"), ("test", "dark", "1.jpg"))
    again = data.with_preprocess(data.preprocess).for_input("val", image_input(48))
    np.testing.assert_array_equal(again.images, data.for_input("val", image_input(48)).images)
    held_out = load_dataset(str(photos / "train"), options=DataOptions(max_resolution=96))
    expected = [Image.open(photos / "train" / Path(*name)) for name in held_out.val.originals.names]  # type: ignore[union-attr]
    assert [picture.size for picture in expected] == [SIZE] * len(held_out.val)


def test_files_that_went_away_are_named(photos: Path, tmp_path: Path) -> None:
    archive = tmp_path / "photos.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(photos, "photos")
    data = load_dataset(str(archive), options=DataOptions(max_resolution=96))
    with tarfile.open(archive, "w") as tar:
        tar.add(photos / "train", "photos/train")
    with pytest.raises(UserError, match=r"no longer has photos/test/dark/0\.jpg"):
        data.for_input("test", image_input(48))


def test_what_goes_to_another_machine_refers_to_no_file_of_this_one(photos: Path) -> None:
    data = load_dataset(str(photos), options=DataOptions(max_resolution=96))
    sent = without_files(data)
    assert data.val.originals is not None
    assert [split.originals for split in (sent.train, sent.val, sent.test)] == [None] * 3
    np.testing.assert_array_equal(sent.val.images, data.val.images)
    assert sent.for_input("val", image_input(48)).resolution == 48, "made of what was stored"
