"""The way from an example in memory to an answer, as a bundle goes it: the documents that it takes, and its times.

What is timed is what `nas.bundles.predictor.Predictor` and a bundle's `run.py` do with an example that is decoded
already: pre-processing, the network, post-processing.
"""

import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nas.errors import UserError
from nas.files.writing import write_json
from nas.networks.find import LABELS
from nas.runtimes.base import Inputs, Outputs, Session
from nas.tasks import TaskData, task_named, task_of
from nas.tasks.artifacts import Prepared, Processor
from search_spaces import Signature, TensorSpec

SAMPLED = 16
"""Validation examples of which the sample is one."""
SAMPLE, PIPELINE = "sample.json", "pipeline.json"


def write_pipeline(folder: Path, data: TaskData, signature: Signature) -> tuple[NDArray[Any], dict[str, Any]]:
    """Write all documents of a bundle that its pre- and post-processing need into `folder`.

    Returns:
        The sample as a network takes it, (1, ...), and the entries of `sample.json`.
    """
    artifacts = task_of(data).artifacts
    # A few examples: all of them would be converted for the sake of one.
    data = data.with_splits(train=data.train.some(1), val=data.val.some(SAMPLED), test=data.test.some(1))
    write_json(folder / LABELS, list(data.classes))
    for name, document in artifacts.documents(data.preprocess, signature).items():
        write_json(folder / name, document)
    inputs, entries = artifacts.write_sample(folder, data, signature.input)
    write_json(folder / SAMPLE, entries)
    write_json(folder / PIPELINE, {"task": data.task})
    return inputs, entries


def read_pipeline(folder: Path) -> tuple[Processor, Any]:
    """The processor that `write_pipeline` described, and an example like the user's, in memory.

    Raises:
        UserError: a document is missing or damaged.
    """
    try:
        task = json.loads((folder / PIPELINE).read_text(encoding="utf-8"))["task"]
        sample = json.loads((folder / SAMPLE).read_text(encoding="utf-8"))
        artifacts = task_named(task).artifacts
        return artifacts.processor(folder), artifacts.usual_example(folder, sample)
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise UserError(
            f"'{folder}' does not say how its network's input is made: {type(error).__name__}: {error}",
            "export the network again, or measure the network alone",
        ) from error


class PipelineSession:
    """A loaded network with what goes before and after it: a `nas.runtimes.base.Session` that has its examples."""

    def __init__(self, session: Session, folder: Path) -> None:
        """`folder`: as `write_pipeline` or a bundle has it. Raises `UserError` where it is not whole."""
        self._session = session
        self._processor, example = read_pipeline(folder)
        self._examples = [example] * session.batch
        self.before_s: list[float] = []
        """Seconds of pre-processing in each call so far."""
        self.network_s: list[float] = []
        """Seconds of the network in each call so far."""
        self.after_s: list[float] = []
        """Seconds of post-processing in each call so far."""

    @property
    def input(self) -> TensorSpec:
        return self._session.input

    @property
    def batch(self) -> int:
        return self._session.batch

    def run(self, inputs: Inputs) -> Outputs:
        """One call with the session's own examples, whatever `inputs` are; the network's outputs."""
        start = time.perf_counter()
        prepared = [self._processor.preprocess(example) for example in self._examples]
        own = joined(prepared)
        ready = time.perf_counter()
        outputs = self._session.run(own)
        ran = time.perf_counter()
        for output, one in zip(outputs, prepared, strict=True):
            self._processor.postprocess(output, one.context)
        self.before_s.append(ready - start)
        self.network_s.append(ran - ready)
        self.after_s.append(time.perf_counter() - ran)
        return outputs

    def forget_last(self) -> None:
        """Do not count the last call."""
        del self.before_s[-1], self.network_s[-1], self.after_s[-1]

    def forget(self) -> None:
        """Count the calls from now on."""
        for part in (self.before_s, self.network_s, self.after_s):
            part.clear()

    def medians_ms(self) -> tuple[float, float, float]:
        """Of pre-processing, the network and post-processing in the calls that count."""
        return 1e3 * median(self.before_s), 1e3 * median(self.network_s), 1e3 * median(self.after_s)


def joined(prepared: list[Prepared]) -> NDArray[Any]:
    """The inputs of one call."""
    return prepared[0].inputs if len(prepared) == 1 else np.concatenate([p.inputs for p in prepared])


def processing_ms(folder: Path, signature: Signature, interval_ms: float, calls: int) -> float:
    """Milliseconds of pre- and post-processing for one example in this process, the median of `calls` that start every
    `interval_ms`: what a network's own time is to be added to.

    The output is all zeros: an answer without findings. `folder`: as `write_pipeline` has it.
    """
    processor, example = read_pipeline(folder)
    output = np.zeros(signature.output.shape, np.float32)
    times_s = []
    for _ in range(calls + 1):
        start = time.perf_counter()
        processor.postprocess(output, processor.preprocess(example).context)
        times_s.append(time.perf_counter() - start)
        time.sleep(max(0.0, interval_ms / 1e3 - times_s[-1]))
    return 1e3 * median(times_s[1:])
