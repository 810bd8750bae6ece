"""Full trainings on other machines, which here end in the reverse order."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nas.controller.baselines as baselines
import nas.controller.finalists as finalists
import nas.controller.runs.records as records
from nas.controller.baselines import ZooRound
from nas.controller.elsewhere import Elsewhere
from nas.controller.finalists import FinalRound
from nas.controller.planning.budget import Budget
from nas.controller.prediction.scoring import CandidateScorer
from nas.controller.values import Evaluated
from nas.data.images import image_input
from nas.executors import Evaluation, Failure, Finished, Journal, Outcome
from nas.executors.local import LocalExecutor
from nas.limits import Limits
from nas.measure.host import usable_threads
from nas.measure.site import this_host
from nas.networks.description import NetworkDescription
from nas.networks.weights import weights_of
from nas.progress import SilentProgress
from nas.targets.latency import LatencyModel
from nas.tasks import TASKS
from nas.training.result import TrainResult
from search_spaces import load_search_space
from tests.nas.executors.tasks import tiny_data
from tests.nas.fake_device import FP32, fake_profile

HERE = TrainResult(accuracy=0.1, curve=(), seconds=1.0, stopped=None, precision="fp32", details={})
SPACE = load_search_space("mobile").restrict("resolution", [32])
RECIPE = TASKS["classification"].recipe().changed(time_limit_s=60.0)


class Cluster:
    """An executor whose trainings reach .5, or fail where `failing` says so by the order of submission."""

    def __init__(self, folder: Path, capacity: int, failing: tuple[int, ...] = ()) -> None:
        self.journal, self.capacity, self.failing = Journal(folder / "outcomes"), capacity, failing
        self.submitted: list[tuple[Evaluation, float | None]] = []
        self.under_way: list[tuple[int, Evaluation]] = []

    def submit(self, task: Evaluation, *, timeout_s: float | None = None) -> None:
        self.under_way.append((len(self.submitted), task))
        self.submitted.append((task, timeout_s))

    def wait(self) -> list[Finished]:
        if not self.under_way:
            return []
        number, task = self.under_way.pop()
        if number in self.failing:
            return [Finished(task, Failure("lost"))]
        weights = weights_of(task.description.build())
        outcome = Outcome(accuracy=0.5, curve=(0.5,), seconds=7.0, epochs=3, stopped="time limit", weights=weights)
        self.journal.write(task, outcome)
        return [Finished(task, outcome)]

    def abandon(self) -> None:
        self.under_way = []

    def rest(self) -> None:
        pass

    def quiet(self) -> Any:
        raise NotImplementedError


def finals(
    cluster: Cluster, size: int, folder: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> list[records.Trained]:
    """What the trainings of the finalists came to; nothing is deployed."""

    def trained(description: Any, *_: Any, **__: Any) -> tuple[Any, TrainResult]:
        return description.build(), HERE

    monkeypatch.setattr(records, "trained", trained)
    monkeypatch.setattr(finalists, "deployed_network", lambda *_, **__: None)
    monkeypatch.setattr(FinalRound, "as_finalist", lambda self, candidate, outcome, deployed: Kept(outcome))
    data, limits = tiny_data(), Limits.of(latency_ms=100.0)
    final = FinalRound(
        space=SPACE, data=data, scorer=CandidateScorer(SPACE, LatencyModel(fake_profile(), [FP32]), limits, (3,)),
        deployments=(FP32,), recipe=RECIPE, size=size, objective="accuracy", limits=limits, max_drop=0.01, site=None,
        folder=folder, elsewhere=Elsewhere(executor=cluster, data=data.name, say=said.append), left_s=lambda: 40.0,
        deploy_s=5.0,
    )  # fmt: skip
    rows = SPACE.sample(4, np.random.default_rng(0))
    candidates = [Evaluated(SPACE.architecture(r), i, 0.5 + 0.1 * i, 1.0) for i, r in enumerate(rows)]
    return [found.trained for found in final.run(candidates, SilentProgress().stage("").__enter__())]  # type: ignore[misc]


def test_well_known_networks_are_trained_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once, where it fits into the time; what fails there is trained here."""

    def trained(description: Any, *_: Any, **__: Any) -> tuple[Any, TrainResult]:
        return description.build(), HERE

    seconds = {"resnet10_w50": 1.0, "resnet10_w75": 1.0, "resnet10": 1.0}
    monkeypatch.setattr(records, "trained", trained)
    monkeypatch.setattr(baselines, "deployed_network", lambda *_, **__: Tried())
    monkeypatch.setattr(ZooRound, "_latency_only", lambda self, name: baseline(name))
    monkeypatch.setattr(ZooRound, "_training_s", lambda self, name: seconds.get(name, math.inf))
    monkeypatch.setattr(baselines, "in_order", lambda zoo: [*seconds, "resnet18"])
    data, said, cluster = tiny_data(), list[str](), Cluster(tmp_path, capacity=2, failing=(1,))

    def run(cluster: Cluster) -> list[baselines.Baseline]:
        zoo = ZooRound(
            data=data, input=image_input(32), deployments=(FP32,), quick=FP32,
            recipe=RECIPE, max_drop=0.01, folder=tmp_path / "zoo", site=this_host(),
            elsewhere=Elsewhere(executor=cluster, data=data.name, say=said.append),
        )  # fmt: skip
        return zoo.run(Budget(1e9), 1000.0, SilentProgress().stage("").__enter__())

    found = run(cluster)
    assert [b.trained_accuracy for b in found] == [0.5, HERE.accuracy, 0.5, None]
    assert [b.note for b in found][3] == "timed"
    assert len(cluster.submitted) == 3
    assert len({task.description for task, _ in cluster.submitted}) == 3
    assert [line.split(" failed")[0] for line in said] == ["the full training of resnet10_w75"]
    again = Cluster(tmp_path, capacity=2)
    assert [b.trained_accuracy for b in run(again)] == [b.trained_accuracy for b in found]
    assert not again.submitted, "their records are read"


