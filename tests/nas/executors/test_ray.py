"""A real cluster of two machines (as Ray sees it): the driver's, which offers no cores, and others that come and go."""

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import psutil
import pytest

import nas.executors.ray_tasks as ray_tasks
from nas.deployment import Deployment
from nas.errors import UnknownNameError, UserError
from nas.executors import Evaluation, Failure, Outcome, executor_for
from nas.executors.ray_asha import AshaExecutor
from nas.executors.ray_cluster import Node, Slots, connected, nodes_of, slots_of, slots_on
from nas.executors.ray_devices import RayDevice, connected_device
from nas.executors.ray_tasks import RayExecutor
from nas.executors.training import train_briefly
from nas.measure.measurement import MeasureRequest
from tests.nas.detectors import rectangle_data
from tests.nas.executors import evaluations
from tests.nas.executors.tasks import box_task, task, tiny_data
from tests.nas.tiny import write_tiny_network

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

pytestmark = pytest.mark.xdist_group("ray")  # one set-up for all of them


T = TypeVar("T")


def node(cpus: int, gpus: int = 0, name: str = "n") -> Node:
    return Node(id=name, cpus=cpus, gpus=gpus, devices=())


def test_how_evaluations_share_a_cluster() -> None:
    assert slots_of([node(8), node(4), node(0)], None) == Slots(count=3, cpus=4, gpus=0), "no core is left idle"
    assert slots_of([node(8), node(4)], 6) == Slots(count=6, cpus=2, gpus=0)
    assert slots_of([node(8, 2), node(4)], None) == Slots(count=2, cpus=4, gpus=1)
    with pytest.raises(UserError, match="offers cores"):
        slots_of([node(0)], None)
    with pytest.raises(UserError, match="13 workers"):
        slots_of([node(8), node(4)], 13)


def test_what_a_machine_that_joined_can_do() -> None:
    plain, with_gpu = Slots(count=3, cpus=4, gpus=0), Slots(count=2, cpus=4, gpus=1)
    assert [slots_on(n, plain) for n in (node(9), node(3), node(0))] == [2, 0, 0]
    assert [slots_on(n, with_gpu) for n in (node(9, 4), node(16, 3), node(16))] == [2, 3, 0]


def test_stopping_early_needs_a_cluster(tmp_path: Path) -> None:
    with (
        pytest.raises(UserError, match="needs a cluster"),
        executor_for(tiny_data(), tmp_path, budget_s=60.0, asha=True),
    ):
        pass
    with pytest.raises(UserError, match="client server"), connected("ray://somewhere:10001"):
        pass


