"""Run one worker process to its end, and find out which network it was at when that end was not a good one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from nas.measure.job import Job, SessionTiming, Step, decode_step
from nas.measure.procfs import memory_status

POLL_S = 0.1
STARTUP_S = 60.0
"""Time for the interpreter and the libraries to start, on any machine."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a worker may take."""

    timeout_s: float
    """For one step; see `nas.measure.job.Step`."""
    memory_bytes: int | None
    """Resident memory. (A limit on address space would forbid what runtimes only reserve.)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """What came back from one worker. Networks in none of its fields were not reached."""

    timings: dict[int, SessionTiming]
    failed: dict[int, str]
    """Networks that the worker itself reported as failed."""
    death: str | None
    """How the worker ended, where it did not finish."""
    culprit: int | None
    """The network it was at when it died; None where it was at none."""


def run_worker(job: Job, limits: Limits) -> WorkerReport:
    """Run `job` in a fresh process within `limits`."""
    with tempfile.TemporaryDirectory(prefix="nas-measure-") as folder:
        files = Path(folder)
        heartbeat = files / "heartbeat"
        heartbeat.touch()
        (files / "job.json").write_text(json.dumps(replace(job, heartbeat=heartbeat).to_json()), encoding="utf-8")
        with (
            (files / "job.json").open("rb") as stdin,
            (files / "stdout").open("wb") as stdout,
            (files / "stderr").open("wb") as stderr,
        ):
            # Files, not pipes: nothing has to be read while times are taken.
            process = _start(stdin, stdout, stderr)
            try:
                killed = _watch(process, heartbeat, limits)
            finally:
                process.kill()
                process.wait()
        timings, failed = _results(files / "stdout")
        if killed is None and process.returncode == 0:
            return WorkerReport(timings=timings, failed=failed, death=None, culprit=None)
        step = decode_step(heartbeat.read_bytes())
        finished = step.index in timings or step.index in failed
        return WorkerReport(
            timings=timings,
            failed=failed,
            death=killed or _death(process.returncode, step, files / "stderr"),
            culprit=None if step.index < 0 or finished else step.index,
        )


def _start(stdin: IO[bytes], stdout: IO[bytes], stderr: IO[bytes]) -> subprocess.Popen[bytes]:
    project = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(part for part in (project, os.environ.get("PYTHONPATH")) if part)
    return subprocess.Popen(
        [sys.executable, "-m", "nas.measure.worker"],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,  # an interrupt from the keyboard is for us; we end the worker
    )


def _watch(process: subprocess.Popen[bytes], heartbeat: Path, limits: Limits) -> str | None:
    """Wait for the end; kill what exceeds a limit and return which one."""
    last_record, since = b"", time.monotonic()
    while True:
        try:
            process.wait(POLL_S)
        except subprocess.TimeoutExpired:
            pass
        else:
            return None
        record = heartbeat.read_bytes()
        if record != last_record:
            last_record, since = record, time.monotonic()
        step = decode_step(record)
        allowed = limits.timeout_s if step.index >= 0 else max(limits.timeout_s, STARTUP_S)
        if time.monotonic() - since > allowed:
            process.kill()
            return f"no answer within {allowed:g} s while {step.phase}"
        resident = memory_status(process.pid).resident_bytes
        if limits.memory_bytes is not None and resident > limits.memory_bytes:
            process.kill()
            return f"took more than {limits.memory_bytes / 2**20:.0f} MiB of memory while {step.phase}"


def _results(stdout: Path) -> tuple[dict[int, SessionTiming], dict[int, str]]:
    """Timings and failures that the worker reported; a line cut short by its death is dropped."""
    timings, failed = {}, {}
    for line in stdout.read_text(encoding="utf-8").splitlines(keepends=True):
        if not line.endswith("\n"):
            continue
        result = json.loads(line)
        if "timing" in result:
            timings[result["index"]] = SessionTiming.from_json(result["timing"])
        else:
            failed[result["index"]] = result["failed"]
    return timings, failed


def _death(returncode: int, step: Step, stderr: Path) -> str:
    """How a worker died, with the last line it wrote."""
    if returncode < 0:
        how = f"killed by {signal.Signals(-returncode).name} while {step.phase}"
        return how + (" (out of memory?)" if -returncode == signal.SIGKILL else "")
    lines = stderr.read_text(encoding="utf-8", errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "no message")
    return f"crashed while {step.phase}: {last}"
