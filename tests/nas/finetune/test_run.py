"""Fine-tuning a run: from its weights to a pair of files, read again, refused where something is wrong."""

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torchvision.models import get_model

from nas.bundles.source import resolve
from nas.cli.main import run
from nas.data import Preprocess
from nas.data.images import image_input
from nas.data_options import DataSource
from nas.errors import UnknownNameError, UserError
from nas.files.folders import locked
from nas.files.tensors import load_tensors
from nas.finetune import quantisation as qat
from nas.finetune.run import finetune
from nas.finetune.sources import chosen_networks, starting_network
from nas.measure import protocol
from nas.networks.description import NetworkDescription, load_network, save_network
from nas.networks.find import find_network
from nas.networks.starting import network_to_start_from
from nas.networks.teachers import load_teacher
from nas.networks.trained_on import data_of_run
from nas.progress import SilentProgress
from nas.tasks import task_of
from nas.tasks.classification.data.registry import load_dataset
from search_spaces.modules import set_norm_statistics
from tests.nas.killing import start, stop_when
from tests.nas.small_bundles import instant
from tests.nas.small_runs import small_description, write_data, write_run

QUICK = ("epochs=2", "precision=fp32", "channels_last=yes", "batch_size=12", "ema_decay=0.9")


def test_a_run_is_trained_and_then_read(run_folder: Path) -> None:
    document = finetune(run_folder, overrides=QUICK)
    (network,) = document["networks"]
    assert network["accuracy"]["before"] is not None
    assert network["accuracy"]["after"] == max(network["accuracy"]["last"], network["accuracy"]["best"])
    assert (network["epochs"], network["start"], network["reused"]) == (2, "trained", False)
    pair = Path(network["checkpoint"])
    assert pair == run_folder / "finetune" / "classification-fast" / "1" / "model.network.json"
    with torch.no_grad():
        assert network["input"] == "32 px"
        assert load_network(pair)(torch.zeros(1, 3, 32, 32)).shape == (1, 3)
    again = finetune(run_folder, overrides=QUICK)["networks"][0]
    assert again == {**network, "reused": True}


def test_a_folder_that_was_moved_is_read_where_it_is(run_folder: Path, tmp_path: Path) -> None:
    finetune(run_folder, overrides=QUICK, out=tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / "b")
    (again,) = finetune(run_folder, overrides=QUICK, out=tmp_path / "b")["networks"]
    assert again["reused"]
    assert Path(again["checkpoint"]) == tmp_path / "b" / "1" / "model.network.json"


def test_two_calls_do_not_train_in_one_folder(run_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / "1").mkdir(parents=True)
    with locked(tmp_path / "out" / "1"), pytest.raises(UserError, match="another process works on"):
        finetune(run_folder, overrides=QUICK, out=tmp_path / "out")


@pytest.mark.slow
def test_quantisation_aware_training_from_the_recipe_to_the_export(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qat, "RUNTIMES", ("onnxruntime",))
    monkeypatch.setattr(protocol, "measure", instant)
    settings = ("qat.epochs=2", "batch_size=12", "precision=fp32", "channels_last=yes")
    (network,) = finetune(run_folder, recipe="classification-qat", overrides=settings)["networks"]
    assert (network["epochs"], network["qat"]["epochs"]) == (0, 2)
    assert network["accuracy"]["after"] == network["accuracy"]["before"], "the pair is the network before rounding"
    assert [d["quantised"] for d in network["qat"]["deployments"]] == ["after training", "quantisation-aware"]
    folder = Path(network["checkpoint"]).parent
    source = resolve(str(folder))
    assert source.in_training is not None
    assert source.in_training.file == folder / "qat" / "model.onnx"
    (again,) = finetune(run_folder, recipe="classification-qat", overrides=settings)["networks"]
    assert again == {**network, "reused": True}
    source.in_training.file.unlink()
    (made_again,) = finetune(run_folder, recipe="classification-qat", overrides=settings)["networks"]
    assert made_again["qat"]["val_accuracy_torch"] == network["qat"]["val_accuracy_torch"]


def test_finished_weights_that_were_changed_are_made_again(run_folder: Path) -> None:
    (network,) = finetune(run_folder, overrides=QUICK)["networks"]
    weights = Path(network["checkpoint"]).with_name("model.safetensors")
    before = weights.read_bytes()
    weights.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    (again,) = finetune(run_folder, overrides=QUICK)["networks"]
    assert not again["reused"]
    load_tensors(weights)
    assert again["accuracy"] == network["accuracy"]


