"""A worker process of ours under supervision: started, watched for limits, ended, and its death explained."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from nas.machine import environment
from nas.measure.heartbeat import Step, decode_step
from nas.measure.procfs import memory_status

POLL_S = 0.1
STARTUP_S = 60.0
"""Time for the interpreter and the libraries to start, on any machine."""
ABSENT_S = 2.0
"""A supervisor that did not look for longer was stopped itself, or busy with something else: no time to be counted."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Resources that a worker may take."""

    timeout_s: float
    """Seconds for one step; see `nas.measure.heartbeat.Step`."""
    memory_bytes: int | None
    """Resident memory. (A limit on address space would forbid what runtimes only reserve.)"""


class SupervisedProcess:
    """`python -m MODULE` with a heartbeat file and a file for what it writes to stderr, both in `folder`."""

    def __init__(
        self,
        module: str,
        folder: Path,
        limits: Limits,
        *,
        arguments: Sequence[str] = (),
        stdin: IO[bytes] | None = None,
        stdout: IO[bytes] | None = None,
        pass_fds: Sequence[int] = (),
        trains: bool = False,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Starts it.

        `stdin` and `stdout` are files (None: nothing, and with stderr); pipes would have to be read. `trains`: its
        threads may sleep while they wait, see `nas.machine.environment`. `variables` of its environment go before ours.
        """
        self.heartbeat = folder / "heartbeat"
        self.stderr = folder / "stderr"
        self.heartbeat.write_bytes(b"")
        self.limits = limits
        self._last_record = b""
        self._since = self._looked = time.monotonic()
        self._killed: str | None = None
        project = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(part for part in (project, os.environ.get("PYTHONPATH")) if part)
        with self.stderr.open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.DEVNULL if stdin is None else stdin,
                stdout=stderr if stdout is None else stdout,
                stderr=stderr,
                env={**environment(trains=trains), "PYTHONPATH": path, **(variables or {})},
                start_new_session=True,  # an interrupt from the keyboard is for us; we end the worker
                pass_fds=tuple(pass_fds),
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def step(self) -> Step:
        """The worker's step, or the last one if it has ended."""
        return decode_step(self.heartbeat.read_bytes())

    def ended(self, timeout_s: float = 0.0) -> bool:
        """True if the worker has ended, after waiting for that up to `timeout_s`."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def enforce_limits(self) -> bool:
        """Kill the process where it exceeds a limit; whether it did.

        To be called every `POLL_S` or so: time in which nobody looked counts against no limit.
        """
        now, absent_s = time.monotonic(), time.monotonic() - self._looked
        self._looked = now
        if absent_s > ABSENT_S:
            self._since += absent_s
        record = self.heartbeat.read_bytes()
        if record != self._last_record:
            self._last_record, self._since = record, now
        step = decode_step(record)
        allowed = self.limits.timeout_s if step.index >= 0 else max(self.limits.timeout_s, STARTUP_S)
        if now - self._since > allowed:
            self._killed = f"no answer within {allowed:g} s while {step.phase}"
        limit = self.limits.memory_bytes
        if limit is not None and memory_status(self.pid).private_bytes > limit:
            self._killed = f"took more than {limit / 2**20:.0f} MiB of memory while {step.phase}"
        if self._killed is not None:
            self.end()
        return self._killed is not None

    def stand_still(self) -> None:
        """Stop it where it is, until `go_on`."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it run on."""
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Kill it, if it still runs, and wait for its end."""
        self._process.kill()
        self._process.wait()

    def death(self) -> str | None:
        """Cause of the worker's death, with the last line it wrote; None where it finished as it should."""
        if self._killed is not None or self._process.returncode == 0:
            return self._killed
        phase = self.step().phase
        lines = [line.strip() for line in self.stderr.read_text(encoding="utf-8", errors="replace").split("\n")]
        if self._process.returncode < 0:
            number = signal.Signals(-self._process.returncode)
            how = f"killed by {number.name} while {phase}"
            if number == signal.SIGABRT:  # by itself, and a stack may follow on what it said of the reason
                how += next((f": {line}" for line in reversed(lines) if "error" in line.lower()), "")
            return how + (" (out of memory?)" if number == signal.SIGKILL else "")
        last = next((line for line in reversed(lines) if line), "no message")
        return f"crashed while {phase}: {last}"
