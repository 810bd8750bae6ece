"""Run one measuring worker to its end, and find out which network it was at when that end was not a good one."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from nas.measure.job import Job, SessionTiming
from nas.measure.process import POLL_S, Limits, SupervisedProcess


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """Results of one worker. Networks in none of its fields were not reached."""

    timings: dict[int, SessionTiming]
    failed: dict[int, str]
    """Networks that the worker itself reported as failed."""
    death: str | None
    """Cause of the worker's death; None where it finished."""
    culprit: int | None
    """The network it was at when it died; None where it was at none."""


def run_worker(job: Job, limits: Limits) -> WorkerReport:
    """Run `job` in a fresh process within `limits`."""
    with tempfile.TemporaryDirectory(prefix="nas-measure-") as folder:
        files = Path(folder)
        document = replace(job, heartbeat=files / "heartbeat").to_json()
        (files / "job.json").write_text(json.dumps(document), encoding="utf-8")
        with (files / "job.json").open("rb") as stdin, (files / "stdout").open("wb") as stdout:
            # Files, not pipes: nothing has to be read while times are taken.
            process = SupervisedProcess("nas.measure.worker", files, limits, stdin=stdin, stdout=stdout)
            try:
                while not process.ended(POLL_S) and not process.enforce_limits():
                    pass
            finally:
                process.end()
        timings, failed = _results(files / "stdout")
        death = process.death()
        step = process.step()
        blamed = death is not None and step.index >= 0 and step.index not in timings and step.index not in failed
        return WorkerReport(timings=timings, failed=failed, death=death, culprit=step.index if blamed else None)


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
