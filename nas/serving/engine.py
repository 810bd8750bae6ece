"""From a request's examples to their answers inside one process: decoding, then calls of the network.

The event loop only hands examples in and gets futures back; nothing here knows of HTTP.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nas.bundles.predictor import Answer
from nas.deployment import CPU
from nas.errors import UserError
from nas.serving.admission import Admission
from nas.serving.batching import Batcher, Ran, Waiting, step_back
from nas.serving.model import ServedModel
from nas.serving.refusal import Refusal, busy, drop_frames
from nas.serving.settings import ServingSettings
from nas.tasks.artifacts import Locating


@dataclass(frozen=True, slots=True, eq=False)
class Answered:
    """The answer of one example, and where its time went."""

    answer: Answer
    decode_s: float
    """From a file to the network's input."""
    queue_s: float
    """Waiting: for a decoding thread, and for a call of the network."""
    infer_s: float
    """The call of the network."""
    images: int
    """Examples in that call."""


class _Making:
    """The input of one example, made when it is called; what else came of that is kept."""

    __slots__ = ("_example", "_model", "context", "decode_s")

    def __init__(self, model: ServedModel, example: Any) -> None:
        self._model, self._example = model, example
        self.context: Any = None
        self.decode_s = 0.0

    def __call__(self) -> NDArray[Any]:
        start = time.perf_counter()
        prepared = self._model.prepare(self._example)
        self.context, self.decode_s = prepared.context, time.perf_counter() - start
        return prepared.inputs


@dataclass(frozen=True, slots=True)
class _Request:
    """What all examples of a request share, as `time.perf_counter` counts."""

    arrived_at: float
    due: float
    promised: bool
    """It came to an idle server, and is answered however late."""


