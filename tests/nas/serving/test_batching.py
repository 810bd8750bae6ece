"""Calls of the network, and who is let in, without a network: the order of things is what counts."""

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nas.errors import UserError
from nas.serving.admission import Admission
from nas.serving.batching import Batcher, Waiting
from nas.serving.refusal import Refusal

NEVER = 1e9


def example(value: float, due: float = NEVER) -> Waiting:
    return Waiting(np.full((1, 2), value, np.float32), time.perf_counter(), due)


class Doubling:
    """Twice its inputs; the first call waits until it is let go."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.started, self.go = threading.Event(), threading.Event()

    def __call__(self, inputs: Any) -> Any:
        self.sizes.append(len(inputs))
        self.started.set()
        assert self.go.wait(20)
        return inputs * 2


def test_what_waits_is_run_together_in_order_and_each_gets_its_own() -> None:
    network, told = Doubling(), []
    batcher = Batcher(network, 4, after=lambda images, _: told.append(images))
    examples = [example(value) for value in range(7)]
    batcher.submit(examples[0])
    assert network.started.wait(20)
    for one in examples[1:]:
        batcher.submit(one)
    assert batcher.waiting == 6
    assert batcher.running_s() > 0
    network.go.set()
    outputs = [one.ran.result(20) for one in examples]
    batcher.close()
    assert [ran.output.tolist() for ran in outputs] == [[2 * value] * 2 for value in range(7)]
    assert network.sizes == told == [1, 4, 2]
    assert [ran.images for ran in outputs] == [1, 4, 4, 4, 4, 2, 2]
    assert batcher.running_s() == 0


def test_who_asks_may_run_the_network_where_nothing_else_is_under_way() -> None:
    by, told = [], []

    def run(inputs: Any) -> Any:
        by.append(threading.current_thread().name)
        if inputs[0, 0] == 2:
            raise ValueError("a network that fails")
        return inputs * 2

    batcher = Batcher(run, 4, after=lambda images, _: told.append(images))
    found = batcher.run_here(np.ones((1, 2), np.float32))
    assert found is not None
    assert (found.output.tolist(), found.images) == ([2, 2], 1)
    assert 0 < found.infer_s < time.perf_counter() - found.started_at
    with pytest.raises(ValueError, match="that fails"):
        batcher.run_here(np.full((1, 2), 2, np.float32))
    assert set(by) == {threading.current_thread().name}
    assert (told, batcher.running_s()) == ([1], 0)
    batcher.submit(other := example(4))
    assert other.ran.result(20).output[0] == 8, "the thread is there as before"
    assert by[-1] == "network"
    batcher.close()
    assert batcher.run_here(np.ones((1, 2), np.float32)) is None


def test_who_asks_does_not_run_the_network_while_others_are_in_hand_or_calls_are_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network, inputs = Doubling(), np.ones((1, 2), np.float32)
    busy = Batcher(network, 4)
    busy.submit(first := example(1))
    assert network.started.wait(20)
    assert busy.run_here(inputs) is None
    network.go.set()
    first.ran.result(20)
    monkeypatch.setattr("nas.serving.batching.HERE_S", 0.0)
    assert busy.run_here(inputs) is None, "the latest call took longer than that"
    busy.close()
    patient = Batcher(network, 2, wait_s=0.001)
    assert patient.run_here(inputs) is None, "it is to wait for more"
    patient.close()


def test_a_call_waits_for_more_if_told_to() -> None:
    network = Doubling()
    network.go.set()
    batcher = Batcher(network, 2, wait_s=600)
    first, second = example(1), example(2)
    batcher.submit(first)
    assert not network.started.wait(0.05)
    batcher.submit(second)
    assert [one.ran.result(20).output[0] for one in (first, second)] == [2, 4]
    assert network.sizes == [2]
    batcher.close()
    alone = Batcher(network, 2, wait_s=0.001)
    third = example(3)
    alone.submit(third)
    assert third.ran.result(20).output[0] == 6
    alone.close()


def test_whose_time_is_over_is_not_run() -> None:
    network = Doubling()
    batcher = Batcher(network, 4)
    first, late, fine = example(1), example(2, due=time.perf_counter()), example(3)
    for one in (first, late, fine):
        batcher.submit(one)
    network.go.set()
    assert fine.ran.result(20).output.tolist() == [6, 6]
    with pytest.raises(Refusal) as refused:
        late.ran.result(20)
    assert refused.value.status == 503
    batcher.close()
    assert sum(network.sizes) == 2


def test_a_call_that_fails_is_the_failure_of_its_examples_alone(caplog: pytest.LogCaptureFixture) -> None:
    def network(inputs: Any) -> Any:
        if inputs[0, 0] < 0:
            raise ArithmeticError("negative")
        return inputs

    batcher = Batcher(network, 1)
    bad, good = example(-1), example(1)
    batcher.submit(bad)
    batcher.submit(good)
    with pytest.raises(RuntimeError, match="could not be run"):
        bad.ran.result(20)
    assert good.ran.result(20).output.tolist() == [1, 1]
    batcher.close()
    assert "negative" in caplog.text


def test_what_is_made_in_its_turn_fails_alone_and_not_too_late() -> None:
    made: list[str] = []

    def making(name: str, value: float) -> Callable[[], Any]:
        def make() -> Any:
            made.append(name)
            if value < 0:
                raise UserError("a damaged file", "send another one")
            return np.full((1, 2), value, np.float32)

        return make

    network = Doubling()
    batcher = Batcher(network, 4)
    now = time.perf_counter()
    first, bad, late, good = (
        Waiting(making(name, value), now, due)
        for name, value, due in (("first", 1, NEVER), ("bad", -1, NEVER), ("late", 1, now), ("good", 3, NEVER))
    )
    batcher.submit(first)
    assert network.started.wait(20)
    for one in (bad, late, good):
        batcher.submit(one)
    network.go.set()
    assert good.ran.result(20).output.tolist() == [6, 6]
    with pytest.raises(UserError, match="damaged"):
        bad.ran.result(20)
    with pytest.raises(Refusal):
        late.ran.result(20)
    batcher.close()
    assert made == ["first", "bad", "good"], "nothing is made of what comes too late"
    with pytest.raises(RuntimeError, match="no more calls"):
        batcher.submit(example(1))


class Clock:
    """A time that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_who_would_wait_too_long_is_refused_and_told_when_to_come_again() -> None:
    admission = Admission(0.1, Clock())
    for _ in range(3):
        admission.enter(1, due=0.55)
    with pytest.raises(Refusal) as refused:
        admission.enter(1, due=0.55)
    assert refused.value.status == 503
    assert refused.value.retry_after_s == pytest.approx(0.4)
    assert admission.waiting == 3
    admission.leave(3)
    admission.enter(64, due=0.0)  # nobody is there: however short its time
    assert admission.waiting == 64


def test_the_time_per_image_is_learnt_from_answers_while_others_wait() -> None:
    clock = Clock()
    admission = Admission(1.0, clock)
    for _ in range(100):  # four images every 0.2 s, with always somebody waiting
        clock.now += 0.2
        admission.answered(4, arrived_at=0.0)
    assert admission.service_s == pytest.approx(0.05, rel=0.01)
    clock.now += 1000  # a pause is no work
    admission.answered(1, arrived_at=clock.now - 0.05)
    assert admission.service_s == pytest.approx(0.05, rel=0.01)
    clock.now += 60  # one huge image
    admission.answered(1, arrived_at=0.0)
    assert admission.service_s < 0.05 * 1.4
