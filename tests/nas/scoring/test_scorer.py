"""From files to rows in one process."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from nas.bundles.predictor import Predictor
from nas.errors import UserError
from nas.scoring.listing import list_folder, readable
from nas.scoring.rows import Row, answered, row_of_json, schema, table_bytes, table_of
from nas.scoring.scorer import CHANGED, Item, Stamp, score
from tests.nas.scoring.conftest import write_images

pytestmark = pytest.mark.xdist_group("scoring")


@pytest.fixture(scope="module")
def predictor(bundle: Path) -> Predictor:
    return Predictor.open(bundle, threads=1)


def odd_images(folder: Path) -> list[Path]:
    """Images that are read, each of another kind."""
    rng = np.random.default_rng(0)
    pixels = Image.fromarray(rng.integers(0, 255, (30, 50, 3), dtype=np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6
    pixels.save(folder / "turned.jpg", exif=exif)
    pixels.convert("CMYK").save(folder / "cmyk.jpg")
    pixels.save(folder / "animated.gif", save_all=True, append_images=[pixels.rotate(180)])
    Image.fromarray(rng.integers(0, 65536, (30, 50), dtype=np.uint16)).save(folder / "deep.png")
    return sorted(folder.iterdir())


def test_rows_say_what_the_predictor_answers(predictor: Predictor, tmp_path: Path) -> None:
    paths = [*odd_images(tmp_path), *write_images(tmp_path / "more", 9)]
    (tmp_path / "cut.jpg").write_bytes(paths[-1].read_bytes()[:200])
    items = [Item(p.name, str(p)) for p in (*paths, tmp_path / "cut.jpg", tmp_path / "gone.jpg")]
    rows = score(predictor, items, top=3)
    for path, row in zip(paths, rows, strict=False):
        answer = predictor.predict(path)
        assert (row.path, row.label, row.score) == (path.name, answer[0]["label"], answer[0]["score"])
        assert row.labels == tuple(found["label"] for found in answer[:3])
        assert row.scores == tuple(found["score"] for found in answer[:3])
        assert row.error is None
        assert row.boxes is None
    sizes = {row.path: (row.width, row.height) for row in rows}
    assert sizes["turned.jpg"] == (30, 50), "as it is shown"
    assert sizes["cmyk.jpg"] == (50, 30)
    cut, gone = rows[-2:]
    assert cut == Row(path="cut.jpg", error="cannot read image 'cut.jpg'")
    assert gone == Row(path="gone.jpg", error="cannot read image 'gone.jpg': No such file or directory")
    with ThreadPoolExecutor(3) as pool:
        assert score(predictor, items, top=3, pool=pool, ahead=5) == rows
    contents = [replace(item, source=Path(str(item.source)).read_bytes()) for item in items[:-2]]
    assert score(predictor, contents, top=3) == rows[:-2]


def test_a_detector(tmp_path: Path) -> None:
    from nas.tasks.detection.artifacts import POSTPROCESS
    from tests.nas.detectors import rectangle_data, smallest, write_detector

    folder = write_detector(tmp_path / "detector", smallest(), data=rectangle_data())
    rules = json.loads((folder / POSTPROCESS).read_text())
    (folder / POSTPROCESS).write_text(json.dumps({**rules, "score": 0.005}))  # it has learnt nothing
    detector = Predictor.open(folder, check=False)
    (path,) = write_images(tmp_path / "images", 1)
    (row,) = score(detector, [Item("x", str(path))], top=1)
    answer = detector.predict(path)
    assert len(answer) > 1
    assert row.labels == tuple(found["label"] for found in answer)
    assert row.scores == tuple(found["score"] for found in answer)
    assert row.boxes == tuple(tuple(found["xyxy"]) for found in answer)
    assert (row.label, row.score, row.width, row.height) == (answer[0]["label"], answer[0]["score"], 40, 24)


def test_items_that_are_given_up_are_not_touched(predictor: Predictor, tmp_path: Path) -> None:
    paths = write_images(tmp_path, 3)
    items = [Item(p.name, str(p)) for p in paths]
    noted: list[tuple[int, str]] = []
    rows = score(predictor, items, given_up={1: "why"}, note=lambda *what: noted.append(what))
    assert noted == [(0, "decoding"), (2, "decoding")]
    assert rows[1] == Row(path=paths[1].name, error="why")
    assert [row.error for row in rows] == [None, "why", None]
    assert score(predictor, []) == []


def test_a_file_that_changed_after_it_was_listed(predictor: Predictor, tmp_path: Path) -> None:
    first, second = write_images(tmp_path, 2)
    items = list_folder(tmp_path).items(0, 2)
    assert [row.error for row in score(predictor, items)] == [None, None]
    os.utime(first, ns=(1, 1))
    second.unlink()
    changed, gone = score(predictor, items)
    assert changed.error == CHANGED
    assert gone.error is not None
    assert "No such file" in gone.error


def test_listing(tmp_path: Path) -> None:
    write_images(tmp_path / "b", 1)
    write_images(tmp_path, 2)
    (tmp_path / "b-1.HEIC").write_bytes(b"x")
    (tmp_path / "notes.txt").write_bytes(b"x")
    (tmp_path / ".git").mkdir()
    write_images(tmp_path / ".git", 1)
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "broken.png").symlink_to("nowhere")
    odd = os.fsdecode(b"\xff.png")
    (tmp_path / odd).write_bytes(b"x")
    found = list_folder(tmp_path)
    names = ["00000.jpg", "00001.jpg", "b-1.HEIC", "b/00000.jpg", "broken.png", odd]
    assert [entry.name for entry in found.entries] == names
    assert found.others == 2
    assert found.entries[4].stamp == Stamp(-1, -1)
    assert found.items(5, 6)[0].name == f"{tmp_path}/\\xff.png"
    assert table_of([Row(path=readable(odd))])["path"].to_pylist() == ["\\xff.png"]
    assert found.sha256 == list_folder(tmp_path).sha256
    assert [e.name for e in list_folder(tmp_path, None).entries] == sorted([*names, "notes.txt"])
    os.utime(tmp_path / "00000.jpg", ns=(1, 1))
    assert found.sha256 != list_folder(tmp_path).sha256


def test_folders_without_images(tmp_path: Path) -> None:
    for folder, sentence in ((tmp_path / "absent", "is no folder"), (tmp_path, "no images in .*, only 1 other files")):
        (tmp_path / "notes.txt").write_text("x")
        with pytest.raises(UserError, match=sentence) as error:
            list_folder(folder)
        assert error.value.hint


def test_objects_are_all_kept_with_their_boxes() -> None:
    answer = [{"label": "a", "score": 0.9, "xyxy": [1, 2, 3, 4]}, {"label": "b", "score": 0.5, "xyxy": [0, 0, 1, 1.5]}]
    row = answered("x", answer, (8, 9), 1)
    assert (row.label, row.score, row.labels, row.scores) == ("a", 0.9, ("a", "b"), (0.9, 0.5))
    assert row.boxes == ((1, 2, 3, 4), (0, 0, 1, 1.5))
    nothing = answered("x", [], (8, 9), 1)
    assert (nothing.label, nothing.labels, nothing.boxes, nothing.error) == (None, (), (), None)
    table = table_of([row, nothing, Row(path="y", error="why")])
    assert table["boxes"].to_pylist() == [[[1, 2, 3, 4], [0, 0, 1, 1.5]], [], None]


def test_poses_are_kept_with_their_points() -> None:
    pose = {"label": "person", "score": 0.9, "xyxy": [1, 2, 3, 4], "points": [[1, 2, 0.5], [-1, 9, 0.25]]}
    row = answered("x", [pose], (8, 9), 1)
    assert row.points == (((1, 2, 0.5), (-1, 9, 0.25)),)
    assert answered("x", [], (8, 9), 1).points is None
    assert table_of([row])["points"].to_pylist() == [[[[1, 2, 0.5], [-1, 9, 0.25]]]]


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
numbers = st.floats(allow_nan=False, allow_infinity=False)


@given(
    st.builds(
        Row, path=texts, label=st.none() | texts, score=st.none() | numbers, error=st.none() | texts,
        labels=st.none() | st.lists(texts).map(tuple), scores=st.none() | st.lists(numbers).map(tuple),
        boxes=st.none() | st.lists(st.tuples(*[numbers] * 4)).map(tuple),
        points=st.none() | st.lists(st.lists(st.tuples(*[numbers] * 3), max_size=3).map(tuple), max_size=3).map(tuple),
        width=st.none() | st.integers(1, 2**31 - 1), height=st.none() | st.integers(1, 2**31 - 1),
    )
)  # fmt: skip
def test_rows_survive_files_and_json(row: Row) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = table_of([row])
    assert table.schema == schema()
    assert table_bytes(table) == table_bytes(table_of([row])), "the same bytes for the same rows"
    (read,) = pq.read_table(pa.BufferReader(table_bytes(table))).to_pylist()
    assert row_of_json(read) == row
    assert row_of_json(json.loads(json.dumps(asdict(row)))) == row


def test_scoring_imports_no_torch(bundle: Path) -> None:
    code = (
        "import sys, nas.scoring.worker; from nas.bundles.predictor import Predictor;"
        "from nas.scoring.scorer import Item, score;"
        f"score(Predictor.open({str(bundle)!r}), [Item('x', {str(bundle / 'sample.png')!r})]);"
        "print(sorted({'torch', 'ray', 'pandas', 'sklearn', 'optuna'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