class Engine:
    """Serves one model. Its methods may be called from any thread."""

    def __init__(self, model: ServedModel, settings: ServingSettings) -> None:
        self.model, self.settings = model, settings
        self._admission = Admission(model.warm_up(), time.perf_counter)
        self._batcher = Batcher(
            model.run, min(settings.batch, model.largest), settings.wait_ms / 1e3, self._admission.answered
        )
        self._decoders = ThreadPoolExecutor(settings.threads, thread_name_prefix="decoder", initializer=step_back)
        self._decoders_failed = False
        self._decoding_since: dict[int, float] = {}
        """Thread -> start of what it decodes."""
        self._blank_context = model.blank_context()
        self._on_cpu = model.predictor.receipt.deployment.device == CPU
        self._in_turn = settings.threads == 1 and self._on_cpu
        """A network on a GPU leaves the core free for decoding meanwhile."""

    @property
    def waiting(self) -> int:
        """Images in hand."""
        return self._admission.waiting

    @property
    def stuck(self) -> bool:
        """The network or a decoder was called and does not return, or a thread of theirs has ended."""
        now = time.perf_counter()
        longest_s = max((now - since for since in list(self._decoding_since.values())), default=0.0)
        hanging = max(longest_s, self._batcher.running_s()) > self.settings.hang_s
        return hanging or self._batcher.failed or self._decoders_failed

    def answer_files(self, examples: Sequence[Any]) -> "list[Future[Answered]]":
        """Answer examples as `nas.tasks.artifacts.Processor.preprocess` takes them.

        A future has `UserError` for an example that cannot be read, `Refusal` for one whose turn comes too late. On one
        core the network's thread decodes as well, unless the network has a device of its own: handing over to it would
        only cost time.

        Raises:
            Refusal: there is no time for them (status 503).
        """
        decode = self._decode_in_turn if self._in_turn else self._decode_later
        return self._enter(len(examples), lambda at, request, done: decode(examples[at], request, done))

    def answer_inputs(self, inputs: NDArray[Any]) -> "list[Future[Answered]]":
        """Answer inputs (n, ...) that are as the network takes them; otherwise like `answer_files`."""

        def queue(at: int, request: _Request, done: "Future[Answered]") -> None:
            self._queue(inputs[at : at + 1], self._blank_context, 0.0, request, done)

        return self._enter(len(inputs), queue)

    def answer_here(self, inputs: NDArray[Any]) -> Answered | None:
        """The answer of one input (1, ...), found in the calling thread, for whom nobody else can ask meanwhile.

        Returns:
            None: there are several inputs, or the network is not free or not quick; `answer_inputs` takes them all.
        """
        start = time.perf_counter()
        ran = self._batcher.run_here(inputs) if self._on_cpu and len(inputs) == 1 else None
        if ran is None:
            return None
        answer = self.model.answer(ran.output, self._blank_context)
        return Answered(answer, 0.0, ran.started_at - start, ran.infer_s, ran.images)

    def draw(self, example: Any, answer: Answer) -> "Future[bytes]":
        """A PNG of an example with its answer, see `nas.tasks.artifacts.Locating`."""
        processor = self.model.predictor.processor
        assert isinstance(processor, Locating)

        def drawn() -> bytes:
            with self._timed():
                return processor.drawn(example, answer)

        return self._decoders.submit(drawn)

    def close(self) -> None:
        """Finish what is in hand."""
        self._decoders.shutdown(wait=True)
        self._batcher.close()

    def _enter(
        self, count: int, start: "Callable[[int, _Request, Future[Answered]], None]"
    ) -> "list[Future[Answered]]":
        now = time.perf_counter()
        due = now + self.settings.deadline_ms / 1e3
        request = _Request(now, due, promised=self._admission.enter(count, due))
        futures: list[Future[Answered]] = []
        for at in range(count):
            done: Future[Answered] = Future()
            done.add_done_callback(lambda _: self._admission.leave())
            futures.append(done)
            try:
                start(at, request, done)
            except Exception as error:  # noqa: BLE001  # it is the outcome, and the example no longer in hand
                self._note_broken(error)
                if done.set_running_or_notify_cancel():
                    done.set_exception(error)
        return futures

    def _decode_in_turn(self, example: Any, request: _Request, done: "Future[Answered]") -> None:
        making = _Making(self.model, example)
        waiting = Waiting(making, request.arrived_at, request.due, request.promised)
        waiting.ran.add_done_callback(lambda call: self._finish(making.context, making.decode_s, request, done, call))
        self._batcher.submit(waiting)

    def _decode_later(self, example: Any, request: _Request, done: "Future[Answered]") -> None:
        decoding = self._decoders.submit(self._decode, example, request, done)
        decoding.add_done_callback(partial(self._decoded, done))

    def _decoded(self, done: "Future[Answered]", decoding: "Future[None]") -> None:
        self._note_broken(decoding.exception())
        _hand_on(done, decoding)

    def _note_broken(self, error: BaseException | None) -> None:
        """A pool whose threads cannot begin takes nothing any more."""
        if isinstance(error, BrokenExecutor):
            self._decoders_failed = True

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """What this thread decodes, or draws, is under way."""
        thread = threading.get_ident()
        self._decoding_since[thread] = time.perf_counter()
        try:
            yield
        finally:
            del self._decoding_since[thread]

    def _decode(self, example: Any, request: _Request, done: "Future[Answered]") -> None:
        start = time.perf_counter()
        if start > request.due and not request.promised:
            raise busy("busy: its turn came too late", start - request.due)
        with self._timed():
            prepared = self.model.prepare(example)
        self._queue(prepared.inputs, prepared.context, time.perf_counter() - start, request, done)

    def _queue(
        self, inputs: NDArray[Any], context: Any, decode_s: float, request: _Request, done: "Future[Answered]"
    ) -> None:
        example = Waiting(inputs, request.arrived_at, request.due, request.promised)
        example.ran.add_done_callback(partial(self._finish, context, decode_s, request, done))
        self._batcher.submit(example)

    def _finish(
        self, context: Any, decode_s: float, request: _Request, done: "Future[Answered]", call: "Future[Ran]"
    ) -> None:
        _hand_on(done, call)
        if done.done():
            return
        ran = call.result()
        try:
            answer = self.model.answer(ran.output, context)
            queue_s = ran.started_at - request.arrived_at - decode_s
            _settle(done, Answered(answer, decode_s, max(0.0, queue_s), ran.infer_s, ran.images))
        finally:
            if not done.done():
                done.set_exception(RuntimeError("the answer could not be read from the network's output"))


def _hand_on(done: "Future[Answered]", step: "Future[Any]") -> None:
    """What went wrong in a step is the outcome of the whole."""
    error = step.exception()
    if isinstance(error, UserError | Refusal):  # an answer to the client; of anything else the log tells where it was
        drop_frames(error)
    if error is not None and done.set_running_or_notify_cancel():
        done.set_exception(error)


def _settle(done: "Future[Answered]", answered: Answered) -> None:
    """Unless nobody waits for it any more."""
    if done.set_running_or_notify_cancel():
        done.set_result(answered)


def finite(inputs: NDArray[Any]) -> bool:
    """False if a number of `inputs` is infinite or none at all."""
    if inputs.dtype.kind != "f":
        return True
    # A sum is not finite where a term is not, and takes a third of the time of a look at each.
    with np.errstate(over="ignore", invalid="ignore"):
        total = inputs.sum()
    return bool(np.isfinite(total)) or bool(np.isfinite(inputs).all())
