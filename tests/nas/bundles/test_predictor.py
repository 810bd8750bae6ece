"""A bundle opened from Python gives the same inputs, outputs and answers as its own script."""

import io
import json
import runpy
import shutil
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from nas.bundles.predictor import Predictor
from nas.bundles.verify import verify_bundle
from nas.data.portable import MAX_PIXELS, open_image
from nas.deployment import Deployment
from nas.errors import UserError
from nas.files.writing import sha256_of
from nas.tasks.detection.artifacts import POSTPROCESS
from tests.nas.detectors import rectangle_data, smallest, write_detector
from tests.nas.small_bundles import digits, write_bundle

TASKS = ("classification", "detection")


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A real bundle of each task; the detector shows what it is hardly sure of, for it has learnt nothing."""
    folder = tmp_path_factory.mktemp("bundles")
    made = {
        "classification": write_bundle(folder / "classifier", data=digits()),
        "detection": write_detector(folder / "detector", smallest(), data=rectangle_data()),
    }
    rules = made["detection"] / POSTPROCESS
    rules.write_text(json.dumps({**json.loads(rules.read_text()), "score": 0.005}))
    receipt = json.loads((made["detection"] / "receipt.json").read_text())
    receipt["sha256"][POSTPROCESS] = sha256_of(rules)
    (made["detection"] / "receipt.json").write_text(json.dumps(receipt))
    return made


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    pixels = rng.integers(0, 255, (90, 140, 3), dtype=np.uint8)
    names = ("photo.jpg", "deep.png", "turned.jpg", "clear.png", "animated.gif", "photo.webp")
    found = {name: folder / name for name in names}
    Image.fromarray(pixels).save(found["photo.jpg"])
    Image.fromarray(rng.integers(0, 65536, (90, 140), dtype=np.uint16)).save(found["deep.png"])
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held upright
    Image.fromarray(pixels).save(found["turned.jpg"], exif=exif)
    Image.fromarray(np.dstack([pixels, pixels[..., 0]])).save(found["clear.png"])
    Image.fromarray(pixels).save(found["animated.gif"], save_all=True, append_images=[Image.fromarray(pixels[::-1])])
    Image.fromarray(pixels).save(found["photo.webp"])
    return found


def by_its_script(bundle: Path, photo: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], Any]:
    """What is known at the end of `run.py`, and the answer by its own functions."""
    monkeypatch.setattr(sys, "argv", [str(bundle / "run.py"), str(photo)])
    seen = runpy.run_path(str(bundle / "run.py"))
    if "found" in seen and "factors" in seen:
        return seen, seen["described"](seen["found"], seen["factors"], seen["image"].size, seen["labels"])
    return seen, seen["postprocess"](seen["output"], seen["labels"])


@pytest.mark.parametrize("name", ["photo.jpg", "deep.png", "turned.jpg", "clear.png", "animated.gif", "photo.webp"])
@pytest.mark.parametrize("task", TASKS)
def test_the_same_answers_as_run_py(
    task: str, name: str, bundles: dict[str, Path], photos: dict[str, Path],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)  # a detector's script draws there
    predictor = Predictor.open(bundles[task])
    seen, answer = by_its_script(bundles[task], photos[name], monkeypatch)
    assert np.array_equal(predictor.processor.preprocess(photos[name]).inputs, seen["inputs"])
    assert np.array_equal(predictor.output(photos[name]), seen["output"])
    assert predictor.predict(photos[name]) == answer
    assert len(answer) > 2
    assert {"label", "score"} <= answer[0].keys()
    assert [a["score"] for a in answer] == sorted((a["score"] for a in answer), reverse=True)
    assert json.loads(json.dumps(answer)) == answer, "plain values"


@pytest.mark.parametrize("task", TASKS)
def test_an_image_in_any_form_and_many_of_them(task: str, bundles: dict[str, Path], photos: dict[str, Path]) -> None:
    predictor = Predictor.open(str(bundles[task]), check=False)
    photo = photos["turned.jpg"]
    expected = predictor.predict(photo)
    with Image.open(photo) as opened, photo.open("rb") as file:
        upright = np.asarray(predictor_image(photo))
        for form in (str(photo), photo.read_bytes(), io.BytesIO(photo.read_bytes()), file, opened, upright):
            assert predictor.predict(form) == expected, type(form)
    assert predictor.predict([]) == []
    many = predictor.predict([photos["photo.jpg"], photo, photos["deep.png"]])
    assert many == [predictor.predict(p) for p in (photos["photo.jpg"], photo, photos["deep.png"])]
    assert many[0] != many[1], "a photo that lies on its side is another one"


def predictor_image(photo: Path) -> Image.Image:
    from nas.data.portable import read_rgb

    return read_rgb(photo)


def test_calls_of_several_images(photos: dict[str, Path], tmp_path: Path) -> None:
    predictor = Predictor.open(write_bundle(tmp_path / "b", Deployment("onnxruntime", "fp32", 1, batch=2), digits()))
    examples = [photos[name] for name in ("photo.jpg", "deep.png", "clear.png")]
    answers = predictor.predict(examples)
    for example, answer in zip(examples, answers, strict=True):
        alone = predictor.predict(example)
        assert [a["label"] for a in answer] == [a["label"] for a in alone]
        np.testing.assert_allclose([a["score"] for a in answer], [a["score"] for a in alone], atol=1e-5)


def test_raw_outputs(bundles: dict[str, Path]) -> None:
    predictor = Predictor.open(bundles["classification"], threads=1)
    inputs = np.random.default_rng(0).standard_normal((3, 3, 32, 32), dtype=np.float32)
    assert predictor.run(inputs).shape == (3, 10)
    for wrong in (inputs[:, :, :16], inputs[0], inputs[:0]):
        with pytest.raises(UserError, match=r"takes inputs of shape \(n, 3, 32, 32\)"):
            predictor.run(wrong)


def test_what_is_no_image_is_one_sentence(bundles: dict[str, Path], tmp_path: Path) -> None:
    predictor = Predictor.open(bundles["classification"])
    (tmp_path / "page.jpg").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EOF\n")
    wrong = {
        "cannot read image": [tmp_path / "page.jpg", tmp_path / "absent.jpg", b"hello", io.BytesIO(b"")],
        "is no image": [np.zeros((8, 8), np.uint8), np.zeros((8, 8, 3)), 5, None],
    }
    for sentence, examples in wrong.items():
        for example in examples:
            with pytest.raises(UserError, match=sentence) as error:
                predictor.predict(example)
            assert error.value.hint


def png_header(width: int, height: int) -> bytes:
    """The beginning of a PNG file, RGB, without any pixels."""
    chunks = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0), b"IDAT"
    parts = (struct.pack(">I", len(c) - 4) + c + struct.pack(">I", zlib.crc32(c)) for c in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@pytest.mark.parametrize("task", TASKS)
def test_what_claims_to_be_huge_is_refused_by_its_header(
    task: str, bundles: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    predictor = Predictor.open(bundles[task], check=False)
    for width, height in ((10_000, 5_001), (1, MAX_PIXELS + 1), (30_000, 30_000)):  # Pillow refuses the last by itself
        photo = tmp_path / "huge.png"
        photo.write_bytes(png_header(width, height))
        with pytest.raises(UserError, match=r"huge\.png' has more than 50 million pixels") as error:
            predictor.predict(photo)
        assert error.value.hint
        with pytest.raises(UserError, match="more than 50 million pixels"):
            predictor.predict(photo.read_bytes())
        with pytest.raises(Image.DecompressionBombError):
            by_its_script(bundles[task], photo, monkeypatch)
    photo.write_bytes(png_header(10_000, 5_000))
    with open_image(photo) as image:
        assert image.width * image.height == MAX_PIXELS, "the limit itself is allowed"


def test_a_bundle_that_was_changed_is_not_opened(bundles: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(bundles["classification"], tmp_path / "copy")
    (folder / "labels.json").write_text(json.dumps(["another"] * 10))
    with pytest.raises(UserError, match=r"not as it was delivered: labels\.json was changed"):
        Predictor.open(folder)
    assert Predictor.open(folder, check=False).predict(folder / "sample.png")[0]["label"] == "another"
    (folder / "model.onnx").unlink()
    with pytest.raises(UserError, match=r"model\.onnx is missing"):
        Predictor.open(folder)
    with pytest.raises(UserError, match="no such bundle"):
        Predictor.open(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="is no bundle"):
        Predictor.open(tmp_path / "empty")


def test_a_network_of_a_run_by_its_number(bundles: dict[str, Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    winner = shutil.copytree(bundles["classification"], run / "winners" / "1")
    for text in (f"{run}#1", str(run), str(winner)):
        assert Predictor.open(text).folder == winner
    statuses = {check.name: check.status for check in verify_bundle(f"{run}#1")}
    assert statuses["checksums"] == statuses["sample output"] == "passed"
    (winner / "receipt.json").rename(tmp_path / "receipt.json")
    with pytest.raises(UserError, match="was not delivered") as error:
        Predictor.open(f"{run}#1")
    assert error.value.hint == f"make one: nas export {run}#1"
    exported = shutil.copytree(bundles["classification"], run / "exports" / "1")
    assert Predictor.open(f"{run}#1").folder == exported