def test_another_recipe_in_the_same_folder_is_refused(run_folder: Path) -> None:
    finetune(run_folder, overrides=QUICK)
    with pytest.raises(UserError, match=r"recipe\.optimizer\.lr differ"):
        finetune(run_folder, overrides=(*QUICK, "optimizer.lr=0.5"))


def test_how_the_data_are_read_is_said(run_folder: Path, tmp_path: Path) -> None:
    said: list[str] = []
    with np.load(write_data(tmp_path / "whole.npz")) as arrays:
        np.savez(tmp_path / "part.npz", **{name: arrays[name] for name in arrays if not name.endswith("_test")})

    class Said(SilentProgress):
        def note(self, message: str) -> None:
            said.append(message)

    finetune(run_folder, overrides=QUICK, smoke=True, progress=Said(), data=str(tmp_path / "part.npz"))
    assert any(note.startswith("val: ") for note in said), said


def test_smoke_keeps_nothing(run_folder: Path) -> None:
    document = finetune(run_folder, recipe="classification", overrides=QUICK[1:], smoke=True)
    assert document["networks"][0]["epochs"] == 1
    assert document["data"]["train"] == 24
    assert not (run_folder / "finetune").exists()


def test_other_classes_start_with_a_new_head(run_folder: Path, tmp_path: Path) -> None:
    data = write_data(tmp_path / "two.npz", classes=2)
    (network,) = finetune(run_folder, overrides=QUICK, data=str(data))["networks"]
    assert (network["start"], network["accuracy"]["before"]) == ("trained without head", None)
    assert json.loads(Path(network["checkpoint"]).read_text())["signature"]["output"]["size"] == [2]


def test_classes_of_other_names_start_with_a_new_head_and_those_in_another_order_with_its_rows(
    run_folder: Path,
) -> None:
    winner = run_folder / "winners" / "1"
    data = load_dataset(str(run_folder.with_name("data.npz")))
    network = load_network(winner / "model.network.json", fold=False)
    set_norm_statistics(network, data.preprocess.tensor(torch.from_numpy(data.val.images)))
    network.eval()

    def answers(chosen: nn.Module) -> torch.Tensor:
        with torch.no_grad():
            found: torch.Tensor = chosen.eval()(data.preprocess.tensor(torch.from_numpy(data.val.images)))
        return found

    save_network(network, small_description(), winner / "model.network.json")
    (winner / "receipt.json").unlink()
    for names, wanted, rows in (
        (["0", "1", "2"], "trained", [0, 1, 2]),
        (["2", "0", "1"], "trained", [1, 2, 0]),
        (["cat", "dog", "bird"], "trained without head", None),
    ):
        (winner / "labels.json").write_text(json.dumps(names))
        (candidate,) = chosen_networks(str(run_folder), 1).candidates
        made, told = starting_network(candidate, data, 1, scratch=False)
        assert told == wanted
        if rows is not None:
            torch.testing.assert_close(answers(made), answers(network)[:, rows])
        else:
            assert not torch.allclose(answers(made), answers(network))
    (told_of,) = finetune(run_folder, overrides=(*QUICK[1:], "epochs=1"))["networks"]
    assert (told_of["start"], told_of["accuracy"]["before"]) == ("trained without head", None)
    (winner / "labels.json").write_text(json.dumps(["2", "0", "1"]))
    with pytest.raises(UserError, match=r"holds another fine-tuning \(start_classes\b.* differ\)"):
        finetune(run_folder, overrides=(*QUICK[1:], "epochs=1"))


def test_the_names_beside_a_librarys_weights_are_looked_at(tmp_path: Path) -> None:
    torch.manual_seed(0)
    save_file(get_model("squeezenet1_1", num_classes=3).state_dict(), tmp_path / "three.safetensors")
    data = load_dataset(str(write_data(tmp_path / "data.npz")))
    found = find_network(f"torchvision:squeezenet1_1:{tmp_path / 'three.safetensors'}")
    whole = network_to_start_from(found, data, image_input(64))
    (tmp_path / "labels.json").write_text(json.dumps(["2", "0", "1"]))
    turned = network_to_start_from(found, data, image_input(64))
    (tmp_path / "labels.json").write_text(json.dumps(["cat", "dog", "bird"]))
    anew = network_to_start_from(found, data, image_input(64))
    assert (whole.whole, turned.whole, anew.whole) == (True, True, False)
    assert whole.sha256 == turned.sha256 == anew.sha256
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(turned.network(images), whole.network(images)[:, [1, 2, 0]])


