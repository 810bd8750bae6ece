"""A small trained network, and a run that began from it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from nas.baseline import proposing, run, shortlist, steps, times
from nas.baseline.config import BaselineConfig
from nas.baseline.run import run_baseline
from nas.baseline.steps import Steps
from nas.data.images import image_input
from nas.deploy.deploy import deploy
from nas.limits import Limits
from nas.networks.description import NetworkDescription, save_network
from nas.tasks.classification.data.registry import load_dataset
from nas.tasks.classification.task import Classification
from nas.tasks.examples import examples_of
from nas.training.loop import train

PLAN = {"deploying": 5, "library": 10, "losses": 3, "assembled": 6, "tried": 1, "final": 2}
"""Steps and epochs, which a budget would decide."""
WIDTHS, SMALLER = (0.5,), (0.75,)
"""Of the channels and of the sides of the images: of each form of networks options are measured."""
FORMS = 2
"""Of the four that there are then, those that are looked at closely."""
SIDE = 16


@pytest.fixture(scope="session")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a ResNet that knows digits at 16 px."""
    folder = tmp_path_factory.mktemp("teacher")
    data, task = load_dataset("digits"), Classification()
    description = NetworkDescription.of_baseline("resnet10_w50", data.output_size, image_input(SIDE))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = description.build()
    recipe = task.recipe(epochs=3, precision="fp32")
    examples = examples_of(data, description.signature.input, train_images=700)
    objective = task.objective(network, examples, recipe, device=torch.device("cpu"))
    train(network, objective, recipe, device="cpu", validates="last")
    save_network(network, description, folder / "model.network.json")
    (folder / "preprocess.json").write_text(_preprocess(data))
    return folder


def _preprocess(data: Any) -> str:
    import json

    documents = Classification().artifacts.documents(
        data.preprocess, NetworkDescription.of_baseline("resnet10_w50", (10,), image_input(SIDE)).signature
    )
    return json.dumps(documents["preprocess.json"])


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings as long as `PLAN` says, whatever the clock says."""
    plan_by_work(monkeypatch)


def plan_by_work(monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[..., int] = Steps.planned
    monkeypatch.setattr(
        Steps, "planned", lambda self, name, plan: real(self, name, lambda: PLAN[name.partition("-")[0]])
    )
    monkeypatch.setattr(shortlist, "ROUNDS", 2)
    monkeypatch.setattr(shortlist, "FORMS", FORMS)
    monkeypatch.setattr(run, "CONSIDERED", 1)  # options are measured in each of them
    monkeypatch.setattr(proposing, "WIDTHS", WIDTHS)
    monkeypatch.setattr(steps, "SHARES", SMALLER)
    # Its options are timed one by one, in a session of which these are nearly all of the time.
    monkeypatch.setattr(times, "SECONDS", 0.05)
    monkeypatch.setattr(times, "PROFILED_S", 0.05)
    monkeypatch.setattr(shortlist, "SESSIONS", 1)
    monkeypatch.setitem(deploy.__kwdefaults__, "sessions", 1)
    # Other tests run beside this one: what is delivered is to keep its limit all the same.
    monkeypatch.setattr(shortlist, "MARGIN", 0.3)


def configured(teacher: Path, out: Path, **settings: Any) -> BaselineConfig:
    if "limits" not in settings and "speedup" not in settings:
        settings["speedup"] = 1.5
    return BaselineConfig(
        **{
            "baseline": str(teacher), "data": "digits", "out": out, "max_loss": 0.1, "threads": 1,
            "runtimes": ("onnxruntime",), "budget_s": 600.0, "command": "nas search --baseline ...", **settings,
        }
    )  # fmt: skip


@dataclass(frozen=True)
class Finished:
    """A run that was killed once."""

    folder: Path
    before: dict[str, bytes]
    """Its files when it was killed, by their names."""


@pytest.fixture(scope="session")
def finished_twice(teacher: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A run that made the teacher 1.5 times as fast: killed where students are trained, then begun again."""
    out = tmp_path_factory.mktemp("derived") / "run"
    code = "import sys; from tests.nas.baseline.conftest import derive_here; derive_here(*sys.argv[1:])"
    process = subprocess.Popen([sys.executable, "-c", code, str(teacher), str(out)], stderr=subprocess.DEVNULL)
    until = time.monotonic() + 600
    while not (out / "shortlist.json").exists():
        assert time.monotonic() < until
        assert process.poll() is None
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (out / "result.json").exists()
    before = {name: (out / name).read_bytes() for name in ("times.json", "library.safetensors", "shortlist.json")}
    derive_here(str(teacher), str(out))
    return Finished(out, before)


@pytest.fixture
def finished(finished_twice: Finished) -> Path:
    """The folder of the run that made the teacher 1.5 times as fast."""
    return finished_twice.folder


def latency(limit_ms: float) -> Limits:
    return Limits.of(latency_ms=limit_ms)


def derive_here(teacher: str, out: str) -> None:
    """A whole run, for a process of its own."""
    with pytest.MonkeyPatch.context() as patch:
        plan_by_work(patch)
        run_baseline(configured(Path(teacher), Path(out)))
