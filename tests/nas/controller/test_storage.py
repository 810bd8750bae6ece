"""Where studies live: messages without passwords, one process per run, and a real PostgreSQL server."""

import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import optuna
import pytest

from nas.cli.main import run
from nas.controller import storage as module
from nas.controller.config import SearchConfig
from nas.controller.relimit import studies_on_server, take_over
from nas.controller.run_folder import RunFolder, check_folder
from nas.controller.samplers import INTERRUPTED_ATTR, RandomFeasibleSampler
from nas.controller.samplers.base import distributions
from nas.controller.storage import StudyStorage, copy_studies, locked, open_storage, without_passwords
from nas.controller.trials import SHORT, Judgement, finished, left_behind, propose, tell
from nas.errors import MissingDependencyError, UserError
from nas.executors import Failure
from nas.export.checkpoint import write_json
from search_spaces import StagedSpace, load_search_space

pytestmark = pytest.mark.xdist_group("storage")  # one set-up for all of them

ABOUT = {"space": "mobile", "data": "noise"}
DONE = Judgement(estimator=SHORT, value=0.5, curve=(0.25, 0.5), seconds=1.0)


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


def test_folders_with_braces(space: StagedSpace, tmp_path: Path) -> None:
    (tmp_path / "{run}").mkdir()
    study_of(open_storage(tmp_path / "{run}"), space)
    assert (tmp_path / "{run}" / "study.db").exists()


def test_one_process_per_run(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from nas.controller.storage import locked\n"
        "with locked(Path(sys.argv[1])): print('in', flush=True); time.sleep(60)"
    )
    other = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == b"in\n"
        with pytest.raises(UserError, match=f"process {other.pid} on"), locked(tmp_path):
            pass
    finally:
        other.kill()
        other.wait()
    with locked(tmp_path):
        assert str(os.getpid()) in (tmp_path / "lock").read_text()


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


def test_a_missing_driver_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DRIVERS", {"postgresql": (("psycopg", "no_such_module"),)})
    with pytest.raises(MissingDependencyError) as error:
        open_storage(tmp_path, "postgresql://me:secret@localhost/nas")
    assert "psycopg" in str(error.value)
    assert "hardware-nas[postgresql]" in str(error.value.hint)


def test_commands_without_passwords() -> None:
    line = "nas search --storage postgresql://me:se:cr@t@host:5432/nas --ray ray://host:10001"
    assert without_passwords(line) == "nas search --storage postgresql://me:***@host:5432/nas --ray ray://host:10001"


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


# -- a real server -------------------------------------------------------------------------------


def server_tools() -> Path | None:
    """The folder of PostgreSQL's programs."""
    found = shutil.which("initdb")
    candidates = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((c for c in candidates if (c / "pg_ctl").exists()), None)


