"""Local workers: what goes wrong in one is a failure of that evaluation alone."""

import pickle
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from nas.errors import UserError
from nas.executors import Evaluation, Failure, Finished, Journal, Outcome
from nas.executors.gpus import VISIBLE, visible_gpus, workers_here
from nas.executors.local import LocalExecutor, shares
from nas.executors.shared_data import share
from nas.executors.training import train_briefly
from nas.measure.host import usable_threads
from tests.nas.executors import evaluations
from tests.nas.executors.tasks import task, tiny_data


def run(executor: LocalExecutor, tasks: list[Evaluation]) -> dict[int, Outcome | Failure]:
    """All of them, as many at once as fit; results by trial."""
    waiting, found, under_way = list(tasks), dict[int, Outcome | Failure](), 0
    while waiting or under_way:
        while waiting and under_way < executor.capacity:
            executor.submit(waiting.pop(0))
            under_way += 1
        for finished in executor.wait():
            found[finished.task.trial] = finished.result
            under_way -= 1
    return found


def submit_two(executor: LocalExecutor) -> None:
    executor.submit(task(8))
    executor.submit(task(9))


def outcome(result: Outcome | Failure) -> Outcome:
    assert isinstance(result, Outcome), result
    return result


def test_one_worker_serves_all_and_sees_the_data(tmp_path: Path) -> None:
    with LocalExecutor(tiny_data(), tmp_path, evaluate=evaluations.well) as executor:
        found = run(executor, [task(i) for i in range(3)])
        assert executor.wait() == [], "nothing is under way"
        with pytest.raises(ValueError, match="busy"):
            submit_two(executor)
    assert [outcome(found[i]).accuracy for i in range(3)] == [0.0, 0.001, 0.002]
    assert len({outcome(r).curve[0] for r in found.values()}) == 1, "one process, which loaded the data once"
    assert outcome(found[0]).curve[1] == len(tiny_data().train)
    assert not psutil.pid_exists(int(outcome(found[0]).curve[0])), "it ends with the block"
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
def test_every_bad_end_is_a_failure_with_its_reason(tmp_path: Path) -> None:
    with LocalExecutor(
        tiny_data(), tmp_path, timeout_s=4.0, memory_bytes=2**30, evaluate=evaluations.badly_if_odd
    ) as executor:
        found = run(executor, [task(i) for i in range(17)])
    expected = {
        1: "killed by SIGSEGV while training",
        3: "crashed while training",
        5: "no answer within 4 s while training",
        7: "took more than 1024 MiB of memory while training",
        9: "crashed while training: KeyError: 'a mistake in the code'",
        11: "killed by SIGKILL while training (out of memory?)",
        13: "training diverged",
        15: "killed by SIGABRT while training: Error: an illegal memory access",
    }
    for trial, result in found.items():
        if trial in expected:
            assert isinstance(result, Failure)
            assert result.reason.startswith(expected[trial])
        else:
            assert outcome(result).accuracy == trial / 1000, "those before and after it are not harmed"


def test_a_worker_that_cannot_start_is_nobodys_failure(tmp_path: Path) -> None:
    with LocalExecutor(tiny_data(), tmp_path, evaluate=evaluations.well) as executor:
        for file in (tmp_path / "data").iterdir():
            file.unlink()
        with pytest.raises(UserError, match="no worker process can be started: crashed while loading: FileNotFound"):
            executor.submit(task())


def test_the_same_training_in_a_worker_as_here(tmp_path: Path) -> None:
    data = tiny_data()
    here = outcome(train_briefly(task(), data))
    with LocalExecutor(data, tmp_path, workers=1) as executor:
        there = run(executor, [task(0), task(1), task(2, lr=1e30)])
    assert outcome(there[0]).accuracy == outcome(there[1]).accuracy == here.accuracy
    assert outcome(there[0]).curve == here.curve
    assert there[2] == Failure("training diverged")


@pytest.mark.skipif(usable_threads() < 2, reason="needs two cores")
def test_workers_do_not_share_cores(tmp_path: Path) -> None:
    with LocalExecutor(tiny_data(), tmp_path, workers=2, evaluate=evaluations.cores) as executor:
        executor.submit(task(0))
        executor.submit(task(1))
        found = executor.wait()
        found += [] if len(found) == 2 else executor.wait()
    first, second = (set(outcome(f.result).curve) for f in found)
    assert first
    assert second
    assert not first & second
    with pytest.raises(UserError, match="usable cores"):
        LocalExecutor(tiny_data(), tmp_path, workers=10_000)


