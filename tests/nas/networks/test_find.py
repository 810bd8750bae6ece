"""One vocabulary for networks: what each form names, and how the commands refuse what they cannot use."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nas.bench.models import read_model
from nas.bundles.source import resolve
from nas.data_options import DataSource
from nas.errors import UserError
from nas.finetune.sources import chosen_networks
from nas.networks.find import FoundNetwork, find_network, find_networks
from nas.networks.teachers import teacher_of
from search_spaces import load_search_space
from tests.nas.small_runs import small_description, write_data, write_run
from tests.nas.tiny import write_tiny_network

COMMANDS: dict[str, Callable[[str], Any]] = {
    "bench": lambda text: read_model(text, None),
    "export": resolve,
    "finetune": lambda text: chosen_networks(text, 3),
    "teacher": teacher_of,
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = write_run(tmp_path / "run", small_description(), write_data(tmp_path / "data.npz"))
    receipt = json.loads((folder / "winners/1/receipt.json").read_text())
    receipt |= {"onnx": "winner.onnx", "data": {"source": "elsewhere.npz", "seed": 4}}
    (folder / "winners/1/receipt.json").write_text(json.dumps(receipt))
    (folder / "winners/1/labels.json").write_text(json.dumps(["a", "b", "c"]))
    return folder


def test_the_same_network_by_four_names(run: Path) -> None:
    winner = run / "winners/1"
    names = [f"{run}#1", str(run), str(winner), str(winner / "model.network.json")]
    found = [find_network(name) for name in names]
    for network in found:
        assert network.kind == "network"
        assert network.description == small_description()
        assert network.run == run
        assert network.weights == winner / "model.safetensors"
        assert network.sha256 == json.loads((winner / "receipt.json").read_text())["sha256"]["model.safetensors"]
        assert network.labels() == ("a", "b", "c")
        assert network.folder == winner
    assert [network.rank for network in found] == [1, 1, None, None]
    for command in COMMANDS.values():
        for name in names:
            command(name)


def test_what_is_trained_and_where_results_go(run: Path, tmp_path: Path) -> None:
    for name, folder in ((str(run), run), (f"{run}#1", run), (str(run / "winners/1"), run / "winners/1")):
        chosen = chosen_networks(name, 3)
        assert [c.rank for c in chosen.candidates] == [1]
        assert (chosen.folder, chosen.data) == (folder, DataSource(source=str(tmp_path / "data.npz"), seed=0))
    bundle = (run / "winners/1").rename(tmp_path / "bundle")
    chosen = chosen_networks(str(bundle), 3)
    told = DataSource(source="elsewhere.npz", seed=4)
    assert (chosen.folder, chosen.data) == (bundle, told), "as its receipt says"
    (bundle / "receipt.json").unlink()
    chosen = chosen_networks(str(bundle / "model.network.json"), 3)
    assert (chosen.folder, chosen.data) == (bundle, None)


def test_a_bundle_without_its_weights_in_torch_is_a_graph(run: Path, tmp_path: Path) -> None:
    folder = run / "winners/1"
    for name in ("model.network.json", "model.safetensors"):
        (folder / name).unlink()
    with pytest.raises(UserError, match=r"holds no model\.onnx"):
        find_network(str(folder))
    write_tiny_network(folder / "winner.onnx")
    found = find_network(str(folder))
    assert (found.kind, found.onnx, found.description) == ("onnx", folder / "winner.onnx", None)


def other_kinds(folder: Path) -> dict[str, FoundNetwork]:
    description = small_description()
    (folder / "arch.json").write_text(
        json.dumps(load_search_space("mobile").to_json(description.source))  # type: ignore[arg-type]
    )
    write_tiny_network(folder / "net.onnx")
    names = {"architecture": str(folder / "arch.json"), "onnx": str(folder / "net.onnx")}
    names |= {"torchvision": "torchvision:resnet18", "timm": "timm:resnet18"}
    return {kind: find_network(name) for kind, name in names.items()}


def test_a_command_refuses_what_it_cannot_use(tmp_path: Path) -> None:
    found = other_kinds(tmp_path)
    assert {kind: network.kind for kind, network in found.items()} == {kind: kind for kind in found}
    refused = {
        "architecture": {"bench", "export", "finetune", "teacher"},
        "onnx": {"export", "finetune", "teacher"},
        "torchvision": {"export", "teacher"},
        "timm": {"bench", "export", "teacher"},
    }
    for kind, commands in refused.items():
        for name, command in COMMANDS.items():
            if name not in commands:
                command(found[kind].text)
                continue
            with pytest.raises(UserError, match=r"of no use here|without weights|names no weights") as error:
                command(found[kind].text)
            assert error.value.hint
            assert found[kind].text in str(error.value)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["nowhere", "nowhere.network.json", "nowhere#1", "EMPTY", "EMPTY#1"])
def test_nothing_of_that_name(name: str, command: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    text = name.replace("EMPTY", str(tmp_path / "empty"))
    with pytest.raises(UserError, match=r"no such (network|run folder)|has no trained network") as error:
        COMMANDS[command](text)
    assert error.value.hint


def test_damaged_files_are_named(run: Path) -> None:
    (run / "winners/1/receipt.json").write_text("[]")
    with pytest.raises(UserError, match="is no receipt"):
        find_network(f"{run}#1")
    (run / "winners/1/receipt.json").write_text("{")
    with pytest.raises(UserError, match="is not JSON"):
        find_networks(str(run), 1)
