"""Storage of a run's studies: an SQLite file in the run's folder, or a database server for many machines."""

import importlib.util
import json
import re
import socket
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import optuna

from nas.errors import MissingDependencyError, UserError
from nas.files.writing import staged_file
from nas.machine import is_on_network

if TYPE_CHECKING:
    from sqlalchemy import URL

DRIVERS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "postgresql": (("psycopg", "psycopg"), ("psycopg2", "psycopg2")),
    "mysql": (("pymysql", "pymysql"), ("mysqldb", "MySQLdb")),
}
"""Kind of server -> (SQLAlchemy's name of a driver, module it needs), the preferred one first."""
CLAIMED_ATTR = "claimed_by"
"""Attribute of a study that stands for a claim: whose it is."""
ABOUT_ATTR = "about"
"""Attribute of a study that says what it is a search of."""
SETTINGS_ATTR, BEGUN_BY_ATTR = "settings", "begun_by"
"""Attributes of a study that others may work on: the settings of whoever began it, and who that was."""
MAY_CHANGE = "budget_s"
"""The setting that whoever began a search may change when it is continued."""
SQLITE_WAIT_S = 60.0
"""Seconds to wait for whoever else reads the file (a dashboard) before a write is given up."""
ATTEMPTS = 30
"""Attempts to create the tables, where several machines may try so at the same time: each may be in the way of any
table."""
ATTEMPT_S = 0.05
"""Seconds between two attempts."""
MYSQL_RACES = (1050, 1061, 1213)
"""Codes of MySQL for a table or an index that is there already, and for two transactions in each other's way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyStorage:
    """The studies of one run."""

    storage: optuna.storages.BaseStorage
    where: str
    """Place of the storage, for messages; holds no password."""
    prefix: str
    """Prefix of the studies' names: on a server, several runs share the database."""
    owner: str
    """Name of this process: trials that were begun under it and are still running were left behind by an earlier
    process of ours (`nas.files.folders.locked` sees to it that there is only one at a time)."""
    shared: bool
    """True if others may work on the same studies."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What has to be equal for all who do, by name; empty: nothing is compared."""

    def study(self, name: str, sampler: optuna.samplers.BaseSampler, about: Mapping[str, Any]) -> optuna.Study:
        """The study `name`; one that exists is continued.

        Raises `UserError` where it exists and is about something else, or the database cannot be reached.
        """
        with self.reachable():
            study = optuna.create_study(
                storage=self.storage,
                study_name=self.prefix + name,
                sampler=sampler,
                direction="maximize",
                load_if_exists=True,
            )
            known = study.user_attrs.get(ABOUT_ATTR)
            if known is None:
                if self.shared:  # before what it is about: a study that has that alone is of an earlier version
                    study.set_user_attr(SETTINGS_ATTR, dict(self.settings))
                    study.set_user_attr(BEGUN_BY_ATTR, self.owner)
                study.set_user_attr(ABOUT_ATTR, dict(about))
                return study
            changed = _changes({key: known.get(key) for key in about}, about) or self._changes_of_settings(study)
        if changed:
            raise UserError(
                f"{self.where} holds another search by the name {self.prefix + name!r} ({changed})",
                "give another --out: its last part is the name of the search in the database",
            )
        return study

    def _changes_of_settings(self, study: optuna.Study) -> str:
        """What differs from the settings that the study was begun with; empty where nothing does, or nobody knows.

        Whoever began it may go on with another value of `MAY_CHANGE`; what others need stays as it was, for some may be
        at work.
        """
        begun = study.user_attrs.get(SETTINGS_ATTR)
        if not self.shared or not begun:
            return ""
        now = json.loads(json.dumps(dict(self.settings)))
        ours = study.user_attrs.get(BEGUN_BY_ATTR) == self.owner
        return _changes({k: v for k, v in begun.items() if not (ours and k == MAY_CHANGE)}, now)

    def claim(self, network: str) -> bool:
        """True if the full training of the network of that name is for this machine to do.

        On a server the first that asks has it for good, as it has the trials that it began. A study of that name stands
        for the claim: of two that are made at once, the database lets one be.
        """
        if not self.shared:
            return True
        name = f"{self.prefix}final/{network}"
        try:
            claimed = optuna.create_study(storage=self.storage, study_name=name, direction="maximize")
        except optuna.exceptions.DuplicatedStudyError:
            known = optuna.load_study(storage=self.storage, study_name=name).user_attrs
            return bool(known.get(CLAIMED_ATTR) == self.owner)
        claimed.set_user_attr(CLAIMED_ATTR, self.owner)
        return True

    @contextmanager
    def reachable(self) -> Iterator[None]:
        """Turns a lost database into a `UserError`: nothing is lost, the same command goes on later."""
        from sqlalchemy.exc import OperationalError

        try:
            yield
        except (OperationalError, optuna.exceptions.StorageInternalError) as error:
            raise UserError(
                f"the studies in {self.where} cannot be read or written any more",
                "look after the database (or the disk); the same command then goes on where it stopped",
            ) from error


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The values that differ, of those that both have."""
    return ", ".join(f"{k} was {before[k]!r}, is {now[k]!r}" for k in now if k in before and before[k] != now[k])


def open_storage(
    folder: Path, url: str | None = None, settings: Mapping[str, Any] = MappingProxyType({})
) -> StudyStorage:
    """The storage of the run in `folder`: `folder`/study.db, or the server at `url`, where `settings` have to be equal
    for all who work on the same search.

    Raises `UserError` for a URL that makes no sense, a server that does not answer or refuses us, and
    `MissingDependencyError` where its driver is not installed. No message shows a password.
    """
    owner = f"{socket.gethostname()}:{folder.resolve()}"
    if url is None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "study.db"
        # Optuna fills in its templates: a brace in a path has to be doubled.
        escaped = f"sqlite:///{path}".replace("{", "{{").replace("}", "}}")
        storage = _connect(escaped, str(path), {"creator": partial(_connected, path)})
        return StudyStorage(storage=storage, where=str(path), prefix="", owner=owner, shared=False)
    parsed = _parsed(url)
    where = _without_secrets(parsed)
    rendered = parsed.render_as_string(hide_password=False).replace("{", "{{").replace("}", "}}")
    storage = _connect(rendered, where, {"pool_pre_ping": True})
    name = folder.resolve().name
    return StudyStorage(storage=storage, where=where, prefix=f"{name}/", owner=owner, shared=True, settings=settings)


def copy_studies(source: StudyStorage, folder: Path) -> None:
    """Copy all studies of a run into `folder`/study.db, which appears whole or not at all.

    Raises `UserError` where `source` holds none.
    """
    with source.reachable():
        names = [n for n in optuna.get_all_study_names(source.storage) if n.startswith(source.prefix)]
        if not names:
            raise UserError(
                f"{source.where} holds no studies named {source.prefix + '...'!r}",
                "the last part of the run's folder has to be the name it had when it was made",
            )
        with replaced_study(folder / "study.db") as staged:
            escaped = f"sqlite:///{staged}".replace("{", "{{").replace("}", "}}")
            copy = optuna.storages.RDBStorage(escaped)
            for name in names:
                optuna.copy_study(
                    from_study_name=name,
                    from_storage=source.storage,
                    to_storage=copy,
                    to_study_name=name.removeprefix(source.prefix),
                )
            copy.engine.dispose()


def add_trials(source: Path, target: Path) -> None:
    """Add the complete trials of the studies in one file to those of the same name in another, but for networks that
    have one there already."""
    stores = [
        optuna.storages.RDBStorage(f"sqlite:///{path}".replace("{", "{{").replace("}", "}}"))
        for path in (source, target)
    ]
    there, here = stores
    complete = (optuna.trial.TrialState.COMPLETE,)
    try:
        known = optuna.get_all_study_names(here)
        for name in optuna.get_all_study_names(there):
            if name not in known:
                optuna.copy_study(from_study_name=name, from_storage=there, to_storage=here)
                continue
            study = optuna.load_study(study_name=name, storage=here)
            keys = {t.user_attrs.get("key") for t in study.get_trials(deepcopy=False, states=complete)}
            trials = optuna.load_study(study_name=name, storage=there).get_trials(deepcopy=False, states=complete)
            study.add_trials([t for t in trials if t.user_attrs.get("key") not in keys])
    finally:
        for store in stores:
            store.remove_session()
            store.engine.dispose()


@contextmanager
def replaced_study(path: Path) -> Iterator[Path]:
    """A free name to write a study's file to, which takes the place of `path` at the end of the block.

    The log of a file that lay there goes with it: SQLite would take it for the log of the new one.
    """
    with staged_file(path) as staged:
        yield staged
        for ending in ("-wal", "-shm"):
            path.with_name(path.name + ending).unlink(missing_ok=True)


def check_server(url: str | None) -> None:
    """Raises what `open_storage` would, before anything is written."""
    if url is not None:
        open_storage(Path(), url)


def without_passwords(command: str) -> str:
    """A command line with the passwords of URLs in it replaced by stars: all values in their queries, too."""

    def masked(url: re.Match[str]) -> str:
        address, mark, query = re.sub(r"(://[^:/@\s]*):\S*@", r"\1:***@", url.group()).partition("?")
        return address + mark + re.sub(r"=[^&'\"]*", "=***", query)

    return re.sub(r"\S+://\S+", masked, command)


def _parsed(url: str) -> "URL":
    """The URL with a driver that is installed."""
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        kind = url.split("://")[0] if "://" in url else "no kind of database"
        raise UserError(
            f"--storage is not the URL of a database (it names {kind})",
            "write it like postgresql://user:password@host:5432/database; special characters as %40 and the like",
        ) from error
    kind, _, driver = parsed.drivername.partition("+")
    kind = "postgresql" if kind == "postgres" else kind
    if kind not in DRIVERS:
        raise UserError(
            f"--storage cannot be a {kind!r} database",
            "give postgresql://... or mysql://..., or leave it out: then an SQLite file in --out is used",
        )
    known = [(d, m) for d, m in DRIVERS[kind] if driver in ("", d)]
    if driver and not known:
        return parsed  # somebody who names a driver knows it
    installed = [d for d, module in known if importlib.util.find_spec(module) is not None]
    if not installed:
        raise MissingDependencyError(
            f"the driver {known[0][0]} for {kind} databases", f"pip install 'hardware-nas[{kind}]'"
        )
    return parsed.set(drivername=f"{kind}+{installed[0]}")


def _connected(path: Path) -> sqlite3.Connection:
    """A connection to the file whose commits do not wait for the disk.

    Each parameter of a trial is a commit of its own, and with SQLite's defaults every one of them waits several times:
    a proposal of 34 decisions took 1.5 s on a disk that needs 2.5 ms to be sure. With a write-ahead log a killed
    process loses nothing, and a machine without power the last trials at most, whose outcomes the run's journal has.
    Such a log needs memory that processes share, which file systems over a network do not have: there it stays as it
    was.
    """
    connection = sqlite3.connect(path, timeout=SQLITE_WAIT_S, check_same_thread=False)
    if not is_on_network(path):
        with suppress(sqlite3.OperationalError):  # somebody reads the file just now, or the folder takes no log
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
    return connection


def _connect(url: str, where: str, engine: dict[str, Any]) -> optuna.storages.BaseStorage:
    from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError

    for _ in range(ATTEMPTS - 1):
        try:
            return _opened(url, engine)
        except (IntegrityError, ProgrammingError):  # another machine has just created the same table
            pass
        except OperationalError as error:
            if error.orig is None or not error.orig.args or error.orig.args[0] not in MYSQL_RACES:
                reason = str(error.orig).strip().splitlines() or ["no reason given"]
                raise UserError(
                    f"the database {where} cannot be used: {reason[-1].strip()}",
                    "is the server running, and are host, port, database, user and password right?",
                ) from error
        time.sleep(ATTEMPT_S)
    return _opened(url, engine)


def _opened(url: str, engine: dict[str, Any]) -> optuna.storages.BaseStorage:
    return optuna.storages.get_storage(optuna.storages.RDBStorage(url, engine_kwargs=dict(engine)))


def _without_secrets(url: "URL") -> str:
    """Kind, user, host, port and database; neither a password nor the query, which may hold one."""
    user = f"{url.username}@" if url.username else ""
    port = f":{url.port}" if url.port else ""
    return f"{url.drivername.partition('+')[0]}://{user}{url.host or ''}{port}/{url.database or ''}"
