"""A user's cache that all searches of a test run share, and data that are learned in seconds."""

from pathlib import Path

import pytest

from tests.nas.fake_device import fake_profile, save_fake_profile
from tests.nas.small_runs import write_data


@pytest.fixture(scope="session")
def users_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With four profiles: `fake`, `eights` (of calls with eight images) and `detector` say they were made on this host,
    `elsewhere` on another.

    As on a user's machine the first search measures how fast this host trains, and the others read that.
    """
    folder = tmp_path_factory.mktemp("cache")
    save_fake_profile(folder, fake_profile())
    save_fake_profile(folder, fake_profile("elsewhere", host=False))
    save_fake_profile(folder, fake_profile("eights", batch=8))
    save_fake_profile(folder, fake_profile("detector", networks=60, spaces=("mixed", "detect")))
    return folder


@pytest.fixture
def cache(users_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That cache, in use here and in processes started here."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(users_cache))
    return users_cache


@pytest.fixture(scope="session")
def colours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """So few images of three classes that the most epochs of a recipe take seconds: a search with any generous budget
    ends when its work is done, on a slow machine too."""
    return write_data(tmp_path_factory.mktemp("data") / "colours.npz", per_class=16)
