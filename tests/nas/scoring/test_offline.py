"""`nas predict` on a folder: each image once, the same bytes whatever happens on the way."""

import itertools
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nas.bundles.predictor import Predictor
from nas.bundles.receipt import read_receipt
from nas.cli.main import run
from nas.errors import UserError
from nas.scoring.crew import Crew, setups
from nas.scoring.job import Identity, Job, open_job
from nas.scoring.listing import list_folder
from nas.scoring.messages import Setup, Task
from nas.scoring.offline import PredictRequest, predict_folder, run_tasks
from tests.nas.scoring.conftest import COUNT, write_images

pytestmark = pytest.mark.xdist_group("scoring")

BAD = 2
"""Files in `images` that are none by their content."""


def request(bundle: Path, folder: Path, out: Path, **more: Any) -> PredictRequest:
    return PredictRequest(bundle=str(bundle), folder=folder, out=out, **{"workers": 1, **more})


@pytest.fixture(scope="module")
def undisturbed(bundle: Path, images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed") / "predictions.parquet"
    predicted = predict_folder(request(bundle, images, out, workers=None))
    assert predicted.document["scored"] == COUNT + BAD
    return out


def rows_of(out: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(out).to_pylist()
    return found


def test_one_row_for_each_image_in_order(undisturbed: Path, bundle: Path, images: Path) -> None:
    rows = rows_of(undisturbed)
    names = [row["path"] for row in rows]
    expected = sorted(str(p) for p in images.rglob("*") if p.suffix in (".jpg", ".png") and not p.name.startswith("."))
    assert names == expected
    bad = {Path(row["path"]).name: row["error"] for row in rows if row["error"] is not None}
    assert bad.keys() == {"text.jpg", "empty.png"}
    assert "cannot read image" in bad["text.jpg"]
    assert all(row["label"] is None and row["score"] is None for row in rows if row["error"] is not None)
    predictor = Predictor.open(bundle, threads=1)
    for row in rows[:5]:
        assert (row["label"], row["score"]) == tuple(predictor.predict(row["path"])[0].values())
    assert undisturbed.with_suffix(".errors.csv").read_text().splitlines()[0] == "path,error"
    assert len(undisturbed.with_suffix(".errors.csv").read_text().splitlines()) == 1 + BAD
    assert {p.name for p in undisturbed.parent.iterdir()} == {"predictions.parquet", "predictions.errors.csv"}


def test_the_same_bytes_after_kills(undisturbed: Path, bundle: Path, images: Path, tmp_path: Path) -> None:
    out = tmp_path / "predictions.parquet"
    parts = tmp_path / "predictions.parquet.parts"
    command = [sys.executable, "-m", "nas", "predict", str(bundle), str(images), "--out", str(out), "--workers", "1"]
    for _ in range(2):
        before = len(list(parts.glob("[!.]*.parquet")))
        process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        while len(list(parts.glob("[!.]*.parquet"))) == before:
            assert process.poll() is None, process.communicate()[0].decode()
            time.sleep(0.001)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        assert not out.exists()
    predicted = predict_folder(request(bundle, images, out))
    assert 0 < predicted.document["found"] < COUNT + BAD
    assert predicted.document["found"] + predicted.document["scored"] == COUNT + BAD
    assert out.read_bytes() == undisturbed.read_bytes()
    assert not parts.exists()


def test_a_job_that_is_done_is_not_done_again(undisturbed: Path, bundle: Path, images: Path) -> None:
    before = undisturbed.stat()
    document = predict_folder(request(bundle, images, undisturbed)).document
    assert (document["scored"], document["found"], document["bad"]) == (0, COUNT + BAD, BAD)
    assert undisturbed.stat().st_mtime_ns == before.st_mtime_ns


def test_another_job_on_the_same_output_is_refused(bundle: Path, tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out.parquet"
    paths = write_images(folder, 3)
    ours = request(bundle, folder, out)
    predict_folder(ours)
    other = shutil.copytree(bundle, tmp_path / "other")
    receipt = json.loads((other / "receipt.json").read_text())
    (other / "receipt.json").write_text(json.dumps({**receipt, "created": "later"}))
    for wrong, why in (
        (request(other, folder, out), "it was made with another bundle"),
        (request(bundle, folder, out, top=1), "it was made with another --top"),
    ):
        with pytest.raises(UserError, match=f"is there already: {why}") as error:
            predict_folder(wrong)
        assert "--restart" in str(error.value.hint)
    os.utime(paths[0], ns=(1, 1))
    with pytest.raises(UserError, match=r"other images \(3 instead of 3, or changed ones\)"):
        predict_folder(ours)
    begun = tmp_path / "out.parquet.parts"
    begun.mkdir()
    (begun / "job.json").write_text("{}")
    with pytest.raises(UserError, match="is there already"):  # nothing was done by that other job
        predict_folder(ours)
    begun.mkdir()
    (begun / "job.json").write_text("{}")
    (begun / "part-0.parquet").write_bytes(b"")
    with pytest.raises(UserError, match="holds a job that was begun with another bundle"):
        predict_folder(ours)
    assert predict_folder(request(bundle, folder, out, restart=True)).document["scored"] == 3
    assert not begun.exists()
    out.write_text("precious")
    with pytest.raises(UserError, match="was not written by `nas predict`"):
        predict_folder(ours)
    assert out.read_text() == "precious"


def test_two_jobs_on_one_output(bundle: Path, images: Path, tmp_path: Path) -> None:
    identity = Identity(bundle="", images="", count=1, folder="", top=1, versions={})
    with (
        open_job(tmp_path / "out.parquet", identity),
        pytest.raises(UserError, match="another process works on"),
    ):
        predict_folder(request(bundle, images, tmp_path / "out.parquet"))


def test_wrong_outputs(bundle: Path, images: Path, tmp_path: Path) -> None:
    (tmp_path / "folder.parquet").mkdir()
    for out, why in ((tmp_path / "a.csv", r"is no \.parquet file"), (tmp_path / "folder.parquet", "is a folder")):
        with pytest.raises(UserError, match=why):
            predict_folder(request(bundle, images, out))
    with pytest.raises(UserError, match="cannot be written to"):
        predict_folder(request(bundle, images, Path("/proc/nowhere/a.parquet")))
    with pytest.raises(UserError, match="usable core"):
        predict_folder(request(bundle, images, tmp_path / "a.parquet", workers=1000))
    assert not (tmp_path / "a.parquet.parts").exists(), "nothing was done, and nothing is left behind"


def test_a_damaged_part_is_made_again(undisturbed: Path, bundle: Path, images: Path, tmp_path: Path) -> None:
    identity = Identity(bundle="", images="", count=70, folder="", top=1, versions={})
    with open_job(tmp_path / "out.parquet", identity) as job:
        assert job is not None
        shutil.copy(undisturbed, job.part(0))  # another number of rows
        job.part(1).write_bytes(b"PAR1")
        assert job.finished() == set()
        assert not job.part(0).exists()


@given(st.integers(1, 10**6))
def test_parts_hold_each_image_once(count: int) -> None:
    identity = Identity(bundle="", images="", count=count, folder="", top=1, versions={})
    job = Job(Path("out.parquet"), Path("parts"), identity)
    ranges = job.ranges()
    assert ranges[0][0] == 0
    assert ranges[-1][1] == count
    assert all(stop == start for (_, stop), (start, _) in itertools.pairwise(ranges))
    assert all(0 < stop - start <= 512 for start, stop in ranges)


def small(bundle: Path) -> list[Setup]:
    return setups(bundle, read_receipt(bundle), workers=1, top=5)


@pytest.mark.slow
def test_files_that_end_their_process_are_rows_with_the_reason(
    bundle: Path, fatal_bundle: Path, tmp_path: Path
) -> None:
    paths = write_images(tmp_path, 5)
    shutil.copy(paths[0], tmp_path / "00001-then.jpg")
    paths[1].rename(tmp_path / "fatal.jpg")
    paths[3].rename(tmp_path / "hangs.jpg")
    listing = list_folder(tmp_path)
    items = listing.items(0, len(listing.entries))
    with Crew(small(fatal_bundle), image_s=1.0) as crew:
        (done,) = run_tasks(crew, [Task(number=7, items=items)])
    assert done.rows is not None
    assert (done.number, done.count, done.bad) == (7, 6, 2)
    errors = {Path(row.path).name: row.error for row in done.rows if row.error is not None}
    assert errors.keys() == {"fatal.jpg", "hangs.jpg"}
    assert errors["fatal.jpg"] == (
        "the process that read it died 3 times: killed by SIGKILL while decoding (out of memory?)"
    )
    assert errors["hangs.jpg"] == "the process that read it died 3 times: no answer within 1 s while decoding"
    good = [item for item, row in zip(items, done.rows, strict=True) if row.error is None]
    with Crew(small(bundle)) as crew:
        (alone,) = run_tasks(crew, [Task(number=0, items=good)])
    assert alone.rows == [row for row in done.rows if row.error is None], "others get the rows they would have had"


def test_a_worker_that_is_killed_is_replaced(bundle: Path, images: Path) -> None:
    import psutil

    items = list_folder(images).items(0, 40)
    with Crew(small(bundle)) as crew:
        (first,) = run_tasks(crew, [Task(number=0, items=items)])
        (child,) = psutil.Process().children()
        child.kill()  # while it has nothing to do
        child.wait()
        (second,) = run_tasks(crew, [Task(number=0, items=items)])
    assert second.rows == first.rows


def test_a_bundle_that_cannot_be_opened_is_said_by_the_parent(bundle: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(bundle, tmp_path / "broken")
    (broken / "model.onnx").write_bytes(b"no model")
    with pytest.raises(UserError, match=r"not as it was delivered: model\.onnx was changed"):
        predict_folder(request(broken, tmp_path, tmp_path / "a.parquet"))
    assert [path.name for path in tmp_path.iterdir()] == ["broken"], "nothing is left behind"
    with Crew(small(broken)) as crew:
        with pytest.raises(UserError, match="cannot load"):
            list(run_tasks(crew, [Task(number=0, items=[])]))
        with pytest.raises(ValueError, match="busy"):
            crew.submit(Task(number=1, items=[]))


def test_a_full_disk_is_one_sentence(bundle: Path, undisturbed: Path, images: Path, tmp_path: Path) -> None:
    out = tmp_path / "predictions.parquet"
    part_bytes = 5_000  # more than one of 16 rows takes, less than all rows
    for limit_bytes, where in ((2_000, "part-"), (part_bytes, "predictions.parquet'")):
        done = subprocess.run(
            [sys.executable, "-m", "nas", "predict", str(bundle), str(images), "--out", str(out), "--workers", "1"],
            capture_output=True, text=True,
            preexec_fn=lambda most=limit_bytes: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
        )  # fmt: skip
        assert done.returncode == 1
        assert re.search(f"cannot write '.*{where}", done.stderr), done.stderr
        assert "hint: make room, then run the same command again" in done.stderr
        assert not out.exists()
    assert predict_folder(request(bundle, images, out)).document["scored"] == 0, "the parts were kept"
    assert out.read_bytes() == undisturbed.read_bytes()


def test_the_command(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_images(tmp_path / "in", 3)
    (tmp_path / "in" / "text.png").write_text("hello")
    line = ["predict", str(bundle), str(tmp_path / "in"), "--out", str(tmp_path / "o.parquet"), "--workers", "1"]
    assert run([*line, "--max-bad", "20%", "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert {name: document[name] for name in ("images", "scored", "bad", "max_bad", "within_max_bad")} == {
        "images": 4, "scored": 4, "bad": 1, "max_bad": 0.2, "within_max_bad": False
    }  # fmt: skip
    assert sum(document["labels"].values()) == 3
    assert run([*line, "--max-bad", "0.25"]) == 0
    text = capsys.readouterr().out
    assert "all of them were scored before" in text
    assert "1 without an answer (25.0 %)" in text
    assert run([*line, "--max-bad", "120%"]) == 1
    assert "'120%' is no share of a whole" in capsys.readouterr().err
    assert run(["predict", str(bundle)]) == 2
    assert run(["predict", str(tmp_path), str(tmp_path / "in"), "--out", str(tmp_path / "x.parquet")]) == 1
    assert "is no bundle" in capsys.readouterr().err
