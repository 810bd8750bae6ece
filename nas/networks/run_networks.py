"""The meaning of `RUN#k` in every command: a run's winners, then its other finalists, the most accurate first."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nas.errors import UserError
from nas.networks.description import NETWORK, NetworkDescription

TRAINED, DEPLOYED = "trained.json", "deployed.json"
"""A finalist's records, see `nas.controller.runs.records`."""
TARGET = "target.json"
"""The file of a run in which it recorded its target, see `nas.controller.prediction.target_record`."""
_RESUME = "run the search again on that folder: it resumes"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNetwork:
    """A trained network of a run."""

    rank: int
    """The k of `RUN#k`, from 1."""
    folder: Path
    """`winners/K`, or `finalists/NAME` where it was not delivered."""
    winner: bool
    """True if the network keeps the limits and was delivered."""
    description: NetworkDescription

    @property
    def file(self) -> Path:
        """Path of the network's `.network.json`; the weights lie beside it."""
        return self.folder / NETWORK


def split_number(text: str) -> tuple[Path, int] | None:
    """`RUN#k` -> its folder and k; None where `text` is no such thing: a path that exists, or one without #.

    Raises:
        UserError: there is no such folder, or k is no number.
    """
    run, hash_sign, number = text.rpartition("#")
    if not hash_sign or Path(text).expanduser().exists():
        return None
    folder = run_folder(run)
    if not number.isdecimal():
        raise UserError(f"{text!r} has no number after #", f"write {run}#1 for the run's first network")
    return folder, int(number)


def run_folder(text: str) -> Path:
    """The folder that `text` names. Raises `UserError` where there is none."""
    folder = Path(text).expanduser()
    if not folder.is_dir():
        raise UserError(f"no such run folder: '{text}'", "give the folder that `nas search` printed as `run`")
    return folder


def run_networks(run: Path) -> list[RunNetwork]:
    """The trained networks of a run by their numbers: its winners, then its other finalists, the most accurate first.

    Finalists of the random baseline are among them. Their accuracy is that in torch on validation images: it is known
    of every one of them, also where no deployment came of it.

    Raises:
        UserError: there are none, or their files are damaged.
    """
    winners = sorted((f for f in (run / "winners").glob("*") if f.name.isdecimal()), key=lambda f: int(f.name))
    trained = [(_accuracy(f / TRAINED), f) for f in (run / "finalists").glob("*") if (f / TRAINED).exists()]
    others = [f for _, f in sorted(trained, key=lambda found: (-found[0], found[1].name))]
    delivered = [_network(folder, winner=True) for folder in winners]
    known = {network.description for network in delivered}
    networks = delivered + [n for f in others if (n := _network(f, winner=False)).description not in known]
    if not networks:
        raise UserError(f"the run '{run}' has no trained network", "run its search to the end: it resumes")
    return [replace(network, rank=rank) for rank, network in enumerate(networks, start=1)]


def numbered_network(run: Path, rank: int) -> RunNetwork:
    """The network that `RUN#rank` names.

    Raises:
        UserError: the run has no such number; see also `run_networks`.
    """
    found = run_networks(run)
    if not 1 <= rank <= len(found):
        winners = sum(n.winner for n in found)
        kinds = f"{_counted(winners, 'winner')}, then {_counted(len(found) - winners, 'other finalist')} by accuracy"
        raise UserError(
            f"the run '{run}' has {_counted(len(found), 'trained network')}, there is no #{rank}",
            f"give {run}#k with k from 1 to {len(found)}: {kinds}" if len(found) > 1 else f"give {run}#1",
        )
    return found[rank - 1]


def _network(folder: Path, *, winner: bool) -> RunNetwork:
    description = NetworkDescription.from_json(read_run_json(folder / NETWORK))
    return RunNetwork(rank=0, folder=folder, winner=winner, description=description)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _accuracy(path: Path) -> float:
    accuracy = read_run_json(path).get("accuracy", 0.0)
    if not isinstance(accuracy, int | float):
        raise UserError(f"'{path}' has no accuracy", _RESUME)
    return float(accuracy)


def read_run_json(path: Path) -> dict[str, Any]:
    """A document of a run's folder. Raises `UserError` where it is missing or damaged."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"cannot read '{path}': {error}", _RESUME) from error
    if not isinstance(document, dict):
        raise UserError(f"'{path}' is not what a search wrote", _RESUME)
    return document
