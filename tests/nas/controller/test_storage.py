"""Where studies live: messages without passwords, and real servers (PostgreSQL, and MariaDB for MySQL)."""

import re
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest

from nas.cli.main import run
from nas.controller.config import SearchConfig
from nas.controller.new_limits import studies_on_server, take_over
from nas.controller.runs import storage as module
from nas.controller.runs.run_folder import RunFolder, check_folder
from nas.controller.runs.storage import (
    StudyStorage,
    copy_studies,
    open_storage,
    replaced_study,
    without_passwords,
)
from nas.controller.trials import SHORT, TrialResult, finished, left_behind, propose, tell
from nas.errors import MissingDependencyError, UserError
from nas.executors import Failure
from nas.files.writing import write_json
from nas.limits import Limits
from nas.samplers import INTERRUPTED_ATTR, RandomFeasibleSampler
from nas.samplers.base import distributions
from search_spaces import StagedSpace, load_search_space
from tests.nas.controller.database_servers import PASSWORD, SERVERS, Server

pytestmark = pytest.mark.xdist_group("storage")  # one set-up for all of them

ABOUT = {"space": "mobile", "data": "noise"}
DONE = TrialResult(estimator=SHORT, value=0.5, curve=(0.25, 0.5), seconds=1.0)


@pytest.fixture(scope="module")
def space() -> StagedSpace:
    return load_search_space("mobile").restrict("resolution", [32])


def study_of(storage: StudyStorage, space: StagedSpace) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = RandomFeasibleSampler(space, lambda choices: choices[:, 0] >= 0, seed=0)
    return storage.study("search", sampler, ABOUT)


def kill_while_proposing(study: optuna.Study, space: StagedSpace, parameters: int) -> int:
    """What the storage looks like after a kill when so many parameters were stored; the trial's number."""
    trial = study.ask()
    for name, distribution in list(distributions(space).items())[:parameters]:
        trial.suggest_categorical(name, distribution.choices)
    return trial.number


@pytest.mark.parametrize("parameters", [0, 3, 10_000])
def test_a_trial_left_behind_goes_on_as_it_would_have(space: StagedSpace, tmp_path: Path, parameters: int) -> None:
    undisturbed = open_storage(tmp_path / "a")
    killed = open_storage(tmp_path / "b")
    for storage in (undisturbed, killed):
        for _ in range(2):
            study = study_of(storage, space)
            tell(study, propose(study, space, storage), DONE)
    number = kill_while_proposing(study_of(killed, space), space, parameters)
    again = open_storage(tmp_path / "b")
    study = study_of(again, space)
    (found,) = left_behind(study, space, again)
    assert found.trial.number == number == 2
    tell(study, found, Failure("it was bad"))
    assert left_behind(study, space, again) == []
    expected = study_of(undisturbed, space)
    tell(expected, propose(expected, space, undisturbed), Failure("it was bad"))
    assert [t.params for t in study.trials] == [t.params for t in expected.trials]
    assert [t.state for t in study.trials] == [t.state for t in expected.trials]


def test_half_a_proposal_that_would_now_be_another_is_as_if_it_had_never_been(
    space: StagedSpace, tmp_path: Path
) -> None:
    storage = open_storage(tmp_path)
    study = study_of(storage, space)
    other = study.ask()
    for name, distribution in list(distributions(space).items())[:3]:
        proposed = other.relative_params[name]
        study._storage.set_trial_param(
            other._trial_id,
            name,
            (distribution.to_internal_repr(proposed) + 1) % len(distribution.choices),
            distribution,
        )
    again = study_of(open_storage(tmp_path), space)
    assert left_behind(again, space, storage) == []
    assert again.trials[0].user_attrs[INTERRUPTED_ATTR]
    assert finished(again) == []


def test_a_name_that_is_taken(space: StagedSpace, tmp_path: Path) -> None:
    study_of(open_storage(tmp_path), space)
    with pytest.raises(UserError, match="holds another search") as error:
        open_storage(tmp_path).study("search", optuna.samplers.RandomSampler(), {**ABOUT, "data": "digits"})
    assert "data was 'noise', is 'digits'" in str(error.value)


