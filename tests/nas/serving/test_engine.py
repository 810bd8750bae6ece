"""From examples to answers, with a network and a decoder that do what a test asks: who decodes, who is late, who is
stuck."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nas.serving import batching
from nas.serving import engine as module
from nas.serving.engine import Engine
from nas.serving.refusal import Refusal
from nas.serving.settings import ServingSettings
from nas.tasks.artifacts import Prepared


class Model:
    """Stands in for `nas.serving.model.ServedModel`; an example is what is called to decode it."""

    largest = 8

    def __init__(self, device: str = "cpu", run: Callable[[Any], Any] = lambda inputs: inputs) -> None:
        self.predictor = SimpleNamespace(receipt=SimpleNamespace(deployment=SimpleNamespace(device=device)))
        self.run = run
        self.decoded_by: list[str] = []

    def warm_up(self) -> float:
        return 1e-6

    def blank_context(self) -> None:
        return None

    def prepare(self, example: Callable[[], None]) -> Prepared:
        self.decoded_by.append(threading.current_thread().name)
        example()
        return Prepared(np.zeros((1, 2), np.float32), None)

    def answer(self, output: Any, context: Any) -> list[dict[str, Any]]:
        return [{"label": "a", "score": float(output[0])}]


@contextmanager
def serving(model: Model, **settings: Any) -> Iterator[Engine]:
    engine = Engine(model, ServingSettings(**{"batch": 8, **settings}))  # type: ignore[arg-type]
    try:
        yield engine
    finally:
        engine.close()


def nothing() -> None:
    """An image that takes no time."""


@pytest.mark.parametrize(
    ("device", "threads", "who"), [("cpu", 1, "network"), ("cuda", 1, "decoder"), ("cpu", 2, "decoder")]
)
def test_the_network_thread_decodes_only_where_both_need_its_one_core(device: str, threads: int, who: str) -> None:
    model = Model(device)
    with serving(model, threads=threads) as engine:
        engine.answer_files([nothing])[0].result(20)
    assert model.decoded_by[0].startswith(who)


@pytest.mark.parametrize(("device", "inputs", "here"), [("cpu", 1, True), ("cpu", 2, False), ("cuda", 1, False)])
def test_one_input_is_answered_by_who_asks(device: str, inputs: int, here: bool) -> None:
    threads = []

    def run(given: Any) -> Any:
        threads.append(threading.get_ident())
        return given

    with serving(Model(device, run)) as engine:
        answered = engine.answer_here(np.ones((inputs, 2), np.float32))
        assert (threads == [threading.get_ident()]) == (answered is not None) == here
        if answered is not None:
            assert answered.answer[0]["score"] == 1.0
            assert (answered.images, answered.decode_s) == (1, 0.0)
            assert 0 <= answered.queue_s < 1
    assert engine.waiting == 0


def test_a_network_of_its_own_device_runs_while_the_next_image_is_decoded() -> None:
    decoding, running = threading.Event(), threading.Event()
    together = []

    def run(inputs: Any) -> Any:
        running.set()
        together.append(decoding.wait(10))
        return inputs

    with serving(Model("cuda", run), batch=1) as engine:
        first = engine.answer_files([nothing])[0]
        assert running.wait(20)
        second = engine.answer_files([decoding.set])[0]
        first.result(20)
        second.result(20)
    assert together[0], "the second image was decoded before the first had its answer"


def test_the_first_of_a_batch_does_not_wait_for_the_decoding_of_all_others() -> None:
    """Eight images of 30 ms each, which come at once, and an answer within 150 ms."""
    with serving(Model(), deadline_ms=150) as engine:
        engine.answer_files([lambda: time.sleep(0.03)])[0].result(20)  # the time of one is known
        futures = engine.answer_files([lambda: time.sleep(0.03)] * 8)
        assert futures[0].result(20).images < 8
        assert all(future.result(20).answer for future in futures), "they came to an idle server"


@pytest.mark.parametrize("threads", [1, 2])
def test_decoding_that_ends_too_late_is_refused_unless_the_server_was_idle(threads: int) -> None:
    go = threading.Event()

    def slow() -> None:
        assert go.wait(20)
        time.sleep(0.05)

    ran = []
    with serving(
        Model(run=lambda inputs: ran.append(len(inputs)) or inputs), threads=threads, deadline_ms=40
    ) as engine:
        first = engine.answer_files([slow])[0]
        second = engine.answer_files([lambda: time.sleep(0.1)])[0]
        third = engine.answer_files([nothing])[0] if threads == 1 else None
        time.sleep(0.05 if threads == 1 else 0.0)
        go.set()
        assert first.result(20).answer[0]["label"] == "a", "nobody was before it, so it is answered however late"
        for late in (second, third):
            if late is not None:
                with pytest.raises(Refusal, match="too late"):
                    late.result(20)
    assert sum(ran) == 1


def test_what_is_decoded_too_late_in_its_turn_is_not_run() -> None:
    ran = []
    with serving(Model(run=lambda inputs: ran.append(len(inputs)) or inputs), batch=1, deadline_ms=200) as engine:
        first = engine.answer_files([lambda: time.sleep(0.02)])[0]
        second = engine.answer_files([lambda: time.sleep(0.3)])[0]
        assert first.result(20).answer
        with pytest.raises(Refusal, match="too late"):
            second.result(20)
    assert ran == [1]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_decoder_that_does_not_return_is_noticed(threads: int) -> None:
    go, begun = threading.Event(), threading.Event()

    def hanging() -> None:
        begun.set()
        assert go.wait(20)

    with serving(Model(), threads=threads, hang_s=0.05, deadline_ms=60_000) as engine:
        future = engine.answer_files([hanging])[0]
        assert begun.wait(20)
        time.sleep(0.1)
        assert engine.stuck
        go.set()
        future.result(20)
        assert not engine.stuck


def test_many_images_that_are_decoded_in_turn_are_not_one_that_hangs() -> None:
    seen = []
    with serving(Model(), hang_s=0.1, deadline_ms=60_000) as engine:

        def decode() -> None:
            time.sleep(0.03)
            seen.append(engine.stuck)

        for future in engine.answer_files([decode] * 8):
            future.result(20)
    assert seen == [False] * 8


def test_threads_that_may_not_change_their_priority_work_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refused(*arguments: int) -> None:
        asked.append(arguments[2])
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(batching.os, "getpriority", lambda *_: 12)
    monkeypatch.setattr(batching.os, "setpriority", refused)
    monkeypatch.setattr(batching.sys, "platform", "linux")
    for threads in (1, 2):
        with serving(Model(), threads=threads) as engine:
            assert engine.answer_files([nothing])[0].result(20).answer
            assert not engine.stuck
    assert set(asked) == {12}, "a process that is nicer already stays so"


def test_threads_that_have_ended_are_noticed_and_nobody_waits_for_them(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise OSError("no thread of this kind")

    for what, threads in ((batching, 1), (module, 2)):
        with monkeypatch.context() as patch, ExitStack() as stack:
            patch.setattr(what, "step_back", broken)
            engine = stack.enter_context(serving(Model(), threads=threads))
            with pytest.raises(RuntimeError):
                engine.answer_files([nothing])[0].result(20)
            assert engine.stuck
            assert engine.waiting == 0
    assert "no thread of this kind" in caplog.text


def test_whoever_comes_after_the_end_is_no_longer_in_hand() -> None:
    with serving(Model()) as engine:
        pass
    futures = engine.answer_inputs(np.zeros((3, 2), np.float32))
    for future in futures:
        with pytest.raises(RuntimeError, match="no more calls"):
            future.result(20)
    assert engine.waiting == 0


def test_what_is_submitted_while_the_queue_is_closed_is_run() -> None:
    batcher = batching.Batcher(lambda inputs: inputs, 4)
    inside = threading.Event()

    class Slow(deque[batching.Waiting]):
        def append(self, example: batching.Waiting) -> None:
            inside.set()
            batcher._thread.join(0.2)  # time enough for it to be told to end, and to end
            super().append(example)

    batcher._queue = Slow()
    example = batching.Waiting(np.zeros((1, 2), np.float32), 0.0, 1e9)
    submitting = threading.Thread(target=lambda: batcher.submit(example))
    submitting.start()
    assert inside.wait(20)
    batcher.close()
    submitting.join(20)
    assert example.ran.result(1).images == 1
