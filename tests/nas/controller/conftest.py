"""A user's cache that all searches of a test run share, and data that are learned in seconds."""

import json
import time
from functools import partial
from pathlib import Path

import pytest

from nas.controller.planning import throughput
from nas.deployment import CPU
from nas.targets.profile import ENOUGH_NETWORKS
from nas.tasks import TASKS
from nas.training.recipe import Recipe
from search_spaces import SearchSpace, load_search_space
from tests.nas.controller.in_process import train_here
from tests.nas.fake_device import fake_profile, save_fake_profile
from tests.nas.small_runs import write_data


@pytest.fixture(scope="session")
def users_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With five profiles: `fake`, `eights` (of calls with eight images), `detector` and `poser` say they were made on
    this host, `elsewhere` on another.

    As on a user's machine a search measures how fast this host trains only where none of that space did before: for
    `mixed` and `compact` at 32 px, `detect` and `pose` at 128 px it is told.
    """
    folder = tmp_path_factory.mktemp("cache")
    # With fewer networks each search would fit models of other devices first. Threads of a runtime spin while they wait
    # for one another, which takes many times as long where other tests keep the cores busy.
    usual = partial(fake_profile, networks=ENOUGH_NETWORKS, threads=1)
    save_fake_profile(folder, usual())
    save_fake_profile(folder, usual("elsewhere", host=False))
    save_fake_profile(folder, usual("eights", batch=8))
    save_fake_profile(folder, usual("detector", spaces=("mixed", "detect")))
    save_fake_profile(folder, usual("poser", spaces=("mixed", "pose")))
    told = (
        *(("classification", "mixed", 32), ("classification", "compact", 32)),
        *(("detection", "detect", 128), ("pose", "pose", 128)),
    )
    for task, name, pixels in told:
        space = load_search_space(name).restrict("resolution", [pixels])
        tell_throughput(folder / "nas", space, TASKS[task].recipe())
    return folder


def tell_throughput(folder: Path, space: SearchSpace, recipe: Recipe) -> None:
    """Let `nas.controller.throughput.host_throughput` find a usual one in a user's cache."""
    path, key = throughput._place(folder, space, recipe, CPU)
    path.parent.mkdir(parents=True, exist_ok=True)
    told = throughput.TrainingThroughput(CPU, "fp32", work_s=2.0, measured_at=time.time())
    path.write_text(json.dumps({"key": key, **told.to_json()}))


@pytest.fixture
def cache(users_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That cache, in use here and in processes started here."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(users_cache))
    return users_cache


@pytest.fixture
def trained_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of a search to which it does not matter where candidates are trained."""
    train_here(monkeypatch)


@pytest.fixture(scope="session")
def colours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """So few images of three classes that the most epochs of a recipe take seconds: a search with any generous budget
    ends when its work is done, on a slow machine too."""
    return write_data(tmp_path_factory.mktemp("data") / "colours.npz", per_class=16)
