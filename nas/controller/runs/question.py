"""What an answer to other limits was made with, so that a later question knows whether it answers that too."""

import hashlib
import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field

from nas.controller.runs.run_folder import RunFolder
from nas.controller.runs.storage import SQLITE_WAIT_S
from nas.files.writing import sha256_of, write_json
from nas.networks.run_networks import DEPLOYED, TRAINED


@dataclass(frozen=True, slots=True)
class Question:
    """The part of a question to a run that is not in the configuration of its answer."""

    budget: Mapping[str, float] = field(default_factory=dict)
    """By setting; empty where the finalists that are there should answer."""
    known: str = ""
    """What the run knew when it was asked, see `state_of`."""

    def answered_by(self, earlier: "Question | None") -> bool:
        """True if a finished answer to the `earlier` question is one to this too: the run has learnt nothing since, and
        no further search is asked for."""
        return earlier is not None and earlier.known == self.known and self.budget in ({}, earlier.budget)


def state_of(run: RunFolder) -> str:
    """Changes with the run's finalists and with the number of its complete trials.

    Trials on a server are not counted, so that nobody needs it to read an answer that is there.
    """
    records = sorted(run.finalists.glob(f"*/{TRAINED}")) + sorted(run.finalists.glob(f"*/{DEPLOYED}"))
    told = [[str(path.relative_to(run.finalists)), sha256_of(path)] for path in records]
    return hashlib.sha256(json.dumps([_complete_trials(run), told]).encode()).hexdigest()


def read_question(answer: RunFolder) -> Question | None:
    """The question that an answer was begun for; None where nothing was taken over for it yet."""
    if not answer.reused.exists():
        return None
    document = json.loads(answer.reused.read_text())
    return Question(document.get("budget", {}), document.get("known", ""))


def write_question(answer: RunFolder, question: Question, run: RunFolder) -> None:
    """Record that what `run` knew was taken over for this question."""
    write_json(answer.reused, {"run": str(run.path), **asdict(question)})


def _complete_trials(run: RunFolder) -> int:
    if not run.study.exists():
        return 0
    with closing(sqlite3.connect(run.study, timeout=SQLITE_WAIT_S)) as connection:
        if not connection.execute("select 1 from sqlite_master where name = 'trials'").fetchone():
            return 0  # a run that was killed while its tables were made
        return int(connection.execute("select count(*) from trials where state = 'COMPLETE'").fetchone()[0])