PHOTOS = SearchConfig(limits=Limits.of(latency_ms=5.0), data="photos", budget_s=4 * 3600.0, seed=0)


def shared(folder: Path, machine: str, config: SearchConfig | None) -> StudyStorage:
    """What `machine` sees of a database that others work on, too; None: as an earlier version sees it."""
    settings = {} if config is None else config.shared_settings()
    return replace(open_storage(folder), prefix="photos/", owner=machine, shared=True, settings=settings)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"limits": Limits.of(latency_ms=10.0)}, "latency_ms was 5.0, is 10.0"),
        ({"limits": Limits.of(latency_ms=5.0, max_params=1e6)}, "max_params was None, is 1000000.0"),
        ({"seed": 3}, "seed was 0, is 3"),
        ({"budget_s": 600.0}, "budget_s was 14400.0, is 600.0"),
        ({"precisions": ("fp32",)}, "precisions was None, is ['fp32']"),
    ],
)
def test_another_search_on_a_server_by_the_same_name(
    space: StagedSpace, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    study = study_of(shared(tmp_path, "a", PHOTOS), space)
    tell(study, propose(study, space, shared(tmp_path, "a", PHOTOS)), DONE)
    with pytest.raises(UserError, match="holds another search by the name 'photos/search'") as error:
        study_of(shared(tmp_path, "b", replace(PHOTOS, **change)), space)
    assert words in str(error.value)
    assert "another --out" in str(error.value.hint)
    assert len(finished(study_of(shared(tmp_path, "a", PHOTOS), space))) == 1


def test_machines_on_one_search_differ_in_what_is_theirs(space: StagedSpace, tmp_path: Path) -> None:
    study_of(shared(tmp_path, "a", replace(PHOTOS, precisions=("fp32",))), space)
    other = replace(
        PHOTOS, precisions=("fp32",), data="/mnt/photos", out=tmp_path / "elsewhere" / "photos", workers=2,
        command="nas search", strict=True,
    )  # fmt: skip
    assert study_of(shared(tmp_path, "b", other), space).trials == []


def test_who_began_a_search_may_go_on_with_another_budget(space: StagedSpace, tmp_path: Path) -> None:
    longer = replace(PHOTOS, budget_s=8 * 3600.0)
    study_of(shared(tmp_path, "a", PHOTOS), space)
    study_of(shared(tmp_path, "a", longer), space)
    study_of(shared(tmp_path, "b", PHOTOS), space)
    with pytest.raises(UserError, match=r"budget_s was 14400.0, is 28800.0"):
        study_of(shared(tmp_path, "b", longer), space)
    with pytest.raises(UserError, match="seed was 0, is 1"):
        study_of(shared(tmp_path, "a", replace(longer, seed=1)), space)


def test_a_shared_search_of_an_earlier_version_goes_on(space: StagedSpace, tmp_path: Path) -> None:
    """Nobody knows its settings; those that a later version adds are not compared either."""
    study_of(shared(tmp_path, "a", None), space)
    for seed in (0, 1):
        study_of(shared(tmp_path, "a", replace(PHOTOS, seed=seed)), space)
    known = shared(tmp_path / "known", "a", PHOTOS)
    study_of(known, space)
    study_of(replace(known, owner="b", settings={**known.settings, "younger": 1}), space)


def closed(storage: StudyStorage) -> None:
    """As a process leaves it that ends."""
    assert isinstance(storage.storage, optuna.storages._CachedStorage)
    backend = storage.storage._backend
    assert isinstance(backend, optuna.storages.RDBStorage)
    backend.remove_session()
    backend.engine.dispose()


def test_a_study_that_is_replaced_takes_its_log_with_it(space: StagedSpace, tmp_path: Path) -> None:
    old = open_storage(tmp_path / "old")
    tell(study_of(old, space), propose(study_of(old, space), space, old), DONE)
    log = (tmp_path / "old" / "study.db-wal").read_bytes()
    assert log, "what a killed process leaves"
    other = open_storage(tmp_path / "other")
    study_of(other, space)
    closed(other)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "study.db").write_bytes(b"")
    (tmp_path / "new" / "study.db-wal").write_bytes(log)
    with replaced_study(tmp_path / "new" / "study.db") as staged:
        staged.write_bytes((tmp_path / "other" / "study.db").read_bytes())
    assert study_of(open_storage(tmp_path / "new"), space).trials == []


