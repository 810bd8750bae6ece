"""A folder as a queue: each file has one row, whoever dies when."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nas.cli.main import run
from nas.errors import UserError
from nas.scoring import spool as module
from nas.scoring.rows import Row
from nas.scoring.scorer import Item
from nas.scoring.spool import OPEN, Spool, open_spool
from tests.nas.scoring.conftest import write_images

pytestmark = pytest.mark.xdist_group("scoring")

ABOUT = {"bundle": "b", "top": 5}


def rows_in(out: Path) -> list[tuple[str, str]]:
    """Name and label of all rows."""
    tables = [pq.read_table(path).to_pylist() for path in sorted(out.glob("*.parquet"))]
    return [(row["path"], row["label"]) for table in tables for row in table]


def put(inbox: Path, name: str, content: str) -> None:
    path = inbox / name
    path.write_text(content)
    os.utime(path, (1, 1))


def scored(items: Sequence[Item]) -> list[Row]:
    """As if the class of an image were its content."""
    return [Row(path=item.name, label=Path(str(item.source)).read_text()) for item in items]


def drain(inbox: Path, out: Path) -> None:
    with open_spool(inbox, out, ABOUT) as spool:
        while not spool.empty():
            items = spool.take(3)
            spool.finish(items, scored(items))


class Killed(Exception):
    """Stands for the end of a process: nothing after it is done."""


def step(spool: Spool, how: str) -> None:
    """Take and finish some files; a process that dies dies in a certain place."""
    items = spool.take(3)
    if how == "taken":
        raise Killed
    moves = {"row written": 0, "one moved": 1}.get(how, 100)
    done = Spool._to_done

    def to_done(self: Spool, path: Path, sha256: str) -> None:
        nonlocal moves
        if moves == 0:
            raise Killed
        moves -= 1
        done(self, path, sha256)

    with patch.object(Spool, "_to_done", to_done):
        if items:
            spool.finish(items, scored(items))
    if how == "row cut":
        with next((spool._out / OPEN / spool._name).glob("*.jsonl")).open("ab") as file:
            file.write(b'{"path": "half of a')
        raise Killed
    if how == "part closed":
        with patch.object(Path, "unlink", side_effect=Killed):
            spool._part.close()


HOWS = ("taken", "row written", "one moved", "row cut", "part closed", "fine", "fine")


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from(HOWS)), max_size=8))
@settings(max_examples=25)
def test_each_file_has_one_row_wherever_its_worker_dies(steps: list[tuple[int, str]]) -> None:
    with TemporaryDirectory() as place:
        inbox, out = Path(place) / "in", Path(place) / "out"
        inbox.mkdir()
        sent: Counter[tuple[str, str]] = Counter()
        for number, (count, how) in enumerate(steps):
            for k in range(count):
                # Some names come again with another content: those are other images.
                name, content = f"{k if k < 3 else f'{number}-{k}'}", f"{number}-{k}"
                if not (inbox / name).exists():
                    put(inbox, name, content)
                    sent[name, content] += 1
            with suppress(Killed, StopIteration), open_spool(inbox, out, ABOUT) as spool:
                step(spool, how)
        drain(inbox, out)
        assert Counter(rows_in(out)) == sent
        assert not any((inbox / "busy").iterdir())
        assert not any((out / OPEN).iterdir())
        assert sorted(path.read_text() for path in (inbox / "done").iterdir()) == sorted(c for _, c in sent)


def test_two_workers_share_a_folder(tmp_path: Path) -> None:
    inbox, out = tmp_path / "in", tmp_path / "out"
    inbox.mkdir()
    for k in range(8):
        put(inbox, f"{k}", f"{k}")
    with open_spool(inbox, out, ABOUT) as first, open_spool(inbox, out, ABOUT) as second:
        mine, theirs = first.take(4), second.take(100)
        second.adopt()
        assert second.take(100) == [], "the other one is alive"
        assert len({item.name for item in (*mine, *theirs)}) == 8
        first.finish(mine, scored(mine))
        second.finish(theirs, scored(theirs))
    assert sorted(rows_in(out)) == [(f"{k}", f"{k}") for k in range(8)]


def test_a_file_that_is_sent_again_has_one_row(tmp_path: Path) -> None:
    inbox, out = tmp_path / "in", tmp_path / "out"
    inbox.mkdir()
    for content in ("same", "same", "other", "other"):
        put(inbox, "a", content)
        drain(inbox, out)
    assert sorted(rows_in(out)) == [("a", "other"), ("a", "same")]
    assert len(list((inbox / "done").iterdir())) == 2


def test_what_is_still_written_waits(tmp_path: Path) -> None:
    inbox, out = tmp_path / "in", tmp_path / "out"
    inbox.mkdir()
    (inbox / "fresh.png").write_text("x")
    (inbox / ".hidden.png").write_text("x")
    put(inbox, "notes.txt", "x")
    (inbox / "sub.png").mkdir()
    with open_spool(inbox, out, ABOUT, (".png",)) as spool:
        assert spool.take(10) == []
        assert not spool.empty()
        os.utime(inbox / "fresh.png", (1, 1))
        assert [item.name for item in spool.take(10)] == ["fresh.png"]
        assert spool.empty()


def test_parts_are_closed_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inbox, out = tmp_path / "in", tmp_path / "out"
    inbox.mkdir()
    monkeypatch.setattr(module, "PART_ROWS", 2)
    with open_spool(inbox, out, ABOUT) as spool:
        for k in range(3):
            put(inbox, f"{k}", f"{k}")
            items = spool.take(1)
            spool.finish(items, scored(items))
            spool.look_after()
        assert len(rows_in(out)) == 2
        monkeypatch.setattr(module, "PART_S", 0.0)
        spool.look_after()
        assert len(rows_in(out)) == 3


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="images and results are both in"), open_spool(tmp_path, tmp_path, ABOUT):
        pass
    with open_spool(tmp_path / "in", tmp_path / "out", ABOUT):
        pass
    with (
        pytest.raises(UserError, match="made with another bundle"),
        open_spool(tmp_path / "in", tmp_path / "out", {**ABOUT, "bundle": "c"}),
    ):
        pass


@pytest.mark.slow
def test_the_command(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inbox, out = tmp_path / "in", tmp_path / "out"
    names = {path.name for path in write_images(inbox, 60)} | {"text.jpg"}
    (inbox / "text.jpg").write_text("hello")
    for name in names:
        os.utime(inbox / name, (1, 1))
    line = ["predict", str(bundle), "--watch", str(inbox), "--out", str(out), "--workers", "1"]

    def waiting() -> int:
        return len([path for path in inbox.iterdir() if path.is_file()])

    def started() -> "subprocess.Popen[bytes]":
        return subprocess.Popen([sys.executable, "-m", "nas", *line], start_new_session=True, stderr=subprocess.PIPE)

    process = started()
    while waiting() == len(names):
        assert process.poll() is None, process.communicate()[1].decode()
        time.sleep(0.001)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    process = started()
    while waiting() or len(list((inbox / "done").iterdir())) < len(names):
        assert process.poll() is None, process.communicate()[1].decode()
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0, process.communicate()[1].decode()
    process.communicate()
    assert sorted(name for name, _ in rows_in(out)) == sorted(names)
    capsys.readouterr()
    write_images(inbox / "more", 1)[0].rename(inbox / "late.jpg")
    assert run([*line, "--until-empty", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["images"] == 1
    assert len(rows_in(out)) == len(names) + 1
