"""Where the reference network is kept."""

import os
from pathlib import Path

import pytest

from nas.measure import reference
from nas.measure.reference import cache_folder, reference_model


def test_a_folder_that_others_can_write_to_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the user's cache cannot be made: the next choice has a name that anybody can guess and take first."""
    (tmp_path / "no-cache").write_text("a file, where a folder would have to be made")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no-cache"))
    monkeypatch.setattr(reference.tempfile, "tempdir", str(tmp_path))
    usual = tmp_path / f"nas-{os.getuid()}"
    assert cache_folder() == usual
    assert usual.stat().st_mode & 0o777 == 0o700
    assert cache_folder() == usual, "it is found again"
    usual.chmod(0o777)
    other = cache_folder()
    assert other != usual
    assert other.stat().st_mode & 0o077 == 0
    usual.rename(tmp_path / "elsewhere")
    usual.symlink_to(other)
    assert cache_folder() not in (usual, other)


def test_the_network_is_written_once(tmp_path: Path) -> None:
    made = reference_model(tmp_path)
    assert made is not None
    written = made.stat().st_mtime_ns
    assert reference_model(tmp_path) == made
    assert made.stat().st_mtime_ns == written
    assert list(tmp_path.iterdir()) == [made]