@pytest.fixture(scope="module")
def postgresql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a fresh server on 127.0.0.1."""
    tools = server_tools()
    if tools is None:
        pytest.skip("PostgreSQL's programs are not installed (Debian: apt install postgresql)")
    if importlib.util.find_spec("psycopg") is None:
        pytest.skip("the driver psycopg is not installed (pip install 'hardware-nas[postgresql]')")
    if os.geteuid() == 0 and "postgres" not in {user.pw_name for user in pwd.getpwall()}:
        pytest.skip("PostgreSQL does not run as root, and there is no user 'postgres'")
    folder = Path(subprocess.check_output(["mktemp", "-d", "/tmp/nas-pg-XXXXXX"], text=True).strip())
    password = folder / "password"
    password.write_text("s3cret-word")
    as_user: list[str] = []
    if os.geteuid() == 0:  # it refuses to run as root
        shutil.chown(folder, "postgres")
        shutil.chown(password, "postgres")
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    data = str(folder / "data")
    subprocess.run(
        [*as_user, str(tools / "initdb"), "-D", data, "-U", "me", "-A", "scram-sha-256", f"--pwfile={password}", "-N"],
        check=True, stdout=subprocess.DEVNULL, cwd=folder,
    )  # fmt: skip
    control = [*as_user, str(tools / "pg_ctl"), "-D", data, "-w", "-o", f"-h 127.0.0.1 -p {port} -k {folder}"]
    subprocess.run([*control, "-l", str(folder / "log"), "start"], check=True, stdout=subprocess.DEVNULL, cwd=folder)
    try:
        yield f"postgresql://me:s3cret-word@127.0.0.1:{port}/postgres"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], check=False, stdout=subprocess.DEVNULL, cwd=folder)
        shutil.rmtree(folder, ignore_errors=True)


def test_several_machines_may_create_the_tables_at_once(tmp_path: Path, postgresql: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        opened = list(pool.map(lambda i: open_storage(tmp_path / str(i), postgresql), range(4)))
    assert len({storage.where for storage in opened}) == 1


def test_a_search_on_a_server(space: StagedSpace, tmp_path: Path, postgresql: str) -> None:
    """Two machines on one search: each goes on with its own trials and sees what the other has learnt."""
    here, there = (open_storage(tmp_path / machine / "run", postgresql) for machine in ("here", "there"))
    assert here.prefix == there.prefix == "run/"
    study = study_of(here, space)
    tell(study, propose(study, space, here), DONE)
    propose(study, space, here)
    assert left_behind(study_of(there, space), space, there) == [], "it is somebody else's"
    restarted = open_storage(tmp_path / "here" / "run", postgresql)
    (found,) = left_behind(study_of(restarted, space), space, restarted)
    assert found.trial.number == 1
    tell(study_of(restarted, space), found, DONE)
    trials = finished(study_of(there, space))
    assert [t.number for t in trials] == [0, 1]
    assert trials[0].user_attrs["curve"] == [0.25, 0.5]
    other_run = open_storage(tmp_path / "another", postgresql)
    assert finished(study_of(other_run, space)) == []


def test_a_new_limit_finds_the_evaluations_on_the_server(
    space: StagedSpace, tmp_path: Path, postgresql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = RunFolder(tmp_path / "asked-again"), RunFolder(tmp_path / "asked-again" / "limits" / "5ms")
    new.path.mkdir(parents=True)
    server = open_storage(old.path, postgresql)
    study = study_of(server, space)
    for _ in range(3):
        tell(study, propose(study, space, server), DONE)
    write_json(old.server, {"where": server.where})
    with pytest.raises(UserError, match=r"the studies of .* are not at hand: .*postgresql://me@127") as error:
        studies_on_server(old, None)
    assert "--storage" in str(error.value.hint)
    monkeypatch.setenv("PGPASSWORD", "s3cret-word")
    for url in (None, postgresql):
        take_over(old, new, studies_on_server(old, url))
        here = open_storage(new.path)
        copied = study_of(here, space)
        assert [t.params for t in copied.trials] == [t.params for t in study.trials]
        assert [t.user_attrs for t in finished(copied)] == [t.user_attrs for t in finished(study)]
        tell(copied, propose(copied, space, here), DONE)
        assert len(study.trials) == 3, "the run itself stays as it was"
        new.reused.unlink()
    with pytest.raises(UserError, match="holds no studies named 'elsewhere/"):
        copy_studies(open_storage(tmp_path / "elsewhere", postgresql), new.path)
    moved = SearchConfig(latency_ms=5.0, out=old.path)
    write_json(old.config, moved.identity())
    with pytest.raises(UserError, match="lie in postgresql://me@127"):
        check_folder(moved)


def test_a_server_that_is_not_there_or_refuses_us(tmp_path: Path, postgresql: str) -> None:
    wrong = postgresql.replace("s3cret-word", "wr0ng-word")
    with pytest.raises(UserError, match=r"cannot be used: .*password authentication failed") as error:
        open_storage(tmp_path, wrong)
    assert "wr0ng-word" not in f"{error.value} {error.value.hint}"
    host = postgresql.split("@")[1].split(":")[0]
    with pytest.raises(UserError, match=r"postgresql://me@127\.0\.0\.1:1/postgres cannot be used") as error:
        open_storage(tmp_path, f"postgresql://me:s3cret-word@{host}:1/postgres")
    assert "s3cret-word" not in f"{error.value} {error.value.hint}"


def lose_connection(storage: StudyStorage) -> None:
    from sqlalchemy import text

    assert isinstance(storage.storage, optuna.storages._CachedStorage)
    with storage.storage._backend.engine.connect() as connection:
        connection.execute(text("select pg_terminate_backend(pg_backend_pid())"))


def test_a_server_that_goes_away(space: StagedSpace, tmp_path: Path, postgresql: str) -> None:
    storage = open_storage(tmp_path / "gone", postgresql)
    study = study_of(storage, space)
    began = time.monotonic()
    with pytest.raises(UserError, match="cannot be read or written any more"), storage.reachable():
        lose_connection(storage)
    study.ask()
    assert time.monotonic() - began < 60, "it goes on at once with a new connection"