@pytest.fixture(scope="module")
def cluster() -> "Iterator[Cluster]":
    """A head without cores; one machine for trainings; one that is the device `toy`."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}, shutdown_at_exit=True
    )
    cluster.add_node(num_cpus=1)
    cluster.add_node(num_cpus=1, resources={"device:toy": 1})
    cluster.wait_for_nodes()
    with connected(cluster.address):
        yield cluster
    cluster.shutdown()  # type: ignore[no-untyped-call]


def run(executor: RayExecutor | AshaExecutor, tasks: list[Evaluation]) -> dict[int, Outcome | Failure]:
    waiting, found, under_way = list(tasks), dict[int, Outcome | Failure](), 0
    while waiting or under_way:
        while waiting and under_way < executor.capacity:
            executor.submit(waiting.pop(0))
            under_way += 1
        for finished in executor.wait():
            found[finished.task.trial] = finished.result
            under_way -= 1
    return found


@pytest.mark.slow
@pytest.mark.ray
def test_evaluations_are_tasks_of_the_cluster(cluster: "Cluster", tmp_path: Path) -> None:
    with RayExecutor(tiny_data(), tmp_path, address=cluster.address, evaluate=evaluations.badly_if_odd) as executor:
        assert executor.capacity == 2
        found = run(executor, [task(i) for i in (0, 1, 2, 3, 4, 13)])
        assert executor.journal.find(task(4)) == found[4]
        assert executor.run(os.getpid) != os.getpid()
        assert executor.run(torch_threads) == 1, "as many as evaluations have"
        with pytest.raises(UserError, match="cannot train: RuntimeError: nothing works"):
            executor.run(fail)
    assert found[1] == Failure("killed by SIGSEGV while training")
    assert isinstance(found[3], Failure)
    assert found[13] == Failure("training diverged")
    good = [found[i] for i in (0, 2, 4)]
    assert [r.accuracy for r in good if isinstance(r, Outcome)] == [0.0, 0.002, 0.004]
    assert all(r.curve[1] == len(tiny_data().train) for r in good if isinstance(r, Outcome))


@pytest.mark.slow
@pytest.mark.ray
def test_latency_is_measured_on_the_device(cluster: "Cluster", tmp_path: Path) -> None:
    model = write_tiny_network(tmp_path / "tiny.onnx")
    request = MeasureRequest(model, Deployment("onnxruntime", "fp32", 1))
    import ray

    assert connected_device("tay") is None
    device = connected_device("toy")
    assert device is not None
    (there,) = device.nodes
    assert device.run(node_id) == there.id
    assert node_id() != there.id
    (measured,) = device.measure([request], sessions=1, seconds_per_model=0.05)
    assert measured.failed is None
    assert measured.p50_ms > 0
    assert measured.request == request
    with pytest.raises(UnknownNameError, match="'toyy'"):
        RayDevice(ray, "toyy")
    with pytest.raises(UserError, match=r"cannot measure: .*nothing"):
        device.run(fail)


def node_id() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())


def torch_threads() -> int:
    import torch

    return torch.get_num_threads()


def fail() -> None:
    raise RuntimeError("nothing works")


@pytest.mark.slow
@pytest.mark.ray
def test_nothing_is_trained_on_a_device_that_measures(cluster: "Cluster", tmp_path: Path) -> None:
    import ray

    device = RayDevice(ray, "toy")
    spans: list[tuple[float, float]] = []
    thread = threading.Thread(target=lambda: spans.append(device.run(hold, tmp_path)))
    with RayExecutor(tiny_data(), tmp_path, address=cluster.address, evaluate=evaluations.when) as executor:
        assert executor.capacity == 2
        thread.start()
        evaluations.wait_for(tmp_path / "began")
        found = run(executor, [task(i) for i in range(6)])
        (tmp_path / "go").touch()
        thread.join()
    trainings = sorted(r.curve for r in found.values() if isinstance(r, Outcome))
    assert len(trainings) == 6, "the other machine goes on"
    began, ended = spans[0]
    assert all(began < first and last < ended for first, last in trainings)
    for (_, last), (following, _) in itertools.pairwise(trainings):
        assert last <= following, "and it is alone with that"


def wait_until(look: Callable[[], T]) -> T:
    """What `look` returns as soon as that counts as true."""
    deadline = time.monotonic() + evaluations.HANG_S
    while not (seen := look()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
    return seen


def hold(folder: Path) -> tuple[float, float]:
    """Keep the device until `go` is in the folder."""
    began = time.time()
    (folder / "began").touch()
    evaluations.wait_for(folder / "go")
    return began, time.time()


@pytest.mark.slow
@pytest.mark.ray
def test_a_machine_that_is_lost_costs_time_only(cluster: "Cluster", tmp_path: Path) -> None:
    import ray

    before = len(nodes_of(ray))
    doomed = cluster.add_node(num_cpus=1, resources={"doomed": 1})
    cluster.wait_for_nodes()
    lost = str(doomed.all_processes["raylet"][0].process.pid)
    marks = tmp_path / "marks"
    marks.mkdir()

    def begun() -> list[tuple[str, str, int]]:
        """Of each beginning: the trial, the machine and the process."""
        parts = [mark.name.split("-") for mark in marks.glob("*-*-*")]
        return [(trial, machine, int(pid)) for trial, machine, pid in parts]

    def kill_when_it_is_busy() -> None:
        try:
            there = wait_until(lambda: [pid for _, machine, pid in begun() if machine == lost])
            cluster.remove_node(doomed, allow_graceful=False)
            wait_until(lambda: not psutil.pid_exists(there[0]))
        finally:
            (marks / "go").touch()

    with RayExecutor(tiny_data(), tmp_path, address=cluster.address, evaluate=evaluations.marked) as executor:
        assert executor.capacity == 3
        killer = threading.Thread(target=kill_when_it_is_busy)
        killer.start()
        found = run(executor, [replace(task(i), data=str(marks)) for i in range(5)])
        killer.join()
    assert sorted(found) == list(range(5))
    assert all(isinstance(r, Outcome) for r in found.values()), found
    assert {trial for trial, _, _ in begun()} == set("01234")
    (interrupted,) = [trial for trial, machine, _ in begun() if machine == lost]
    assert len([trial for trial, _, _ in begun() if trial == interrupted]) == 2, "begun again elsewhere"
    wait_until(lambda: len(nodes_of(ray)) == before)


@pytest.mark.slow
@pytest.mark.ray
def test_a_machine_that_cannot_evaluate_is_left_out_and_one_that_joins_is_used(
    cluster: "Cluster", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    monkeypatch.setattr(ray_tasks, "evaluate_here", evaluations.unless_full)
    full = next(n for n in nodes_of(ray) if n.cpus)
    (tmp_path / f"full-{full.id}").touch()
    said: list[str] = []
    tasks = [replace(task(i), data=str(tmp_path)) for i in range(8)]
    with RayExecutor(
        tiny_data(), tmp_path, address=cluster.address, evaluate=evaluations.when, say=said.append
    ) as executor:
        assert executor.capacity == 2
        found = run(executor, tasks[:4])
        assert all(isinstance(r, Outcome) for r in found.values()), found
        assert executor.capacity == 1
        (told,) = said
        assert "No space left on device" in told
        joined = cluster.add_node(num_cpus=1)
        try:
            wait_until(lambda: executor.capacity == 2)
            found = run(executor, tasks[4:])
            assert sorted(found) == [4, 5, 6, 7]
            assert all(isinstance(r, Outcome) for r in found.values()), found
        finally:
            cluster.remove_node(joined)
    assert len(said) == 1


@pytest.mark.slow
@pytest.mark.ray
def test_a_cluster_without_an_able_machine_is_an_error(
    cluster: "Cluster", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    monkeypatch.setattr(ray_tasks, "evaluate_here", evaluations.unless_full)
    for n in nodes_of(ray):
        (tmp_path / f"full-{n.id}").touch()
    with (
        RayExecutor(tiny_data(), tmp_path, address=cluster.address, evaluate=evaluations.when) as executor,
        pytest.raises(UserError, match=r"no machine of the Ray cluster can .* No space left on device"),
    ):
        run(executor, [replace(task(0), data=str(tmp_path))])


@pytest.mark.slow
@pytest.mark.ray
def test_another_version_is_a_fault_of_the_machine(cluster: "Cluster") -> None:
    """What Ray sends runs without this program; its function's name is then looked up in vain."""
    import ray

    def gone() -> None: ...

    gone.__module__ = "nas.executors.of_another_version"
    found = ray.get(ray.remote(ray_tasks.by_value(gone)).remote(b"", []))
    assert found["why"].startswith("ModuleNotFoundError: No module named 'nas.executors.of_another_version'")
    assert found["node"] in {n.id for n in nodes_of(ray)}


