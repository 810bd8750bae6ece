"""One trial in a generator's process of its own, and what the machine did meanwhile."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from nas.errors import UserError
from nas.loadtest.bystanders import Bystanders
from nas.loadtest.generator import JOB, RECORDS, REQUESTS, SEEN, write_requests
from nas.loadtest.outcome import Trial
from nas.loadtest.plan import Job, Load
from nas.loadtest.records import Records
from nas.measure.statistics import Activity

TIMEOUT_S = 10.0
"""After so long without an answer a request has failed."""
START_S = 60.0
"""For the generator's process to start, on any machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """What is said to one server: a request for each image, and the answer that is right."""

    host: str
    port: int
    requests: Sequence[bytes]
    expected: Sequence[bytes]
    """What `reader` makes of a right answer."""
    reader: str
    """A key of `nas.loadtest.answers.READERS`."""
    server_pid: int | None = None
    """Process whose descendants are the server too; None: not known, or elsewhere."""


def run_trial(
    conversation: Conversation,
    load: Load,
    *,
    slo_ms: float | None = None,
    most_late: int | None = None,
    seed: int = 0,
    timeout_s: float = TIMEOUT_S,
) -> Trial:
    """Make the load, and see what comes of it. After `most_late` late answers the outcome is clear, and it ends.

    Raises:
        UserError: the generator could not do its work on this system.
    """
    job = Job(
        host=conversation.host, port=conversation.port, load=load, reader=conversation.reader, seed=seed,
        timeout_s=timeout_s, slo_ms=slo_ms, most_late=most_late,
    )  # fmt: skip
    with TemporaryDirectory(prefix="nas-load-") as name:
        folder = Path(name)
        (folder / JOB).write_text(json.dumps(job.to_json()), encoding="utf-8")
        write_requests(folder / REQUESTS, conversation.requests, conversation.expected)
        bystanders = Bystanders(conversation.server_pid)
        _generate(folder, load.warm_up_s + load.seconds + timeout_s + START_S)
        others_share = bystanders.share()
        seen = json.loads((folder / SEEN).read_text(encoding="utf-8"))
        return Trial(
            load=load,
            slo_ms=slo_ms,
            records=Records.load(folder / RECORDS),
            activity=Activity(**seen["activity"]),
            others_share=others_share,
            gone=seen["gone"],
            stopped_s=seen["stopped_s"],
            phases_ms=seen["phases_ms"],
        )


def _generate(folder: Path, within_s: float) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "nas.loadtest.generator", str(folder)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # an interrupt from the keyboard is for us; we end it
    )
    try:
        _, said = process.communicate(timeout=within_s)
    except subprocess.TimeoutExpired:
        raise UserError(
            f"the load generator did not end within {within_s:.0f} s", "ask for a lower --rate, or for fewer --clients"
        ) from None
    finally:
        process.kill()
        process.wait()
    if process.returncode:
        last = said.strip().rpartition("\n")[2] or f"exit code {process.returncode}"
        raise UserError(f"the load generator failed: {last}", "see whether this system has memory and files left")