def test_commits_do_not_wait_for_a_local_disk(
    space: StagedSpace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def journal_mode(folder: Path) -> str:
        study_of(open_storage(folder), space)
        with closing(sqlite3.connect(folder / "study.db")) as connection:
            return str(connection.execute("PRAGMA journal_mode").fetchone()[0])

    assert journal_mode(tmp_path / "local") == "wal"
    monkeypatch.setattr(module, "is_on_network", lambda path: True)
    assert journal_mode(tmp_path / "network") == "delete"


def test_folders_with_braces(space: StagedSpace, tmp_path: Path) -> None:
    (tmp_path / "{run}").mkdir()
    study_of(open_storage(tmp_path / "{run}"), space)
    assert (tmp_path / "{run}" / "study.db").exists()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://me:secret@host/0", "cannot be a 'redis' database"),
        ("sqlite:///other.db", "cannot be a 'sqlite' database"),
        ("my database", "is not the URL of a database"),
        ("mysql:secret@host", "is not the URL of a database"),
        ("postgresql://me:secret@host:port/x", "is not the URL of a database"),
    ],
)
def test_urls_that_make_no_sense(tmp_path: Path, url: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as error:
        open_storage(tmp_path, url)
    assert "secret" not in f"{error.value} {error.value.hint}"


@pytest.mark.parametrize(("kind", "driver"), [("postgresql", "psycopg"), ("mysql", "pymysql")])
def test_a_missing_driver_is_named(kind: str, driver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DRIVERS", {kind: ((driver, "no_such_module"),)})
    with pytest.raises(MissingDependencyError, match=f"the driver {driver} for {kind} databases") as error:
        open_storage(tmp_path, f"{kind}://me:secret@localhost/nas")
    assert f"hardware-nas[{kind}]" in str(error.value.hint)


def test_commands_without_passwords() -> None:
    line = "nas search --storage postgresql://me:se:cr@t@host:5432/nas --ray ray://host:10001"
    assert without_passwords(line) == "nas search --storage postgresql://me:***@host:5432/nas --ray ray://host:10001"
    line = "nas search --storage 'postgresql://db/nas?user=nas&password=secret' --data photos?x=1"
    assert (
        without_passwords(line) == "nas search --storage 'postgresql://db/nas?user=***&password=***' --data photos?x=1"
    )
    assert "hidden" not in without_passwords("nas search --storage mysql://nas:hidden@db/nas?passwd=hidden")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--storage", "redis://me:secret@host/0"], "cannot be a 'redis' database"),
        (["--asha"], "needs a cluster"),
    ],
)
def test_a_search_that_cannot_be_had_writes_nothing(
    tmp_path: Path, options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["search", "--target", "xeon-spr", "--latency-ms", "5", "--out", str(tmp_path / "run"), *options]) == 1
    said = capsys.readouterr()
    assert words in said.err
    assert "secret" not in said.out + said.err
    assert not (tmp_path / "run").exists()


# -- real servers --------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with SERVERS[request.param]() as running:
        yield running


def test_several_machines_may_create_the_tables_at_once(tmp_path: Path, server: Server) -> None:
    with ThreadPoolExecutor(4) as pool:
        opened = list(pool.map(lambda i: open_storage(tmp_path / str(i), server.url), range(4)))
    assert {storage.where for storage in opened} == {server.where}


