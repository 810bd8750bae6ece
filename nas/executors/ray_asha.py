"""Short trainings under Ray Tune, where those with a hopeless curve are stopped early (ASHA).

Asynchronous successive halving (Li et al. 2020, https://arxiv.org/abs/1810.05934): after 1, 3, 9, ... epochs only the
best third of the networks that came so far goes on.
"""

import json
import os
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from nas.executors.base import Evaluate, Evaluation, Failure, Finished, Outcome
from nas.executors.journal import Journal
from nas.executors.ray_cluster import Slots, connected, nodes_of, slots_of
from nas.executors.ray_tasks import RETRIES, quiet_here
from nas.executors.shared_data import without_files
from nas.executors.training import train_briefly
from nas.tasks import TaskData
from nas.training.result import EpochRecord

REDUCTION = 3
"""One of so many networks survives each rung."""
BATCH_PER_SLOT = 4
"""Networks proposed together for each place where one can be trained: halving needs some to compare."""
METRIC = "val_accuracy"
RESULT = "result"


class AshaExecutor:
    """Evaluates batches: `wait` runs all that was submitted and returns when the whole batch is done.

    Networks that are stopped early come back with the accuracy they had (`Outcome.stopped_early`).
    """

    def __init__(
        self,
        data: TaskData,
        folder: Path,
        *,
        address: str,
        workers: int | None = None,
        evaluate: Evaluate = train_briefly,
    ) -> None:
        """Arguments as for `RayExecutor`."""
        self.journal = Journal(folder.absolute() / "outcomes")
        self._folder = folder.absolute() / "tune"
        self._data = data
        self._address = address
        self._workers = workers
        self._evaluate = evaluate
        self._slots = Slots(count=0, cpus=0, gpus=0)
        self._batch: list[Evaluation] = []
        self._stack = ExitStack()

    @property
    def capacity(self) -> int:
        return BATCH_PER_SLOT * self._slots.count

    def __enter__(self) -> Self:
        self._ray = self._stack.enter_context(connected(self._address))
        self._slots = slots_of(nodes_of(self._ray), self._workers)
        self._data_ref = self._ray.put(without_files(self._data))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def submit(self, task: Evaluation) -> None:
        self._batch.append(task)

    def wait(self) -> list[Finished]:
        batch, self._batch = self._batch, []
        if not batch:
            return []
        found = [Finished(task, result) for task, result in zip(batch, self._tune(batch), strict=True)]
        for finished in found:
            if isinstance(finished.result, Outcome):
                self.journal.write(finished.task, finished.result)
        return found

    def abandon(self) -> None:
        self._batch.clear()  # nothing else runs outside of `wait`

    def rest(self) -> None:
        """Ray ends its processes itself."""

    def quiet(self) -> AbstractContextManager[None]:
        return quiet_here(self._ray)

    def _tune(self, batch: list[Evaluation]) -> list[Outcome | Failure]:
        from ray import tune
        from ray.tune.schedulers import ASHAScheduler

        os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
        # Tune would take over Ctrl-C for good; what it means is for the search to say.
        os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"
        epochs = max(task.short.recipe.epochs for task in batch)
        tuner = tune.Tuner(
            tune.with_resources(
                trainable(self._evaluate, [self._data_ref], batch, self._slots.cpus),
                {"cpu": self._slots.cpus, "gpu": self._slots.gpus},
            ),
            param_space={"index": tune.grid_search(list(range(len(batch))))},
            tune_config=tune.TuneConfig(
                metric=METRIC,
                mode="max",
                # The last report of a training carries its result and counts as one more epoch.
                scheduler=ASHAScheduler(max_t=epochs + 1, grace_period=1, reduction_factor=REDUCTION),
                max_concurrent_trials=self._slots.count,
            ),
            run_config=tune.RunConfig(
                storage_path=str(self._folder),
                failure_config=tune.FailureConfig(max_failures=RETRIES),
                verbose=0,
            ),
        )
        grid = tuner.fit()
        by_index = {(tuned.config or {})["index"]: tuned for tuned in (grid[i] for i in range(len(grid)))}
        return [result_of(by_index[i]) for i in range(len(batch))]


def trainable(
    evaluate: Evaluate, data: list[Any], batch: list[Evaluation], threads: int
) -> Callable[[dict[str, Any]], None]:
    """Function that Tune runs for each network of `batch`: one report per epoch, and a last one with the result."""

    def run(config: dict[str, Any]) -> None:
        import ray
        import torch
        from ray import tune

        torch.set_num_threads(threads)
        curve: list[float] = []
        started = time.perf_counter()
        task = batch[config["index"]]

        def report(log: EpochRecord) -> None:
            # Tune may end the process while it is in here: what was reported last is then the result.
            curve.append(log.val_accuracy)
            so_far = Outcome(
                accuracy=log.val_accuracy,
                curve=tuple(curve),
                seconds=time.perf_counter() - started,
                stopped_early=log.epoch < task.short.recipe.epochs,
            )
            tune.report({METRIC: log.val_accuracy, RESULT: encode(so_far)})

        result = evaluate(task, ray.get(data[0]), report)
        accuracy = result.accuracy if isinstance(result, Outcome) else 0.0
        tune.report({METRIC: accuracy, RESULT: encode(result)})

    return run


def result_of(tuned: Any) -> Outcome | Failure:
    """Result of one trial, from Tune's record of it."""
    if tuned.error is not None:
        return Failure(f"crashed {RETRIES + 1} times: {str(tuned.error).strip().splitlines()[-1]}")
    if not tuned.metrics or RESULT not in tuned.metrics:
        return Failure("it ended without a word")
    return decode(tuned.metrics[RESULT])


def encode(result: Outcome | Failure) -> str:
    """A result as text: Tune treats nested metrics in ways of its own."""
    return json.dumps(result.to_json() if isinstance(result, Outcome) else asdict(result))


def decode(text: str) -> Outcome | Failure:
    """Inverse of `encode`."""
    document = json.loads(text)
    if "reason" in document:
        return Failure(document["reason"])
    return Outcome.from_json(document)