@pytest.mark.slow
@pytest.mark.ray
def test_hopeless_trainings_are_stopped_early(cluster: "Cluster", tmp_path: Path) -> None:
    answers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with AshaExecutor(tiny_data(), tmp_path, address=cluster.address, evaluate=evaluations.epochs) as executor:
        assert executor.capacity == 8
        found = run(executor, [task(i, epochs=9) for i in range(5)])
    now = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert now == answers, "Ctrl-C is answered by the search, not by Ray Tune, and a request to end not by Ray"
    outcomes = {i: r for i, r in found.items() if isinstance(r, Outcome)}
    assert found[3] == Failure("training diverged")
    assert len(outcomes) == 4
    assert any(r.stopped_early for r in outcomes.values())
    finished = [r for r in outcomes.values() if not r.stopped_early]
    assert finished
    assert all(len(r.curve) == 9 for r in finished)
    assert all(len(r.curve) < 9 for r in outcomes.values() if r.stopped_early)
    best = max(outcomes.values(), key=lambda r: r.accuracy)
    assert not best.stopped_early


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.parametrize("kind", [RayExecutor, AshaExecutor])
def test_detectors_are_trained_as_they_are_here(
    kind: type[RayExecutor] | type[AshaExecutor], cluster: "Cluster", tmp_path: Path
) -> None:
    import torch

    data, tasks = rectangle_data(), [box_task(i, epochs=2) for i in range(2)]
    with kind(data, tmp_path, address=cluster.address) as executor:
        found = run(executor, tasks)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as many as a machine of the cluster has
    try:
        # A callback sees every epoch, as ASHA does; without one, the last alone is validated.
        here = {task.trial: train_briefly(task, data, lambda record: None) for task in tasks}
    finally:
        torch.set_num_threads(threads)
    for trial, outcome in found.items():
        expected = here[trial]
        assert isinstance(outcome, Outcome), outcome
        assert isinstance(expected, Outcome)
        seen = expected.curve[-1:] if kind is RayExecutor else expected.curve[: len(outcome.curve)]
        assert outcome.curve == pytest.approx(seen, abs=1e-6)
        assert outcome.stopped_early or len(outcome.curve) == (1 if kind is RayExecutor else 2)
