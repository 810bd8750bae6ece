"""`RUN#k` is the same network to every command: a run's winners, then its other finalists by accuracy."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from nas.bench.models import read_model
from nas.bundles.exporting import default_folder
from nas.bundles.source import resolve
from nas.errors import UserError
from nas.files.records import write_record
from nas.finetune.sources import chosen_networks
from nas.networks.description import NetworkDescription, save_network, weights_path
from nas.networks.run_networks import DEPLOYED
from tests.nas.small_runs import small_description, write_run

PARITY = {"images": 64, "max_abs_difference": 1e-5, "mean_abs_difference": 1e-6, "agreement": 1.0}
WORKS = {"deployment": {"runtime": "onnxruntime", "precision": "fp32"}, "file": "model.onnx", "reason": ""}


def finetuned(text: str) -> Path:
    (candidate,) = chosen_networks(text, 3).candidates
    assert candidate.weights is not None
    return candidate.weights.parent


def exported(text: str) -> Path:
    return resolve(text).path.parent


def benched(text: str) -> Path:
    network = read_model(text, None).network
    assert network is not None
    return network.parent


COMMANDS = pytest.mark.parametrize("folder_of", [finetuned, exported, benched])


def add_finalist(run: Path, name: str, description: NetworkDescription, accuracy: float) -> Path:
    folder = run / "finalists" / name
    folder.mkdir(parents=True)
    save_network(description.build(), description, folder / "model.network.json")
    (folder / "trained.json").write_text(json.dumps({"accuracy": accuracy}))
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """One winner, which is a finalist as well, and two others."""
    description = small_description()
    folder = write_run(tmp_path / "run", description, tmp_path / "data.npz")
    config = {"data": "digits", "seed": 0, "target": "local", "max_drop": 0.01, "limits": {"latency_ms": 5.0}}
    (folder / "config.json").write_text(json.dumps(config))
    for name, accuracy, width in (("worse", 0.5, 24), ("better", 0.7, 32)):
        add_finalist(folder, name, small_description(stage1__width=width), accuracy)
    add_finalist(folder, "same", description, 0.6)
    return folder


@COMMANDS
def test_finalists_follow_the_winners(folder_of: Callable[[str], Path], run: Path) -> None:
    assert [folder_of(f"{run}#{k}").name for k in (1, 2, 3)] == ["1", "better", "worse"]


@COMMANDS
def test_a_number_that_there_is_not_is_told_with_those_that_there_are(
    folder_of: Callable[[str], Path], run: Path
) -> None:
    for k in (0, 4):
        with pytest.raises(UserError, match=rf"has 3 trained networks, there is no #{k}$") as refused:
            folder_of(f"{run}#{k}")
        assert refused.value.hint == f"give {run}#k with k from 1 to 3: 1 winner, then 2 other finalists by accuracy"
    for wrong in ("best", "²", "", "-1"):
        with pytest.raises(UserError, match="has no number after #"):
            folder_of(f"{run}#{wrong}")
    with pytest.raises(UserError, match="no such run folder"):
        folder_of(f"{run}-none#1")


@COMMANDS
def test_a_run_without_winners_has_finalists(folder_of: Callable[[str], Path], run: Path) -> None:
    shutil.rmtree(run / "winners")
    assert [folder_of(f"{run}#{k}").name for k in (1, 2, 3)] == ["better", "same", "worse"]
    shutil.rmtree(run / "finalists")
    with pytest.raises(UserError, match="has no trained network"):
        folder_of(f"{run}#1")


def test_a_finalist_is_exported_under_its_number_with_what_its_run_was_asked(run: Path) -> None:
    shutil.rmtree(run / "winners")
    source = resolve(f"{run}#2")
    assert source.run is not None
    assert source.run.limits.given == {"latency_ms": 5.0}
    assert default_folder(source) == run / "exports" / "2"


def test_a_finalist_is_timed_with_the_files_that_were_calibrated(run: Path) -> None:
    folder = run / "finalists" / "better"
    assert read_model(f"{run}#2", None).delivered == {}, "it was never deployed"
    int8 = {"runtime": "openvino", "precision": "int8"}
    tried = [
        WORKS,
        {"deployment": int8, "file": "all.xml", "reason": ""},
        {"deployment": int8, "file": "last-layer-in-float.xml", "reason": ""},
        {"deployment": int8, "file": None, "reason": "could not be prepared: no kernel"},
    ]
    write_record(folder, DEPLOYED, {"parity": PARITY, "tried": tried}, [])
    assert read_model(f"{run}#2", None).delivered == {("openvino", "int8"): folder / "last-layer-in-float.xml"}


@pytest.mark.parametrize(
    ("parity", "tried", "sentence"),
    [
        (PARITY, {**WORKS, "file": None, "reason": "could not be run here: no kernel"},
         r"#2 cannot be timed: no deployment of it works, onnxruntime-fp32 could not be run here: no kernel$"),
        ({**PARITY, "agreement": 0.5}, WORKS, r"#2 cannot be timed: the ONNX file does not compute what torch does"),
    ],
)  # fmt: skip
def test_a_finalist_that_cannot_be_timed_can_be_trained(
    parity: dict[str, float], tried: dict[str, object], sentence: str, run: Path
) -> None:
    write_record(run / "finalists" / "better", DEPLOYED, {"parity": parity, "tried": [tried]}, [])
    with pytest.raises(UserError, match=sentence) as refused:
        read_model(f"{run}#2", None)
    assert refused.value.hint == f"`nas finetune {run}#2` can still train it"
    assert finetuned(f"{run}#2").name == "better"


def test_weights_that_are_gone_are_told(run: Path) -> None:
    weights_path(run / "finalists" / "better" / "model.network.json").unlink()
    with pytest.raises(UserError, match=r"#2 cannot be timed: its weights in .*better' are gone"):
        read_model(f"{run}#2", None)