def test_a_network_of_a_library_keeps_what_it_learnt_on_other_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    save_file(get_model("squeezenet1_1", num_classes=7).state_dict(), tmp_path / "seven.safetensors")
    text, data = f"torchvision:squeezenet1_1:{tmp_path / 'seven.safetensors'}", str(write_data(tmp_path / "data.npz"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"seven\.safetensors' does not say what its data are"):
        finetune(text)
    document = finetune(text, overrides=QUICK, data=data)
    (network,) = document["networks"]
    assert (network["start"], network["accuracy"]["before"], network["epochs"]) == ("trained without head", None, 2)
    assert document["out"] == "runs/torchvision-squeezenet1_1/finetune/classification-fast"
    source = resolve(f"{document['out']}/1")
    assert source.labels == load_dataset(data).classes
    assert source.preprocess.mean == (0.485, 0.456, 0.406)
    assert finetune(text, overrides=QUICK, data=data)["networks"][0]["reused"]
    # what it has learnt is whole for the same classes
    learnt = f"torchvision:squeezenet1_1:{tmp_path / document['out'] / '1' / 'model.safetensors'}"
    (again,) = finetune(learnt, overrides=QUICK, data=data, out=tmp_path / "again")["networks"]
    assert (again["start"], again["accuracy"]["before"]) == ("trained", network["accuracy"]["after"])


def test_the_input_of_a_run_is_known(run_folder: Path) -> None:
    with pytest.raises(UserError, match=r"--resolution 64: the input of .* is known"):
        finetune(run_folder, resolution=64)


def test_the_data_of_a_fine_tuning_are_those_of_its_export(run_folder: Path, tmp_path: Path) -> None:
    first = run_folder / "winners" / "1"
    (first / "labels.json").write_text(json.dumps(["a", "b", "c"]))
    (first / "preprocess.json").write_text(json.dumps({"mean": [0.1] * 3, "std": [0.2] * 3}))
    data = write_data(tmp_path / "two.npz", classes=2)
    (network,) = finetune(run_folder, overrides=QUICK, data=str(data))["networks"]
    source = resolve(str(Path(network["checkpoint"]).parent))
    assert source.labels == load_dataset(str(data)).classes
    assert source.preprocess == load_dataset(str(data)).preprocess
    assert source.data == DataSource(source=str(data), seed=0)
    again = finetune(Path(network["checkpoint"]).parent, overrides=QUICK, out=tmp_path / "again")
    assert again["data"]["classes"] == 2
    assert again["networks"][0]["trained_on"] == source.data.to_json()


def test_a_network_goes_on_with_the_normalisation_that_it_was_trained_with(run_folder: Path) -> None:
    winner, settings = run_folder / "winners" / "1", (*QUICK[1:], "epochs=1")
    own = Preprocess((0.9,) * 3, (0.05,) * 3)
    data = load_dataset(str(run_folder.with_name("data.npz")))
    network = load_network(winner / "model.network.json", fold=False)
    set_norm_statistics(network, own.tensor(torch.from_numpy(data.val.images)))
    save_network(network.eval(), small_description(), winner / "model.network.json")
    (winner / "receipt.json").unlink()
    finetune(run_folder, overrides=settings)
    (winner / "preprocess.json").write_text(json.dumps({"mean": own.mean, "std": own.std}))
    with pytest.raises(UserError, match=r"holds another fine-tuning \(preprocess differ\)"):
        finetune(run_folder, overrides=settings)
    (told,) = finetune(run_folder, overrides=settings, out=run_folder / "out")["networks"]
    written = json.loads(Path(told["checkpoint"]).with_name("preprocess.json").read_text())
    assert (written["mean"], written["std"]) == ([0.9] * 3, [0.05] * 3)
    folded, task = load_network(winner / "model.network.json"), task_of(data)
    seen = {p: task.accuracy(folded, data.val, p, device="cpu") for p in (own, data.preprocess)}
    assert seen[own] != seen[data.preprocess]
    assert told["accuracy"]["before"] == seen[own]


def test_a_fine_tuning_outside_of_its_run_knows_its_data(run_folder: Path, tmp_path: Path) -> None:
    finetune(run_folder, overrides=QUICK, out=tmp_path / "elsewhere")
    source = resolve(str(tmp_path / "elsewhere" / "1"))
    assert source.run is None
    assert source.data == data_of_run(run_folder)


def test_a_teacher_sees_images_as_it_was_trained_on_them(tmp_path: Path) -> None:
    data = load_dataset(str(write_data(tmp_path / "data.npz")))
    folder, own = tmp_path / "teacher", Preprocess((0.3, 0.4, 0.5), (0.1, 0.2, 0.4))
    folder.mkdir()
    network = small_description().build()
    set_norm_statistics(network, torch.randn(16, 3, 32, 32))
    save_network(network.eval(), small_description(), folder / "model.network.json")
    pixels = torch.from_numpy(data.val.images)
    spec = small_description().signature.input
    assert data.val.input == spec

    def taught() -> torch.Tensor:
        teacher = load_teacher(str(folder), data, spec, torch.device("cpu"))
        return teacher(data.preprocess.tensor(pixels), features=False)[0]

    with torch.no_grad():
        torch.testing.assert_close(taught(), network(data.preprocess.tensor(pixels)))
        (folder / "preprocess.json").write_text(json.dumps({"mean": own.mean, "std": own.std}))
        torch.testing.assert_close(taught(), network(own.tensor(pixels)), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("teacher", ["{run}#1", "{run}/winners/1/model.network.json", "torchvision:resnet10_w50:{zoo}"])
def test_distillation(teacher: str, run_folder: Path, tmp_path: Path) -> None:
    pair = tmp_path / "zoo.network.json"
    save_network(
        NetworkDescription.of_baseline("resnet10_w50", (3,), image_input(32)).build(),
        NetworkDescription.of_baseline("resnet10_w50", (3,), image_input(32)),
        pair,
    )
    name = teacher.format(run=run_folder, zoo=tmp_path / "zoo.safetensors")
    settings = (*QUICK, "epochs=1", f"distillation.teacher={name}", "distillation.features_weight=0.5")
    (network,) = finetune(run_folder, recipe="classification-distill", overrides=settings)["networks"]
    assert "learner.adapter.weight" in load_tensors(Path(network["checkpoint"]).with_name("state.safetensors"))[0]


def test_another_teacher_is_another_training(run_folder: Path, tmp_path: Path) -> None:
    pair = tmp_path / "teacher.network.json"
    save_network(small_description().build(), small_description(), pair)
    settings = (*QUICK, "epochs=1", f"distillation.teacher={pair}")
    finetune(run_folder, recipe="classification-distill", overrides=settings)
    assert finetune(run_folder, recipe="classification-distill", overrides=settings)["networks"][0]["reused"]
    save_network(small_description().build(), small_description(), pair)
    with pytest.raises(UserError, match=r"holds another fine-tuning \(teacher_sha256 differ\)"):
        finetune(run_folder, recipe="classification-distill", overrides=settings)


def test_teachers_that_cannot_teach(run_folder: Path, tmp_path: Path) -> None:
    data = load_dataset(str(tmp_path / "data.npz"))
    cpu = torch.device("cpu")
    with pytest.raises(UserError, match="needs a teacher"):
        finetune(run_folder, recipe="classification-distill", overrides=QUICK)
    with pytest.raises(UserError, match="names no weights"):
        load_teacher("torchvision:resnet18", data, image_input(32), cpu)
    with pytest.raises(UnknownNameError, match="resnet19"):
        load_teacher("torchvision:resnet19:x.safetensors", data, image_input(32), cpu)
    other = write_run(tmp_path / "other", small_description(5), tmp_path / "data.npz")
    with pytest.raises(UserError, match="knows 5 classes"):
        load_teacher(f"{other}#1", data, image_input(32), cpu)
    names = run_folder / "winners" / "1" / "labels.json"
    names.write_text(json.dumps(data.classes))
    load_teacher(f"{run_folder}#1", data, image_input(32), cpu)
    names.write_text(json.dumps(data.classes[::-1]))
    with pytest.raises(UserError, match=r"knows other classes than .* has, or in another order"):
        load_teacher(f"{run_folder}#1", data, image_input(32), cpu)
    torch.save({}, tmp_path / "weights.pt")
    with pytest.raises(UserError, match="is a pickle"):
        load_teacher(f"torchvision:resnet18:{tmp_path / 'weights.pt'}", data, image_input(32), cpu)


def test_weights_that_are_not_the_networks(run_folder: Path, tmp_path: Path) -> None:
    weights = run_folder / "winners" / "1" / "model.safetensors"
    good = weights.read_bytes()
    weights.write_bytes(good[:-10])
    with pytest.raises(UserError, match="not a whole safetensors"):
        finetune(run_folder, overrides=QUICK)
    weights.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(UserError, match="was changed after it was written"):
        finetune(run_folder, overrides=QUICK)
    torch.save({}, weights)
    with pytest.raises(UserError, match="is a pickle"):
        finetune(run_folder, overrides=QUICK)
    wider = small_description(stage1__width=24)
    save_network(wider.build(), wider, run_folder / "x.network.json")
    shutil.copy(run_folder / "x.safetensors", weights)
    (run_folder / "winners" / "1" / "receipt.json").unlink()
    with pytest.raises(UserError, match="weights of another network"):
        finetune(run_folder, overrides=QUICK, out=tmp_path / "out")


def test_runs_that_are_none(run_folder: Path, tmp_path: Path) -> None:
    for name, message in (
        ("nowhere", "no such network"),
        (str(tmp_path), "no such network: the folder"),
    ):
        with pytest.raises(UserError, match=message):
            finetune(name)
    (run_folder / "config.json").unlink()
    with pytest.raises(UserError, match="does not say what its data are"):
        finetune(run_folder)


def test_a_class_that_validation_lacks_is_no_error_and_one_that_training_lacks_is(
    run_folder: Path, tmp_path: Path
) -> None:
    with np.load(tmp_path / "data.npz") as file:
        arrays = dict(file)
    fewer = {**arrays, "y_val": arrays["y_val"] % 2}
    np.savez(tmp_path / "fewer.npz", **fewer)
    finetune(run_folder, overrides=QUICK, data=str(tmp_path / "fewer.npz"), smoke=True)
    np.savez(tmp_path / "bad.npz", **{**arrays, "y_train": arrays["y_train"] % 2})
    with pytest.raises(UserError, match="has no images in train"):
        finetune(run_folder, overrides=QUICK, data=str(tmp_path / "bad.npz"))


def test_command(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["finetune", str(run_folder), *(word for s in QUICK for word in ("--set", s)), "--quiet"]
    assert run(command) == 0
    assert "accuracy in %" in capsys.readouterr().out
    assert run([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["networks"][0]["reused"]
    assert run(["finetune", str(run_folder), "--set", "optimiser.lr=1"]) == 1
    assert "did you mean 'optimizer'" in capsys.readouterr().err


def _command(run_folder: Path, out: Path, epochs: int) -> list[str]:
    settings = [f"epochs={epochs}", *QUICK[1:], "augmentation.mixup_alpha=0.2", "checkpoints.average_epochs=2"]
    sets = [word for setting in settings for word in ("--set", setting)]
    return ["nas", "finetune", str(run_folder), "--out", str(out), *sets, "--json", "--quiet"]


@pytest.mark.slow
def test_a_killed_process_goes_on_to_the_same_figures(run_folder: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    out, module = tmp_path / "out", [sys.executable, "-m"]
    epochs = 16
    command = [*module, *_command(run_folder, out, epochs)]

    def in_epoch_3() -> bool:
        log = out / "1" / "log.csv"
        return log.exists() and len(log.read_text().splitlines()) > 3

    code, _, _ = stop_when(in_epoch_3, signal.SIGKILL, command, environment)
    assert code == -signal.SIGKILL
    assert not (out / "1" / "result.json").exists()
    resumed, _ = start(command, environment).communicate()
    overrides = [word for word in _command(run_folder, out, epochs) if "=" in word]
    undisturbed = finetune(run_folder, overrides=overrides, out=tmp_path / "whole")["networks"][0]
    network = json.loads(resumed)["networks"][0]
    assert network["accuracy"] == undisturbed["accuracy"]
    assert network["epochs"] == epochs
    ends = [load_tensors(folder / "1" / "model.safetensors")[0] for folder in (out, tmp_path / "whole")]
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[1])


@pytest.mark.slow
def test_two_processes_train_one_network(run_folder: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    out, err = start([*torchrun, *_command(run_folder, tmp_path / "out", 3)], environment).communicate()
    document = json.loads(out) if out else pytest.fail(err)
    (network,) = document["networks"]
    assert (network["processes"], network["epochs"]) == (2, 3)
    assert load_network(Path(network["checkpoint"])) is not None
