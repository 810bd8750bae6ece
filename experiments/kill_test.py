"""Kills searches at random moments and compares what comes out with the same searches undisturbed.

`python -m experiments.kill_test --kills 30` runs small searches (real trainings of small networks on a few digits, a
fixed number of trials) that are killed with SIGKILL again and again and started again with the same command, until each
reaches its end. A finished evaluation may neither be lost nor be made twice, the proposals and their accuracies have to
be those of the undisturbed search, in the same order, and so the winner is the same. Exit code 1 where they are not.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import optuna
from optuna.trial import TrialState

from experiments.killable_search import LOG, STUDY, search
from nas.controller.runs.storage import open_storage

STARTUP_S, SHORT_S = 6.0, 1.5
"""Longest delay of a kill after the start of a process, and after a training."""


@dataclass(frozen=True, slots=True)
class Told:
    """A trial as the study knows it in the end."""

    number: int
    key: str
    accuracy: float | None
    """None where it has none."""


@dataclass(frozen=True, slots=True)
class Search:
    """One small search, told apart from others by its seed."""

    folder: Path
    trials: int
    seed: int
    storage: str | None = None

    @property
    def log(self) -> Path:
        return self.folder / "finished.txt"

    def start(self) -> subprocess.Popen[bytes]:
        """The search in a process of its own; started again it goes on."""
        self.folder.mkdir(parents=True, exist_ok=True)
        arguments = [str(self.folder), "--trials", str(self.trials), "--seed", str(self.seed)]
        arguments += ["--storage", self.storage] if self.storage else []
        with (self.folder / "stderr").open("ab") as stderr:
            return subprocess.Popen(
                [sys.executable, "-m", "experiments.kill_test", "--search", *arguments],
                stderr=stderr,
                env={**os.environ, LOG: str(self.log)},
            )

    def told(self) -> list[Told]:
        """Every trial of the study, in order."""
        storage = open_storage(self.folder, self.storage)
        study = optuna.load_study(study_name=storage.prefix + STUDY, storage=storage.storage)
        return [
            Told(t.number, t.user_attrs.get("key", ""), t.values[0] if t.state == TrialState.COMPLETE else None)
            for t in study.get_trials(deepcopy=False)
        ]

    def trained(self) -> Counter[str]:
        """How often each network was trained to the end."""
        return Counter(self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else ())


@dataclass(frozen=True, slots=True)
class Damage:
    """What killing a search has done to it; all zero and true: nothing."""

    kills: int
    lost: int
    """Finished trainings whose outcome is not in the study."""
    repeated: int
    """Trainings that were made again after they had finished."""
    same_trials: bool
    same_winner: bool

    @property
    def none(self) -> bool:
        return not self.lost and not self.repeated and self.same_trials and self.same_winner


def undisturbed(wanted: Search) -> None:
    """Run a search to its end."""
    if wanted.start().wait() != 0:
        raise click.ClickException(f"the undisturbed search failed: see {wanted.folder / 'stderr'}")


def disturbed(wanted: Search, kills: int, rng: np.random.Generator) -> int:
    """Run a search to its end with up to `kills` kills at random moments; how many it took.

    A moment is a random delay after a random number of further trainings, also none: then the kill comes while the
    process starts, goes on with what was left behind, or proposes for the first time. Only the controller is killed:
    its workers have to end by themselves.
    """
    done = 0
    while True:
        process = wanted.start()
        try:
            if done < kills:
                trainings = int(rng.integers(0, 3))
                goal = wanted.trained().total() + trainings
                while wanted.trained().total() < goal and process.poll() is None:
                    time.sleep(0.01)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(rng.uniform(0, SHORT_S if trainings else STARTUP_S))
            else:
                process.wait()
        finally:
            alive = process.poll() is None
            process.kill()
            code = process.wait()
        if not alive:
            if code != 0:
                said = (wanted.folder / "stderr").read_text(errors="replace").strip().splitlines()[-15:]
                raise click.ClickException("\n".join([f"the search failed after {done} kills:", *said]))
            return done
        done += 1


def damage(kills: int, plain: Search, killed: Search) -> Damage:
    """Compare a killed search with its undisturbed twin."""
    before, after = plain.told(), killed.told()
    trained = killed.trained()
    known = {t.key for t in after if t.accuracy is not None}
    return Damage(
        kills=kills,
        lost=sum(key not in known for key in trained),
        repeated=sum(count - 1 for count in trained.values()),
        same_trials=before == after,
        same_winner=_winner(before) == _winner(after),
    )


def _winner(trials: Sequence[Told]) -> str:
    return max(trials, key=lambda t: -1.0 if t.accuracy is None else t.accuracy).key


@click.command()
@click.option("--kills", default=30, show_default=True, help="In all; a search takes at most six of them.")
@click.option("--trials", default=12, show_default=True, help="Of each search.")
@click.option("--seed", default=0, show_default=True)
@click.option("--storage", help="A database server instead of SQLite files.")
@click.option("--search", "folder", type=click.Path(path_type=Path), help="Run (or continue) one search here instead.")
@click.option("--json", "as_json", is_flag=True)
def main(kills: int, trials: int, seed: int, storage: str | None, folder: Path | None, as_json: bool) -> None:
    """Kill searches at random moments, and look whether anything was lost."""
    if folder is not None:
        search(folder, trials, seed, storage)
        return
    rng = np.random.default_rng(seed)
    found: list[Damage] = []
    with tempfile.TemporaryDirectory() as temporary:
        while sum(d.kills for d in found) < kills:
            number = seed + len(found)
            plain = Search(Path(temporary) / f"plain-{number}", trials, number)
            killed = Search(Path(temporary) / f"killed-{number}", trials, number, storage)
            undisturbed(plain)
            count = disturbed(killed, min(6, kills - sum(d.kills for d in found)), rng)
            found.append(damage(count, plain, killed))
            if not as_json:
                click.echo(f"search {number}: {found[-1]}")
    total = {
        "kills": sum(d.kills for d in found),
        "searches": len(found),
        "lost": sum(d.lost for d in found),
        "repeated": sum(d.repeated for d in found),
        "same_trials": all(d.same_trials for d in found),
        "same_winner": all(d.same_winner for d in found),
    }
    click.echo(json.dumps(total, indent=None if as_json else 2))
    sys.exit(0 if all(d.none for d in found) else 1)


if __name__ == "__main__":
    main()