@pytest.mark.skipif(usable_threads() < 2, reason="needs two cores")
def test_each_gpu_of_this_machine_trains_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver is a fake: the two processes see no GPU, and train on the processor."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr(records, "trained", lambda *_, **__: pytest.fail("nothing is left to be trained here"))
    data, said = tiny_data(), list[str]()
    recipe = TASKS["classification"].recipe(epochs=1, batch_size=8, precision="fp32").changed(time_limit_s=60.0)
    rows = SPACE.sample(2, np.random.default_rng(0))
    networks = [NetworkDescription.of_architecture(SPACE, SPACE.architecture(r), data.output_size) for r in rows]
    folders = [tmp_path / f"network-{number}" for number in range(2)]
    with LocalExecutor(data, tmp_path / "evaluations") as executor:
        elsewhere = Elsewhere(executor=executor, data=data.name, say=said.append)
        for folder, network in zip(folders, networks, strict=True):
            elsewhere.begin(folder, network, recipe, None, 60.0)
        for folder in folders:
            elsewhere.finish(folder)
    assert not said
    for folder, network in zip(folders, networks, strict=True):
        _, outcome = records.trained_network(folder, network, data, recipe)
        assert outcome.epochs == 1


class Tried:
    """A deployment that nobody made."""

    chosen = None


def baseline(name: str) -> baselines.Baseline:
    """A network whose latency alone is known."""
    return baselines.Baseline(
        name=name,
        deployed=Tried(),
        trained_accuracy=None,
        test=None,
        params=1,
        note="timed",  # type: ignore[arg-type]
    )


class Kept:
    """A finalist of which only the training counts."""

    within_limit = True

    def __init__(self, trained: records.Trained) -> None:
        self.trained = trained


def test_finalists_are_trained_at_once_and_each_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, said = Cluster(tmp_path, capacity=2), list[str]()
    found = finals(cluster, 3, tmp_path / "finalists", monkeypatch, said)
    assert [(t.accuracy, t.epochs, t.stopped, t.reused) for t in found] == [(0.5, 3, "time limit", False)] * 3
    assert len({task.description for task, _ in cluster.submitted}) == len(cluster.submitted) == 3
    assert {task.short.recipe.time_limit_s for task, _ in cluster.submitted} == {35.0}, "40 s are left, 5 for deploying"
    assert all(timeout_s is not None and timeout_s > 35.0 for _, timeout_s in cluster.submitted)
    assert not list((tmp_path / "outcomes").glob("*")), "their records hold them now"
    again = finals(Cluster(tmp_path, capacity=2), 3, tmp_path / "finalists", monkeypatch, said)
    assert [t.reused for t in again] == [True] * 3
    assert not said


def test_what_fails_on_the_cluster_is_trained_here_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    found = finals(Cluster(tmp_path, capacity=4, failing=(0,)), 2, tmp_path / "finalists", monkeypatch, said)
    assert [t.accuracy for t in found] == [HERE.accuracy, 0.5]
    assert len(said) == 1
    assert said[0].endswith("failed in a process of its own, and was done again in this one: lost")