@pytest.mark.skipif(usable_threads() < 2, reason="needs two cores")
def test_each_worker_has_a_gpu_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver is a fake; that a process sees those that `CUDA_VISIBLE_DEVICES` names is its part."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setenv(VISIBLE, "5,7,gone")
    assert visible_gpus() == ("5", "7")
    with LocalExecutor(tiny_data(), tmp_path, evaluate=evaluations.gpus) as executor:
        assert executor.capacity == 2, "one for each GPU, unless told otherwise"
        found = run(executor, [task(i) for i in range(4)])
    assert {outcome(result).curve for result in found.values()} == {(5.0,), (7.0,)}
    with LocalExecutor(tiny_data(), tmp_path, workers=1, evaluate=evaluations.gpus) as executor:
        assert outcome(run(executor, [task(0)])[0]).curve == (5.0,)


@pytest.mark.parametrize(("gpus", "workers"), [(0, 1), (1, 1), (3, 3)])
def test_as_many_workers_as_gpus(gpus: int, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    monkeypatch.delenv(VISIBLE, raising=False)
    assert visible_gpus() == tuple("012"[:gpus])
    assert workers_here(None) == workers
    assert workers_here(2) == 2


def test_nothing_runs_in_a_quiet_moment(tmp_path: Path) -> None:
    def busy_s() -> float:
        times = process.cpu_times()
        return float(times.user + times.system)

    with LocalExecutor(tiny_data(), tmp_path, evaluate=evaluations.slowly) as executor:
        executor.submit(task())
        process = psutil.Process(executor._workers[0]._process.pid)
        with executor.quiet():
            time.sleep(0.2)
            before = busy_s()
            time.sleep(1.0)
            assert busy_s() == before
            assert process.status() == psutil.STATUS_STOPPED
        deadline = time.monotonic() + 120
        while busy_s() == before and time.monotonic() < deadline:
            time.sleep(0.1)
        assert busy_s() > before, "then it goes on"


def test_workers_that_rest_take_no_memory_and_go_on(tmp_path: Path) -> None:
    with LocalExecutor(tiny_data(), tmp_path, evaluate=evaluations.well) as executor:
        before = int(outcome(run(executor, [task(1)])[1]).curve[0])
        executor.rest()
        assert not psutil.pid_exists(before)
        with executor.quiet():
            pass
        after = outcome(run(executor, [task(2)])[2])
        assert (after.accuracy, after.curve[1]) == (0.002, len(tiny_data().train))
        assert int(after.curve[0]) != before
        executor.rest()
    assert not psutil.pid_exists(int(after.curve[0]))


def test_what_is_abandoned_is_not_told_of(tmp_path: Path) -> None:
    with LocalExecutor(tiny_data(), tmp_path, evaluate=evaluations.badly_if_odd) as executor:
        executor.submit(task(5))  # hangs
        executor.abandon()
        assert executor.wait() == []
        assert list(run(executor, [task(6)])) == [6]


def test_the_journal_remembers_exactly_this_evaluation(tmp_path: Path) -> None:
    with LocalExecutor(tiny_data(), tmp_path, evaluate=evaluations.well) as executor:
        result = outcome(run(executor, [task(7)])[7])
    journal = Journal(tmp_path / "outcomes")
    assert journal.find(task(7)) == result
    assert journal.find(task(8)) is None
    assert journal.find(task(7, lr=0.1)) is None, "another recipe"
    assert journal.find(replace(task(7), data="other")) is None
    journal.forget(task(7))
    journal.forget(task(7))
    assert journal.find(task(7)) is None


def test_values_travel(tmp_path: Path) -> None:
    finished = Finished(task(3), Outcome(accuracy=0.5, curve=(0.25, 0.5), seconds=1.0))
    assert pickle.loads(pickle.dumps(finished)) == finished  # noqa: S301
    data = tiny_data()
    loaded = share(data, tmp_path / "data").load()
    assert (loaded.train.images == data.train.images).all()
    assert (loaded.test.labels == data.test.labels).all()
    assert (loaded.name, loaded.classes, loaded.preprocess) == (data.name, data.classes, data.preprocess)
    loaded.train.images[:] = 0
    assert (share(data, tmp_path / "data").load().train.images == data.train.images).all(), "private to whoever writes"


def test_cores_are_shared_out() -> None:
    assert shares(range(5), 2) == [(0, 1), (2, 3, 4)]
    assert shares((), 2) == [(), ()]
