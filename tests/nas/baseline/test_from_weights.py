"""Searches that begin from published weights of other data: which are tried, which are taken, and what is delivered."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from nas.baseline import from_weights
from nas.baseline.config import BaselineConfig
from nas.baseline.from_weights import run_from_weights
from nas.baseline.starts import Choice, Start, chosen, most_accurate, offered
from nas.cli.main import run
from nas.controller.config import SearchConfig
from nas.controller.planning.budget import Beforehand
from nas.controller.search import SearchResult
from nas.data.images import image_input
from nas.errors import UserError
from nas.files.tensors import load_tensors, save_tensors
from nas.networks.description import NetworkDescription
from nas.networks.libraries import cached_networks
from nas.tasks.classification.data.registry import load_dataset
from nas.tasks.classification.task import Classification
from nas.tasks.examples import examples_of
from nas.training.loop import train
from tests.nas.baseline.conftest import configured, latency
from tests.nas.small_runs import write_data

FAST = Start(network="torchvision:a", weights="W", deployment="d", latency_ms=1.0, accuracy=0.80)
BETTER = replace(FAST, network="torchvision:b", latency_ms=1.9, accuracy=0.90)


def test_the_most_accurate_that_keeps_the_limit_is_tried_first() -> None:
    slow = replace(FAST, network="torchvision:c", accuracy=0.97).timed("d", 4.5, 4.6)
    unknown = replace(BETTER, network="e", accuracy=None)
    assert "4.5" in slow.told
    assert "--baseline" in slow.told
    assert most_accurate([FAST, slow, BETTER, unknown]) == BETTER
    assert most_accurate([BETTER, replace(BETTER, network="f", latency_ms=0.5)]) == replace(
        BETTER, network="f", latency_ms=0.5
    )
    assert most_accurate([slow, unknown]) is None
    assert FAST.timed("d", 4.5, 4.8).reason == ""


def test_weights_are_taken_where_they_are_surely_better_than_none() -> None:
    assert chosen(BETTER, 0.5, 0.01).start == BETTER
    assert chosen(BETTER, 0.895, 0.01).start is None
    assert chosen(BETTER, 0.895, None).start == BETTER
    assert chosen(None, None, None, (FAST,)).start is None
    assert "no published weights for this task" in chosen(None, None, None).why
    choice = chosen(BETTER, 0.5, 0.01, (FAST, BETTER))
    assert Choice.from_json(choice.to_json()) == choice
    assert any("90.0 % after a short training at 1.90 ms in d" in note for note in choice.notes)


def test_a_network_that_is_of_no_library_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        offered([str(tmp_path)], "classification")
    assert "torchvision:NAME" in str(error.value.hint)


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty caches of both libraries."""
    from huggingface_hub import constants

    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "torch"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    (tmp_path / "torch" / "checkpoints").mkdir(parents=True)
    return tmp_path


