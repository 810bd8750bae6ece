"""Files and folders appear whole or not at all, whoever else writes them and whatever goes wrong."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nas.files.folders import locked
from nas.files.writing import remove_partials, staged_file, staged_folder, write_json, write_whole

_WRITER = """
import json, sys
from pathlib import Path
from nas.files.writing import staged_folder, write_json

place, me = Path(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
for turn in range(60):
    write_json(place / "document.json", {"writer": me, "numbers": [turn] * 5000})
    found = json.loads((place / "document.json").read_text())
    assert set(found["numbers"]) == {found["numbers"][0]}, found
    with staged_folder(place / "folder") as staged:
        (staged / "first").write_text(me)
        (staged / "second").write_text(me)
"""


def test_two_writers_of_one_place_neither_tear_nor_crash_each_other(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(tmp_path), str(k)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for k in range(2)
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()
    for writer in writers:
        _, errors = writer.communicate(timeout=60)
        assert writer.returncode == 0, errors
    assert sorted(p.name for p in tmp_path.iterdir()) == ["document.json", "folder"]
    assert (tmp_path / "folder/first").read_text() == (tmp_path / "folder/second").read_text()


def interrupted(path: Path) -> None:
    path.write_text("half")
    raise KeyboardInterrupt


def test_a_failed_write_leaves_the_old_content_and_nothing_else(tmp_path: Path) -> None:
    path, folder = tmp_path / "file", tmp_path / "folder"
    write_whole(path, b"old", durable=True)
    with staged_folder(folder) as staged:
        (staged / "member").write_text("old")
    with pytest.raises(KeyboardInterrupt), staged_file(path) as staged:
        interrupted(staged)
    with pytest.raises(KeyboardInterrupt), staged_folder(folder) as staged:
        interrupted(staged / "member")
    with pytest.raises(ValueError, match="Out of range"):
        write_json(path, {"accuracy": float("nan")})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]
    assert path.read_bytes() == b"old"
    assert (folder / "member").read_text() == "old"
    with pytest.raises(IsADirectoryError):
        write_whole(folder, b"new")
    with pytest.raises(NotADirectoryError), staged_folder(path):
        pass
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]
    assert path.read_bytes() == b"old"


def test_what_a_killed_writer_leaves_is_read_by_nobody_and_cleared_by_the_next_owner(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    killed = (
        "import os, sys; from pathlib import Path; from nas.files.writing import staged_file, staged_folder\n"
        "place = Path(sys.argv[1])\n"
        "with staged_file(place / 'a.json') as a, staged_folder(place / 'b') as b:\n"
        "    a.write_text('{'); (b / 'member').write_text('half'); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", killed, str(tmp_path / "run")], check=False).returncode == 9
    assert len(list((tmp_path / "run").iterdir())) == 2
    assert not list((tmp_path / "run").glob("*.json"))
    write_json(tmp_path / "run/a.json", {})
    with locked(tmp_path / "run"):
        assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["a.json", "lock"]
    assert json.loads((tmp_path / "run/a.json").read_text()) == {}
    remove_partials(tmp_path / "missing")
