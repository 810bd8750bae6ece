"""Damaged and hostile files are read or refused in one sentence; `experiments.fuzz` makes many more of them."""

import dataclasses
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.fuzz import findings, summary
from experiments.fuzzing import readers, trial
from experiments.fuzzing.readers import READERS, Reader
from experiments.fuzzing.trial import Trials
from nas.errors import UserError

QUICK = {"images": 12, "folders": 8, "archives": 8, "npz": 25, "coco": 25, "yolo": 20, "voc": 20, "recipes": 12}
"""Mutations of each kind whose samples cost nothing to make."""
QUICK |= {"spaces": 25, "runs": 15}
OTHERS = sorted(READERS.keys() - QUICK.keys())


def defects(folder: Path, name: str, count: int) -> list[str]:
    trials = Trials(folder, 7, [name])
    found = [trials.run(number) for number in range(count)]
    return [f"{f.number} {f.changed}: {f.answer} {f.detail}" for f in found if f.is_defect]


@pytest.mark.parametrize("name", QUICK)
def test_no_file_ends_in_a_traceback_or_elsewhere(tmp_path: Path, name: str) -> None:
    assert defects(tmp_path, name, QUICK[name]) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_no_bundle_profile_or_network_does(tmp_path: Path, name: str) -> None:
    assert defects(tmp_path, name, 20) == []


def test_sound_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "mutate", lambda *_: "nothing")
    for name in QUICK:
        assert Trials(tmp_path, 0, [name]).run(0).answer == "read", name


def test_a_mutation_is_made_again_by_its_number(tmp_path: Path) -> None:
    made = []
    for place in ("a", "b"):
        trials = Trials(tmp_path / place, 3, ["coco"])
        trials.run(11)
        work = tmp_path / place / "outer/inner/work"
        made.append({f.relative_to(work): f.read_bytes() for f in work.rglob("*.json")})
    assert made[0] == made[1]
    trials.run(12)
    assert {f.relative_to(work): f.read_bytes() for f in work.rglob("*.json")} != made[0]


def wrong_error(folder: Path) -> None:
    raise KeyError("x")


def many_lines(folder: Path) -> None:
    raise UserError("one\ntwo", "three")


def write_beside(folder: Path) -> None:
    (folder.parent / "escaped").write_text("x")


def write_far(folder: Path) -> None:
    (folder.parents[3].parent / "escaped").write_text("x")


def start_a_program(folder: Path) -> None:
    subprocess.run(["true"], check=True)


def connect(folder: Path) -> None:
    with socket.socket() as opened, pytest.raises(OSError):  # noqa: PT011
        opened.connect(("127.0.0.1", 9))


@pytest.mark.parametrize(
    ("read", "answer"),
    [
        *((wrong_error, "traceback"), (many_lines, "traceback"), (write_beside, "outside"), (write_far, "outside")),
        *((start_a_program, "outside"), (connect, "outside")),
    ],
)
def test_every_kind_of_defect_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Path], None], answer: str
) -> None:
    def build(folder: Path) -> None:
        (folder / "a.txt").write_text("sound")

    monkeypatch.setitem(readers.READERS, "bad", Reader(build=build, read=lambda folder, rng: read(folder)))
    found = Trials(tmp_path / "place", 0, ["bad"]).run(0)
    assert found.answer == answer
    assert found.is_defect
    assert summary([found, dataclasses.replace(found, answer="read")], 0)["defects"] == 1


def test_a_slow_reader_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "SLOW_S", 0.01)
    slow = Reader(build=lambda folder: (folder / "a").touch(), read=lambda folder, rng: time.sleep(0.03))
    monkeypatch.setitem(readers.READERS, "slow", slow)
    assert Trials(tmp_path, 0, ["slow"]).run(0).answer == "slow"


@pytest.mark.slow
def test_mutations_are_read_in_another_process(tmp_path: Path) -> None:
    found = list(findings(tmp_path, 0, ("runs", "yolo"), range(6)))
    assert [f.number for f in found] == list(range(6))
    assert not any(f.is_defect for f in found)