def test_cached_weights_are_found_the_smallest_first(caches: Path) -> None:
    assert cached_networks("classification") == offered(["auto"], "classification") == []
    (caches / "torch" / "checkpoints" / "resnet18-f37072fd.pth").write_bytes(b"x" * 30)
    (caches / "torch" / "checkpoints" / "mobilenet_v3_small-047dcff4.pth").write_bytes(b"x" * 10)
    (caches / "torch" / "checkpoints" / "mine.pth").write_bytes(b"x")
    for name in ("mobilenetv3_small_100.lamb_in1k", "mobilenetv3_small_100.other", "of_nobody.a1"):
        snapshot = caches / "hub" / f"models--timm--{name}" / "snapshots" / "abc"
        snapshot.mkdir(parents=True)
        (snapshot / "model.safetensors").write_bytes(b"x" * 20)
        (snapshot.parents[1] / "refs").mkdir()
        (snapshot.parents[1] / "refs" / "main").write_text("abc")
    names = ["torchvision:mobilenet_v3_small", "timm:mobilenetv3_small_100", "torchvision:resnet18"]
    assert cached_networks("classification") == names
    assert cached_networks("detection") == []
    assert offered(["torchvision:resnet18", "auto"], "classification") == [names[2], *names[:2]]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings of one epoch, which need not find out first how this machine trains fastest."""
    real = from_weights.recipe_named
    known = {"precision": "fp32", "channels_last": True, "batch_size": 32}
    monkeypatch.setattr(from_weights, "recipe_named", lambda *given: real(*given).changed(**known))
    monkeypatch.setattr(from_weights, "TRIAL_EPOCHS", 1)
    monkeypatch.setattr(from_weights, "FINAL_EPOCHS", 1)


@pytest.fixture(scope="module")
def blobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """90 images of three classes for each split, at 32 px."""
    return write_data(tmp_path_factory.mktemp("blobs") / "blobs.npz", per_class=30)


@pytest.fixture(scope="module")
def trained(blobs: Path) -> Mapping[str, torch.Tensor]:
    """The tensors of a network that knows the three classes."""
    data, task = load_dataset(str(blobs)), Classification()
    description = NetworkDescription.of_baseline("resnet10_w50", data.output_size, image_input(32))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = description.build()
    recipe = task.recipe(epochs=6, precision="fp32")
    examples = examples_of(data, description.signature.input)
    objective = task.objective(network, examples, recipe, device=torch.device("cpu"))
    assert train(network, objective, recipe, device="cpu", validates="last").accuracy > 0.8
    return network.state_dict()


@pytest.fixture
def of_others(trained: Mapping[str, torch.Tensor], tmp_path: Path) -> str:
    """The network as somebody has it who knows two of the classes."""
    fewer = {name: tensor[:2].clone() if name.startswith("fc.") else tensor for name, tensor in trained.items()}
    save_tensors(tmp_path / "two.safetensors", fewer, {})
    return f"torchvision:resnet10_w50:{tmp_path / 'two.safetensors'}"


@pytest.mark.slow
def test_weights_that_help_are_fine_tuned_and_delivered(
    of_others: str,
    blobs: Path,
    tmp_path: Path,
    short: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "run"
    command = [
        *("search", "--data", str(blobs), "--latency-ms", "1000", "--weights", of_others),
        *("--threads", "1", "--runtime", "onnxruntime", "--precision", "fp32", "--budget", "10m", "--quiet"),
        *("--out", str(out), "--json"),
    ]
    assert run(command) == 0, capsys.readouterr().err
    document = _result(out)
    (best,) = document["best"]
    assert best["accuracy"]["deployed"] > 0.7
    told = " ".join(document["notes"])
    assert f"published weights: {of_others} (two.safetensors)" in told
    assert "its weights are taken" in told
    assert "was given a last layer for these data and fine-tuned from two.safetensors for 1 epoch" in told
    assert document["seconds"]["weights"] > 0
    assert document["seconds"]["total"] >= sum(s for k, s in document["seconds"].items() if k != "total") - 1
    monkeypatch.setattr(from_weights, "task_named", None)
    assert run([*command, "--budget", "5m"]) == 0, "a finished run is only read"
    monkeypatch.undo()
    (out / "result.json").unlink()
    trained = (tmp_path / "run-weights" / "final" / "model.safetensors").stat().st_mtime_ns
    monkeypatch.setattr(from_weights, "deploy", None)  # what was chosen is read
    assert run([*command, "--budget", "5m"]) == 0, "another budget is another time for what is left"
    assert (tmp_path / "run-weights" / "final" / "model.safetensors").stat().st_mtime_ns == trained
    assert _result(out)["best"][0]["accuracy"]["deployed"] == best["accuracy"]["deployed"]


def _result(run: Path) -> dict[str, Any]:
    import json

    found: dict[str, Any] = json.loads((run / "result.json").read_text())
    return found


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[SearchConfig, Beforehand]]:
    """What searches from nothing were asked for; none is made."""
    asked: list[tuple[SearchConfig, Beforehand]] = []

    def search(config: SearchConfig, progress: Any, beforehand: Beforehand) -> SearchResult:
        asked.append((config, beforehand))
        return SearchResult({}, config.run_dir, 0)

    monkeypatch.setattr(from_weights, "run_search", search)
    return asked


def _scratch(**settings: Any) -> SearchConfig:
    return SearchConfig(data="digits", limits=latency(1000.0), **settings)


def test_weights_that_do_not_help_are_told_and_left(
    of_others: str, blobs: Path, tmp_path: Path, short: None, searched: list[tuple[SearchConfig, Beforehand]]
) -> None:
    """Random weights under the name of trained ones are no better than other random weights."""
    path = Path(of_others.rpartition(":")[2])
    tensors: Mapping[str, torch.Tensor] = load_tensors(path)[0]
    noise = {n: torch.randn_like(t) if t.is_floating_point() and t.dim() > 1 else t for n, t in tensors.items()}
    save_tensors(path, {n: t * 3 if t.is_floating_point() and t.dim() > 1 else t for n, t in noise.items()}, {})
    config = configured(
        tmp_path, tmp_path / "run", limits=latency(1000.0), precisions=("fp32",), data=str(blobs), baseline=""
    )
    run_from_weights([of_others], config, _scratch(), None)
    ((asked, before),) = searched
    assert asked.out == tmp_path / "run"
    assert before.seconds["total"] >= before.seconds["weights"] > 0
    assert "its weights do not help" in before.notes[-1]
    assert "after a short training at" in before.notes[0]


def test_an_empty_cache_is_a_search_from_nothing(
    tmp_path: Path, caches: Path, searched: list[tuple[SearchConfig, Beforehand]]
) -> None:
    config = configured(tmp_path, tmp_path / "run", limits=latency(1000.0), baseline="")
    run_from_weights(["auto"], config, _scratch(), None)
    ((_, before),) = searched
    assert before.notes == ("no published weights for this task are here: networks are trained from nothing",)


def test_cached_weights_that_cannot_be_read_are_a_remark(
    tmp_path: Path, caches: Path, searched: list[tuple[SearchConfig, Beforehand]]
) -> None:
    (caches / "torch" / "checkpoints" / "mobilenet_v3_small-047dcff4.pth").write_bytes(b"damaged")
    config = configured(tmp_path, tmp_path / "run", limits=latency(1000.0), baseline="")
    run_from_weights(["auto"], config, _scratch(), None)
    ((_, before),) = searched
    assert "cannot get the published weights of 'torchvision:mobilenet_v3_small'" in before.notes[0]
    with pytest.raises(UserError, match="cannot get the published weights"):
        run_from_weights(["torchvision:mobilenet_v3_small"], replace(config, out=tmp_path / "b"), _scratch(), None)


def test_a_killed_process_has_lost_nothing(
    of_others: str, trained: Mapping[str, torch.Tensor], blobs: Path, tmp_path: Path, short: None,
    searched: list[tuple[SearchConfig, Beforehand]], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Ended after each of its steps, it goes on with the next: nothing is timed, trained or chosen twice."""
    save_tensors(tmp_path / "whole.safetensors", dict(trained), {})
    weights = [of_others, f"torchvision:resnet10_w50:{tmp_path / 'whole.safetensors'}"]
    config = configured(
        tmp_path, tmp_path / "run", limits=latency(1000.0), precisions=("fp32",), data=str(blobs), baseline=""
    )
    done: list[str] = []

    def killed_after(name: str) -> None:
        real = getattr(from_weights, name)

        def step(*args: Any, **options: Any) -> Any:
            found = real(*args, **options)
            if not (isinstance(found, dict) and found["reused"]):
                done.append(name)
                if name == "train_candidate" or done == ["deploy"]:  # both networks are timed in one step
                    raise KeyboardInterrupt
            return found

        monkeypatch.setattr(from_weights, name, step)

    killed_after("deploy")
    killed_after("train_candidate")
    asked: list[tuple[BaselineConfig, Beforehand]] = []

    def derive(config: BaselineConfig, progress: Any, beforehand: Beforehand) -> SearchResult:
        asked.append((config, beforehand))
        return SearchResult({"best": [{"accuracy": {"deployed": 1.0}}]}, config.run_dir, 0)

    monkeypatch.setattr(from_weights, "run_baseline", derive)
    for _ in range(5):
        with pytest.raises(KeyboardInterrupt):
            run_from_weights(weights, config, _scratch(), None)
    run_from_weights(weights, config, _scratch(), None)
    ((derived, before),) = asked
    assert done == ["deploy"] * 3 + ["train_candidate"] * 4, "two networks, one from random weights, and the last one"
    assert derived.baseline == str(tmp_path / "run-weights" / "final" / "model.network.json")
    assert before.seconds["total"] >= before.seconds["weights"] > 0
    assert len([note for note in before.notes if note.startswith("published weights")]) == 2
    assert not searched


