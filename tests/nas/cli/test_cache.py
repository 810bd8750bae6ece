"""`nas cache`."""

import json
from pathlib import Path

import numpy as np
import pytest

from nas.cli.main import run
from nas.data.store import Wanted, entries, stored_images


@pytest.fixture(autouse=True)
def two_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keys of a larger and a smaller entry."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    wanted = [Wanted(source=f"/photos/{n}", identity=str(n), images=n, side=8) for n in (30, 20)]
    for each in wanted:
        stored_images(
            each, lambda start, stop: (np.zeros((stop - start, 8, 8, 3), np.uint8), np.zeros(stop - start, np.uint64))
        )
    return [each.key for each in wanted]


def test_entries_are_listed(two_entries: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["cache"]) == 0
    first, second, total = capsys.readouterr().out.splitlines()
    assert first.split()[0] == two_entries[0]
    assert "30 images of 8 px from /photos/30" in first
    assert "20 images of 8 px from /photos/20" in second
    assert total == f"9 KiB in {tmp_path / 'nas' / 'images'}"


def test_they_are_verified(two_entries: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with (entries()[0].folder / "images.npy").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\1")
    assert run(["cache", "--verify", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["entries"]
    assert [entry["damaged_parts"] for entry in found] == [1, 0]
    assert run(["cache", "--verify"]) == 0
    assert "(not finished, intact)" in capsys.readouterr().out.splitlines()[0], "what was damaged is no longer there"


def test_one_is_removed_or_all(two_entries: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cache", "--remove", two_entries[1]]) == 0
    assert "removed" in capsys.readouterr().out
    assert [entry.folder.name for entry in entries()] == two_entries[:1]
    assert run(["cache", "--remove", two_entries[1]]) == 1
    assert "unknown entry of the cache" in capsys.readouterr().err
    assert run(["cache", "--clear"]) == 0
    assert entries() == []
    capsys.readouterr()
    assert run(["cache"]) == 0
    assert "nothing is stored" in capsys.readouterr().out


def test_what_to_remove_is_said_once(two_entries: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cache", "--clear", "--remove", two_entries[0]]) == 1
    assert "give one of them" in capsys.readouterr().err