def test_a_search_on_a_server(space: StagedSpace, tmp_path: Path, server: Server) -> None:
    """Two machines on one search: each goes on with its own trials and sees what the other has learnt."""
    here, there = (open_storage(tmp_path / machine / "run", server.url) for machine in ("here", "there"))
    assert here.prefix == there.prefix == "run/"
    study = study_of(here, space)
    tell(study, propose(study, space, here), DONE)
    propose(study, space, here)
    assert left_behind(study_of(there, space), space, there) == [], "it is somebody else's"
    restarted = open_storage(tmp_path / "here" / "run", server.url)
    (found,) = left_behind(study_of(restarted, space), space, restarted)
    assert found.trial.number == 1
    tell(study_of(restarted, space), found, DONE)
    trials = finished(study_of(there, space))
    assert [t.number for t in trials] == [0, 1]
    assert trials[0].user_attrs["curve"] == [0.25, 0.5]
    other_run = open_storage(tmp_path / "another", server.url)
    assert finished(study_of(other_run, space)) == []


def test_a_new_limit_finds_the_evaluations_on_the_server(
    space: StagedSpace, tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = RunFolder(tmp_path / "asked-again"), RunFolder(tmp_path / "asked-again" / "limits" / "5ms")
    new.path.mkdir(parents=True)
    shared = open_storage(old.path, server.url)
    study = study_of(shared, space)
    for _ in range(3):
        tell(study, propose(study, space, shared), DONE)
    write_json(old.server, {"where": shared.where})
    with pytest.raises(UserError, match=rf"the studies of .* are not at hand: .*{re.escape(server.where)}") as error:
        studies_on_server(old, None)
    assert "--storage" in str(error.value.hint)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    for url in (None, server.url) if server.environment else (server.url,):
        take_over(old, new, studies_on_server(old, url))
        here = open_storage(new.path)
        copied = study_of(here, space)
        assert [t.params for t in copied.trials] == [t.params for t in study.trials]
        assert [t.user_attrs for t in finished(copied)] == [t.user_attrs for t in finished(study)]
        tell(copied, propose(copied, space, here), DONE)
        assert len(study.trials) == 3, "the run itself stays as it was"
        closed(here)
        new.reused.unlink()
    with pytest.raises(UserError, match="holds no studies named 'elsewhere/"):
        copy_studies(open_storage(tmp_path / "elsewhere", server.url), new.path)
    moved = SearchConfig(limits=Limits.of(latency_ms=5.0), out=old.path)
    write_json(old.config, moved.identity())
    with pytest.raises(UserError, match=f"lie in {re.escape(server.where)}"):
        check_folder(moved)


def test_a_server_that_is_not_there_or_refuses_us(tmp_path: Path, server: Server) -> None:
    with pytest.raises(UserError, match=rf"cannot be used: .*{server.refusal}") as error:
        open_storage(tmp_path, server.url.replace(PASSWORD, "wr0ng-word"))
    assert "wr0ng-word" not in f"{error.value} {error.value.hint}"
    absent = re.sub(r":\d+/", ":1/", server.url)
    with pytest.raises(UserError, match=r"://me@127\.0\.0\.1:1/.* cannot be used") as error:
        open_storage(tmp_path, absent)
    assert PASSWORD not in f"{error.value} {error.value.hint}"


def lose_connection(storage: StudyStorage, sql: str) -> None:
    from sqlalchemy import text

    assert isinstance(storage.storage, optuna.storages._CachedStorage)
    with storage.storage._backend.engine.connect() as connection:
        connection.execute(text(sql))


def test_a_server_that_goes_away(space: StagedSpace, tmp_path: Path, server: Server) -> None:
    storage = open_storage(tmp_path / "gone", server.url)
    study = study_of(storage, space)
    began = time.monotonic()
    with pytest.raises(UserError, match="cannot be read or written any more"), storage.reachable():
        lose_connection(storage, server.disconnect)
    study.ask()
    assert time.monotonic() - began < 60, "it goes on at once with a new connection"
