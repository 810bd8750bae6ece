"""Studies on a real MariaDB server, which speaks MySQL's protocol."""

import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nas.controller import storage as module
from nas.controller.storage import copy_studies, open_storage
from nas.controller.trials import finished, left_behind, propose, tell
from nas.errors import MissingDependencyError, UserError
from search_spaces import StagedSpace, load_search_space
from tests.nas.controller.test_storage import DONE, study_of

pytestmark = pytest.mark.xdist_group("mysql")  # one set-up for all of them

PASSWORD = "s3cret-word"
START_S = 120.0
PROGRAMS = ("mariadb-install-db", "mariadbd")


@pytest.fixture(scope="module")
def space() -> StagedSpace:
    return load_search_space("mobile").restrict("resolution", [32])


@pytest.fixture(scope="module")
def mysql() -> Iterator[str]:
    """URL of a fresh server on 127.0.0.1."""
    install, server = (shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") for name in PROGRAMS)
    if install is None or server is None:
        pytest.skip("MariaDB's programs are not installed (Debian: apt install mariadb-server)")
    if importlib.util.find_spec("pymysql") is None:
        pytest.skip("the driver pymysql is not installed (pip install 'hardware-nas[mysql]')")
    as_user: list[str] = []
    if os.geteuid() == 0:
        if "mysql" not in {user.pw_name for user in pwd.getpwall()}:
            pytest.skip("MariaDB should not run as root, and there is no user 'mysql'")
        as_user = ["--user=mysql"]
    folder = Path(subprocess.check_output(["mktemp", "-d", "/tmp/nas-my-XXXXXX"], text=True).strip())
    if as_user:
        shutil.chown(folder, "mysql")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    common = ["--no-defaults", f"--datadir={folder / 'data'}", *as_user]
    subprocess.run(
        [install, *common, "--auth-root-authentication-method=normal", "--skip-test-db"],
        check=True, stdout=subprocess.DEVNULL, cwd=folder,
    )  # fmt: skip
    listening = ["--bind-address=127.0.0.1", f"--port={port}", f"--socket={folder / 's'}", "--skip-name-resolve"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [server, *common, *listening, f"--pid-file={folder / 'pid'}"], stderr=log, stdout=log, cwd=folder
        )
        try:
            prepare(folder, process)
            yield f"mysql://me:{PASSWORD}@127.0.0.1:{port}/nas"
        finally:
            process.kill()
            process.wait()
            shutil.rmtree(folder, ignore_errors=True)


def prepare(folder: Path, process: "subprocess.Popen[bytes]") -> None:
    """Wait for the server, and make a database with a user of its own."""
    import pymysql

    deadline = time.monotonic() + START_S
    while True:
        try:
            connection = pymysql.connect(unix_socket=str(folder / "s"), user="root")
            break
        except pymysql.err.OperationalError:
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.1)
    with connection, connection.cursor() as cursor:
        cursor.execute("create database nas")
        cursor.execute(f"create user 'me'@'%' identified by '{PASSWORD}'")
        cursor.execute("grant all on nas.* to 'me'@'%'")


def test_several_machines_may_create_the_tables_at_once(mysql: str, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        opened = list(pool.map(lambda i: open_storage(tmp_path / str(i), mysql), range(4)))
    assert {s.where for s in opened} == {mysql.replace(f":{PASSWORD}", "")}


def test_a_search_on_a_server(space: StagedSpace, tmp_path: Path, mysql: str) -> None:
    """Two machines on one search, and the evaluations copied from the server for another limit."""
    here, there = (open_storage(tmp_path / machine / "run", mysql) for machine in ("here", "there"))
    study = study_of(here, space)
    tell(study, propose(study, space, here), DONE)
    propose(study, space, here)
    assert left_behind(study_of(there, space), space, there) == [], "it is somebody else's"
    restarted = open_storage(tmp_path / "here" / "run", mysql)
    (found,) = left_behind(study_of(restarted, space), space, restarted)
    tell(study_of(restarted, space), found, DONE)
    trials = finished(study_of(there, space))
    assert [t.number for t in trials] == [0, 1]
    assert trials[0].user_attrs["curve"] == [0.25, 0.5]
    (tmp_path / "answer").mkdir()
    copy_studies(there, tmp_path / "answer")
    copied = study_of(open_storage(tmp_path / "answer"), space)
    assert [t.params for t in finished(copied)] == [t.params for t in trials]


def test_a_server_that_is_not_there_or_refuses_us(tmp_path: Path, mysql: str) -> None:
    with pytest.raises(UserError, match=r"cannot be used: .*Access denied") as error:
        open_storage(tmp_path, mysql.replace(PASSWORD, "wr0ng-word"))
    assert "wr0ng-word" not in f"{error.value} {error.value.hint}"
    with pytest.raises(UserError, match=r"mysql://me@127\.0\.0\.1:1/nas cannot be used") as error:
        open_storage(tmp_path, f"mysql://me:{PASSWORD}@127.0.0.1:1/nas")
    assert PASSWORD not in f"{error.value} {error.value.hint}"


def test_a_missing_driver_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DRIVERS", {"mysql": (("pymysql", "no_such_module"),)})
    with pytest.raises(
        MissingDependencyError, match="the driver pymysql for mysql databases is not installed"
    ) as error:
        open_storage(tmp_path, "mysql://me:secret@localhost/nas")
    assert "hardware-nas[mysql]" in str(error.value.hint)
