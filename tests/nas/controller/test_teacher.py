"""Candidates and finalists that learn from a trained network as well."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nas.cli.main import run
from nas.controller.config import SearchConfig
from nas.controller.planning.plan_record import read_final_plan
from nas.controller.planning.throughput import TrainingThroughput, with_teacher
from nas.controller.runs.run_folder import RunFolder
from nas.errors import UserError
from nas.evaluation.short_training import ShortTraining, trained
from nas.limits import Limits
from nas.networks.description import save_network
from nas.tasks import TASKS
from nas.tasks.classification.data.registry import load_dataset
from search_spaces.modules import set_norm_statistics
from tests.nas.small_runs import small_description, write_data


def saved_teacher(folder: Path, classes: int = 3) -> Path:
    """The files of an untrained network with sensible statistics."""
    folder.mkdir(parents=True)
    description = small_description(classes)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = description.build()
        set_norm_statistics(network, torch.randn(16, 3, 32, 32))
    save_network(network.eval(), description, folder / "model.network.json")
    return folder


def test_a_training_learns_from_the_teacher_of_its_recipe(tmp_path: Path) -> None:
    """From the teacher alone: what is learnt comes near its answers, whatever the labels say."""
    teacher = saved_teacher(tmp_path / "teacher")
    data = load_dataset(str(write_data(tmp_path / "data.npz", per_class=30)))
    recipe = TASKS["classification"].recipe(epochs=12, precision="fp32", batch_size=16, seed=0)
    taught = recipe.changed(distillation={"teacher": str(teacher), "logits_weight": 1.0})
    answers = small_description().build()
    from nas.networks.weights import load_weights

    load_weights(answers, teacher / "model.safetensors")
    pixels = data.preprocess.tensor(torch.from_numpy(data.train.images))
    with torch.inference_mode():
        wanted = answers.eval()(pixels).softmax(1)

    def distance(short: ShortTraining) -> float:
        network, _ = trained(small_description(), data, short)
        with torch.inference_mode():
            return float((network(pixels).softmax(1) - wanted).abs().mean())

    assert distance(ShortTraining(taught)) < 0.7 * distance(ShortTraining(recipe))


def test_a_teacher_that_cannot_teach_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    data = load_dataset(str(write_data(tmp_path / "data.npz")))
    throughput = TrainingThroughput("cpu", "fp32", 1.0)
    timed = with_teacher(throughput, str(saved_teacher(tmp_path / "good")), data, data.val.input)
    assert timed.teacher_s > 0
    assert replace(timed, teacher_s=0.0) == throughput
    with pytest.raises(UserError, match="knows 5 classes, the data have 3"):
        with_teacher(throughput, str(saved_teacher(tmp_path / "other", 5)), data, data.val.input)
    with pytest.raises(UserError, match="lies on this machine, and --ray trains on others"):
        SearchConfig(limits=Limits.of(latency_ms=5.0), teacher="RUN#1", ray="auto")


@pytest.mark.slow
@pytest.mark.usefixtures("brief", "impatient", "trained_here")
def test_a_search_with_a_teacher(cache: Path, colours: Path, tmp_path: Path) -> None:
    teacher, out = saved_teacher(tmp_path / "teacher"), tmp_path / "run"
    line = ["search", "--target", "fake", "--latency-ms", "200", "--max-trials", "1", "--space", "mixed"]
    line += ["--data", str(colours), "--max-params", "400000", "--runtime", "onnxruntime", "--precision", "fp32"]
    assert run([*line, "--teacher", str(teacher), "--out", str(out)]) == 0
    plan = read_final_plan(RunFolder(out))
    assert plan is not None
    assert plan.recipe.distillation.teacher == str(teacher)
    assert json.loads((out / "plan.json").read_text())["throughput"]["teacher_s"] > 0
    assert run([*line, "--out", str(out)]) == 1, "without the teacher it is another search"
