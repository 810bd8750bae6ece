"""A bundle loaded for serving: its network for several numbers of images per call, checked on the stored sample."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from nas.bundles.predictor import Answer, Predictor
from nas.data.processor import read_document
from nas.errors import UserError
from nas.measure.pipeline import SAMPLE
from nas.networks.find import LABELS
from nas.runtimes import Session, load_runtime
from nas.runtimes.base import Inputs, Outputs
from nas.tasks import task_named
from nas.tasks.artifacts import Locating, Prepared

WARM_CALLS, FEWEST_WARM_CALLS, WARM_S = 20, 2, 1.0
"""Calls of each size before a server says that it is ready: at most, at least, and the seconds that end them between.
A slow network is warm after few calls, and in twenty of each size its start would take minutes."""
VERSION = "1"
"""What the protocol calls the version of a model: a bundle has one."""


@dataclass(frozen=True, slots=True, eq=False)
class ServedModel:
    """For one thread at a time, but for `prepare` and `answer`."""

    name: str
    predictor: Predictor
    sessions: Mapping[int, Session]
    """Images per call -> the network for so many, ascending."""
    labels: tuple[str, ...]
    """Classes in the order of the outputs."""
    columns: Mapping[str, int] | None
    """Class -> its place in `labels`, where an answer has every class; else None."""
    locates: bool
    """Answers are objects with boxes."""

    @classmethod
    def open(cls, bundle: str | Path, *, name: str, threads: int, files: Mapping[int, Path]) -> Self:
        """Load a bundle whose checksums were compared before.

        Args:
            bundle: its folder.
            name: what clients call it.
            threads: of the runtime.
            files: what `nas.serving.sizes.prepare_sizes` made.

        Raises:
            UserError: it cannot be loaded, or does not answer the stored sample as it did when it was exported.
        """
        predictor = Predictor.open(bundle, check=False, threads=threads)
        deployment, runtime = predictor.receipt.deployment, load_runtime(predictor.receipt.deployment.runtime)
        sessions = {
            size: predictor.session
            if size == deployment.batch
            else runtime.load(path, replace(deployment, threads=threads, batch=size))
            for size, path in sorted(files.items())
        }
        labels = tuple(str(label) for label in read_document(predictor.folder, LABELS))
        sample = _check_sample(predictor, sessions)
        context = _blank_context(predictor)
        answer = predictor.processor.postprocess(sample, context)
        locates = isinstance(predictor.processor, Locating)
        names_all = not locates and sorted(found["label"] for found in answer) == sorted(set(labels))
        columns = {label: at for at, label in enumerate(labels)} if names_all else None
        return cls(name, predictor, sessions, labels, columns, locates)

    @property
    def largest(self) -> int:
        """Most images of one call."""
        return max(self.sessions)

    def prepare(self, example: Any) -> Prepared:
        """The network's input of one example. Raises `UserError` where it cannot be read."""
        return self.predictor.processor.preprocess(example)

    def run(self, inputs: Inputs) -> Outputs:
        """Outputs (n, ...) of inputs (n, ...), n at most `largest`: by the smallest call that has room for them."""
        return next(s for size, s in self.sessions.items() if size >= len(inputs)).run(inputs)

    def answer(self, output: NDArray[np.float32], context: Any) -> Answer:
        """The answer of one example's output; `context` is that of `prepare`."""
        return self.predictor.processor.postprocess(output, context)

    def blank_context(self) -> Any:
        """The context of inputs that clients have prepared themselves: of a picture that needed no resizing."""
        return _blank_context(self.predictor)

    def warm_up(self) -> float:
        """Call everything until it is warm; the median seconds from an example to its answer, one at a time."""
        artifacts = task_named(self.predictor.receipt.task).artifacts
        sample = read_document(self.predictor.folder, SAMPLE)
        example = artifacts.usual_example(self.predictor.folder, sample)
        for size, session in self.sessions.items():
            inputs = np.repeat(self.prepare(example).inputs, size, axis=0)
            _warm(partial(session.run, inputs))

        def answer_one() -> None:
            prepared = self.prepare(example)
            self.answer(self.run(prepared.inputs)[0], prepared.context)

        return median(_warm(answer_one))


def _warm(call: Callable[[], object]) -> list[float]:
    """Call it until it is warm; the seconds of each call."""
    times_s: list[float] = []
    while len(times_s) < FEWEST_WARM_CALLS or (len(times_s) < WARM_CALLS and sum(times_s) < WARM_S):
        start = time.perf_counter()
        call()
        times_s.append(time.perf_counter() - start)
    return times_s


def _check_sample(predictor: Predictor, sessions: Mapping[int, Session]) -> NDArray[np.float32]:
    """Have the network answer the stored sample in calls of every size; its output.

    Raises:
        UserError: an output differs from the stored one by more than the bundle allows.
    """
    folder, artifacts = predictor.folder, task_named(predictor.receipt.task).artifacts
    sample = read_document(folder, SAMPLE)
    try:
        inputs = artifacts.read_sample(folder, sample)
        expected = artifacts.read_output(folder, sample)
        allowed = float(sample["tolerance"])
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise UserError(f"the sample of '{folder}' is damaged: {error}", "export the network again") from error
    for size, session in sessions.items():
        outputs = session.run(np.repeat(inputs, size, axis=0))
        difference = float(np.abs(outputs - expected).max()) if outputs.shape[1:] == expected.shape else np.inf
        if not difference <= allowed:
            raise UserError(
                f"'{folder}' answers its own sample wrongly, {size} at a time: the largest difference from the stored "
                f"output is {difference:.1e}, allowed are {allowed:.1e}",
                "run `nas export --verify` on it; a bundle for another kind of processor is exported there",
            )
    output: NDArray[np.float32] = outputs[0]
    return output


def _blank_context(predictor: Predictor) -> Any:
    """See `ServedModel.blank_context`."""
    shape = predictor.receipt.signature.input.shape
    if len(shape) != 3 or shape[0] != 3:  # no picture: nothing about it has to be known
        return None
    return predictor.processor.preprocess(np.zeros((*shape[1:], 3), np.uint8)).context
