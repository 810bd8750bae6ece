"""Fresh database servers on 127.0.0.1, for tests; skipped where their programs are not installed."""

import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

PASSWORD = "s3cret-word"
START_S = 120.0


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs."""

    url: str
    refusal: str
    """What it says to a wrong password."""
    disconnect: str
    """SQL with which a connection ends itself."""
    environment: Mapping[str, str]
    """Variables with which its driver finds the password by itself."""

    @property
    def where(self) -> str:
        """Its URL without the password."""
        return self.url.replace(f":{PASSWORD}", "")


@contextmanager
def postgresql() -> Iterator[Server]:
    found = shutil.which("initdb")
    candidates = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    tools = next((c for c in candidates if (c / "pg_ctl").exists()), None)
    if tools is None:
        pytest.skip("PostgreSQL's programs are not installed (Debian: apt install postgresql)")
    with _place("postgresql", "psycopg", "postgres") as (folder, port, is_root):
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if is_root else []
        data, password = str(folder / "data"), folder / "password"
        password.write_text(PASSWORD)
        _run(
            [*as_user, tools / "initdb", "-D", data, "-U", "me", "-A", "scram-sha-256", f"--pwfile={password}", "-N"],
            folder,
        )
        control = [*as_user, tools / "pg_ctl", "-D", data, "-w", "-o", f"-h 127.0.0.1 -p {port} -k {folder}"]
        _run([*control, "-l", folder / "log", "start"], folder)
        try:
            url = f"postgresql://me:{PASSWORD}@127.0.0.1:{port}/postgres"
            ending = "select pg_terminate_backend(pg_backend_pid())"
            yield Server(url, "password authentication failed", ending, {"PGPASSWORD": PASSWORD})
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], check=False, stdout=subprocess.DEVNULL, cwd=folder)


@contextmanager
def mariadb() -> Iterator[Server]:
    """It speaks MySQL's protocol."""
    programs = ("mariadb-install-db", "mariadbd")
    install, server = (shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") for name in programs)
    if install is None or server is None:
        pytest.skip("MariaDB's programs are not installed (Debian: apt install mariadb-server)")
    with _place("mysql", "pymysql", "mysql") as (folder, port, is_root):
        common = ["--no-defaults", f"--datadir={folder / 'data'}", *(["--user=mysql"] if is_root else [])]
        _run([install, *common, "--auth-root-authentication-method=normal", "--skip-test-db"], folder)
        listening = ["--bind-address=127.0.0.1", f"--port={port}", f"--socket={folder / 's'}", "--skip-name-resolve"]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [server, *common, *listening, f"--pid-file={folder / 'pid'}"], stderr=log, stdout=log, cwd=folder
            )
        try:
            _make_database(folder, process)
            url = f"mysql://me:{PASSWORD}@127.0.0.1:{port}/nas"
            yield Server(url, "Access denied", "kill connection_id()", {})
        finally:
            process.kill()
            process.wait()


SERVERS: Mapping[str, Callable[[], AbstractContextManager[Server]]] = {"postgresql": postgresql, "mysql": mariadb}


@contextmanager
def _place(extra: str, driver: str, user: str) -> Iterator[tuple[Path, int, bool]]:
    """A folder (sockets need a short path) that the server may write, a free port, and whether this is root: servers
    do not run as root, but as `user`."""
    if importlib.util.find_spec(driver) is None:
        pytest.skip(f"the driver {driver} is not installed (pip install 'hardware-nas[{extra}]')")
    is_root = os.geteuid() == 0
    if is_root and user not in {known.pw_name for known in pwd.getpwall()}:
        pytest.skip(f"the server does not run as root, and there is no user {user!r}")
    folder = Path(subprocess.check_output(["mktemp", "-d", "/tmp/nas-db-XXXXXX"], text=True).strip())
    if is_root:
        shutil.chown(folder, user)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    try:
        yield folder, port, is_root
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(command: list[str | Path], folder: Path) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder)


def _make_database(folder: Path, process: "subprocess.Popen[bytes]") -> None:
    """Wait for MariaDB, and make a database with a user of its own."""
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
