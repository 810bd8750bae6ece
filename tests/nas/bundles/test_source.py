"""What `nas export` can be asked for, and how it says that there is no such thing."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from nas.bundles.source import resolve
from nas.controller.runs.run_folder import RunFolder
from nas.data.preprocessing import PREPROCESS
from nas.data_options import DataSource
from nas.errors import UserError
from nas.files.writing import sha256_of
from nas.networks.description import weights_path
from nas.networks.find import LABELS, RECEIPT
from search_spaces import load_search_space
from tests.nas.small_bundles import save_pair, small_network

CONFIG = {
    "target": "local", "limits": {"latency_ms": 10.0, "percentile": 90, "max_params": 2e6}, "data": "digits", "seed": 3,
    "max_drop": 0.02, "threads": 2, "space": "mobile",
}  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """As much of a run's folder as exporting needs."""
    folder = tmp_path / "run"
    pair = save_pair(folder / "winners" / "1")
    (pair.parent / PREPROCESS).write_text(json.dumps({"mean": [0.1, 0.2, 0.3], "std": [1.0, 2.0, 3.0]}))
    (pair.parent / LABELS).write_text(json.dumps(["a", "b"]))
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "result.json").write_text(json.dumps({"best": [{"rank": 1}]}))
    return folder


def test_a_winner_brings_its_run(run: Path) -> None:
    for name in (str(run), f"{run}#1"):
        source = resolve(name)
        assert source.run is not None
        assert source.run.limits.to_json() == {"latency_ms": 10.0, "percentile": 90, "max_params": 2e6}
        assert (source.run.max_drop, source.run.threads) == (0.02, 2)
        assert source.data == DataSource(source="digits", seed=3)
        assert source.preprocess is not None
        assert source.preprocess.std == (1.0, 2.0, 3.0)
        assert source.labels == ("a", "b")
        description = source.described((10,))
        source.load(description)(torch.zeros(1, 3, 32, 32))
        with pytest.raises(UserError, match=r"has 10 outputs, the data has 3 classes"):
            source.described((3,))


def test_a_folder_may_be_called_like_a_winner(tmp_path: Path) -> None:
    save_pair(tmp_path / "net#1")
    assert resolve(str(tmp_path / "net#1")).path == tmp_path / "net#1" / "model.network.json"


def test_the_batch_of_a_run_is_that_of_its_target(run: Path) -> None:
    def batch() -> int | None:
        settings = resolve(f"{run}#1").run
        return settings.batch if settings else None

    assert batch() == 1, "a run that was killed early has no such file"
    path = RunFolder(run).target
    known = {"runtime": "onnxruntime", "precision": "fp32", "threads": 2, "batch": 8}
    path.write_text(
        json.dumps({"deployments": [{"deployment": known}, {"deployment": {**known, "precision": "int8"}}]})
    )
    assert batch() == 8
    for damaged in ({"deployments": [{}]}, ["deployments"], {"deployments": [{"deployment": {**known, "batch": 0}}]}):
        path.write_text(json.dumps(damaged))
        with pytest.raises(UserError, match=r"target.json' is not what a search wrote"):
            batch()


def test_a_pair_inside_a_run_is_of_that_run(run: Path) -> None:
    pair = save_pair(run / "finetune" / "1")
    for name in (str(pair), str(pair.parent)):
        source = resolve(name)
        assert source.run is not None
        assert source.data == DataSource(source="digits", seed=3)
        assert source.labels == ("a", "b")
        assert source.weights == weights_path(pair)


def test_a_checkpoint_brings_what_it_was_trained_with(run: Path, tmp_path: Path) -> None:
    pair = save_pair(tmp_path / "elsewhere")
    (pair.parent / PREPROCESS).write_text(json.dumps({"mean": [0.5] * 3, "std": [0.25] * 3}))
    (pair.parent / LABELS).write_text(json.dumps(["c", "d"]))
    source = resolve(f"{run}#1", weights_path(pair))
    assert source.preprocess is not None
    assert source.preprocess.mean == (0.5, 0.5, 0.5), "not that of the winner"
    assert source.labels == ("c", "d")


def test_a_pair_alone_and_an_architecture_with_weights(tmp_path: Path) -> None:
    pair = save_pair(tmp_path)
    assert resolve(str(pair)).run is None
    _, description = small_network()
    space = load_search_space("mobile")
    arch = tmp_path / "arch.json"
    arch.write_text(json.dumps(space.to_json(description.source)))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="is an architecture without weights") as refused:
        resolve(str(arch))
    assert "--checkpoint" in str(refused.value.hint)
    source = resolve(str(arch), weights_path(pair))
    assert source.described((10,)) == description
    with torch.no_grad():
        out = source.load(source.described((10,)))(torch.ones(1, 3, 32, 32))
        assert torch.equal(out, small_network()[0](torch.ones(1, 3, 32, 32)))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nowhere#1", "no such run folder: 'nowhere'"),
        ("nowhere.json", "no such network"),
        ("RUN/winners", "no such network"),
        ("RUN/winners/1/model.safetensors", "is neither a network nor an architecture: those are JSON files"),
        ("RUN/result.json", "is neither a network nor an architecture"),
        ("RUN/unfinished#1", "has no trained network"),
        ("RUN/unfinished", "has no trained network"),
    ],
)
def test_unknown_networks_are_named(name: str, sentence: str, run: Path) -> None:
    (run / "unfinished").mkdir()
    (run / "unfinished" / "config.json").write_text("{}")
    with pytest.raises(UserError, match=sentence) as refused:
        resolve(name.replace("RUN", str(run)))
    assert refused.value.hint


def test_weights_that_are_not_what_they_were(tmp_path: Path) -> None:
    pair = save_pair(tmp_path)
    weights = weights_path(pair)
    source = resolve(str(pair))
    description = source.described((10,))
    whole = weights.read_bytes()

    def refusal(content: bytes) -> str:
        weights.write_bytes(content)
        with pytest.raises(UserError) as refused:
            source.load(description)
        assert refused.value.hint
        return str(refused.value)

    assert "not a whole safetensors file" in refusal(whole[:-100])
    torch.save({"weight": torch.zeros(1)}, tmp_path / "pickle")
    assert "is a pickle" in refusal((tmp_path / "pickle").read_bytes())
    weights.write_bytes(whole)
    other = resolve(str(pair), save_other(tmp_path))
    with pytest.raises(UserError, match=r"the weights of another network: \d+ tensors differ, the first is"):
        other.load(description)
    # One changed byte is a whole safetensors file: only its checksum tells.
    (tmp_path / RECEIPT).write_text(json.dumps({"sha256": {weights.name: sha256_of(weights)}}))
    source = resolve(str(pair))
    source.load(description)
    assert "was changed after it was written" in refusal(whole[:-1] + bytes([whole[-1] ^ 1]))
    weights.unlink()
    with pytest.raises(UserError, match="does not exist"):
        source.load(description)


def save_other(folder: Path) -> Path:
    from safetensors.torch import save_file

    save_file({"weight": torch.zeros(1)}, str(folder / "other.safetensors"))
    return folder / "other.safetensors"


@pytest.mark.parametrize("document", [{}, {"mean": [0.0], "std": [1.0]}, {"mean": 1, "std": 1}, []])
def test_a_damaged_preprocessing_is_named(document: Any, run: Path) -> None:
    (run / "winners" / "1" / PREPROCESS).write_text(json.dumps(document))
    with pytest.raises(UserError, match="has no mean and std of three channels"):
        resolve(str(run))
    shutil.rmtree(run)