def test_a_network_that_cannot_be_exported_is_said(
    of_others: str, blobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: Any, **__: Any) -> None:
        raise RuntimeError("no operator aten::of_mine\nand many lines more")

    monkeypatch.setattr(from_weights, "deploy", unknown)
    config = configured(tmp_path, tmp_path / "run", limits=latency(1000.0), data=str(blobs), baseline="")
    with pytest.raises(UserError, match=r"cannot be exported: no operator aten::of_mine$"):
        run_from_weights([of_others], config, _scratch(), None)


def test_a_folder_of_another_run_is_refused_before_anything_is_tried(blobs: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{}")
    config = configured(tmp_path, tmp_path / "run", limits=latency(1000.0), data=str(blobs), baseline="")
    with pytest.raises(UserError, match="is not empty"):
        run_from_weights(["auto"], config, _scratch(), None)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--baseline", "RUN"), "both say what the search begins from"),
        (("--space", "mobile"), "--space is of no use with --weights"),
        (("--speedup", "2"), "compares with a trained network"),
        (("--max-params", "1e6"), "not supported where a search begins from a trained network"),
    ],
)
def test_what_says_nothing_there_is_refused(
    more: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked = ["search", "--data", "digits", "--latency-ms", "10", "--weights", "auto", "--out", str(tmp_path / "r")]
    assert run([*asked, *more]) == 1
    assert message in capsys.readouterr().err
