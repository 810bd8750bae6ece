"""A store of images of a test's own, in which everything is kept."""

from pathlib import Path

import pytest

from nas.data import store


def use_own_store(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Entries are made in `folder`."""
    patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))


def let_nothing_fit(patch: pytest.MonkeyPatch, side: int, images: int) -> None:
    """No image fits into memory, and a part of an entry holds so many images of `side` pixels."""
    patch.setattr(store, "MEMORY_SHARE", 0.0)
    patch.setattr(store, "PART_BYTES", side * side * 3 * images)
