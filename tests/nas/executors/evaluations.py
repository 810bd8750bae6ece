"""What executors are told to do in tests: functions of a module, because another process has to import them."""

import ctypes
import errno
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from nas.data import ImageData
from nas.errors import UserError
from nas.executors.base import Evaluation, Failure, Outcome
from nas.executors.gpus import VISIBLE
from nas.executors.ray_tasks import evaluate_here
from nas.training.result import EpochCallback
from tests.nas.training.records import epoch_record

HANG_S = 600.0


def well(task: Evaluation, data: ImageData, callback: EpochCallback | None) -> Outcome | Failure:
    """Succeed at once; the outcome tells which trial, process and data it was."""
    return Outcome(accuracy=task.trial / 1000, curve=(float(os.getpid()), float(len(data.train))), seconds=0.01)


def badly_if_odd(task: Evaluation, data: ImageData, callback: EpochCallback | None) -> Outcome | Failure:
    """Odd trials end badly, each in its own way."""
    match task.trial:
        case 1:
            ctypes.string_at(0)  # a segmentation fault
        case 3:
            os._exit(7)
        case 5:
            time.sleep(HANG_S)
        case 7:
            hoard = []
            while True:
                hoard.append(b"x" * 2**24)
                time.sleep(0.01)  # whoever watches has to have the time to see it
        case 9:
            raise KeyError("a mistake in the code")
        case 11:
            os.kill(os.getpid(), signal.SIGKILL)
        case 13:
            return Failure("training diverged")
        case 15:
            print("Error: an illegal memory access\n  a stack", file=sys.stderr, flush=True)
            os.abort()  # as a C++ library does that nobody caught
        case _:
            pass
    return well(task, data, callback)


def slowly(task: Evaluation, data: ImageData, callback: EpochCallback | None) -> Outcome | Failure:
    """Keep the processor busy for a while."""
    while time.process_time() < 20.0:
        pass
    return well(task, data, callback)


def cores(task: Evaluation, data: ImageData, callback: EpochCallback | None) -> Outcome | Failure:
    """The curve holds the cores this process may use."""
    return Outcome(accuracy=0.5, curve=tuple(map(float, sorted(os.sched_getaffinity(0)))), seconds=0.0)


def gpus(task: Evaluation, data: ImageData, callback: EpochCallback | None) -> Outcome | Failure:
    """The curve holds the GPUs that this process was told of."""
    time.sleep(0.5)  # so that one worker does not do the other one's
    return Outcome(accuracy=0.5, curve=tuple(map(float, os.environ[VISIBLE].split(","))), seconds=0.0)


def unable(task: Evaluation, data: ImageData, callback: EpochCallback | None) -> Outcome | Failure:
    """Stands for a mistake of ours, not of the network."""
    raise UserError("nobody catches this", "")


def when(task: Evaluation, data: ImageData, callback: EpochCallback | None) -> Outcome | Failure:
    """Work for a moment; the curve holds begin and end."""
    began = time.time()
    time.sleep(0.1)
    return Outcome(accuracy=0.5, curve=(began, time.time()), seconds=0.1)


def marked(task: Evaluation, data: ImageData, callback: EpochCallback | None) -> Outcome | Failure:
    """Leave a mark with Ray's process of this machine in `task.data`, a folder; wait until somebody puts `go` there."""
    (raylet,) = [p.pid for p in psutil.Process().parents() if p.name() == "raylet"]
    folder = Path(task.data)
    (folder / f"{task.trial}-{raylet}-{os.getpid()}").touch()
    wait_for(folder / "go")
    return well(task, data, callback)


def unless_full(setup: Any, task: Evaluation, data: list[Any]) -> Outcome | Failure:
    """In place of `ray_tasks.evaluate_here`: the disk is full where `full-NODE` lies in `task.data`, a folder."""
    import ray

    if (Path(task.data) / f"full-{ray.get_runtime_context().get_node_id()}").exists():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return evaluate_here(setup, task, data)


def wait_for(path: Path) -> None:
    """Until it exists."""
    deadline = time.monotonic() + HANG_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} did not appear")
        time.sleep(0.02)


def epochs(task: Evaluation, data: ImageData, callback: EpochCallback | None) -> Outcome | Failure:
    """A training whose accuracy grows evenly; the lower its trial's number, the faster."""
    if task.trial == 3:
        return Failure("training diverged")
    total, curve = task.short.recipe.epochs, []
    for epoch in range(1, total + 1):
        time.sleep(0.05)
        curve.append((8 - task.trial) / 10 * epoch / total)
        assert callback is not None
        callback(epoch_record(epoch, curve[-1]))
    return Outcome(accuracy=curve[-1], curve=tuple(curve), seconds=0.05 * total)
