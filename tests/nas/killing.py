"""Searches in processes of their own that are ended by a signal."""

import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path


def start(command: list[str], environment: dict[str, str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def stop_when(
    reached: Callable[[], bool], how: signal.Signals, command: list[str], environment: dict[str, str]
) -> tuple[int, str, str]:
    """Start, send the signal as soon as something is reached, and wait for the end."""
    process = start(command, environment)
    while not reached():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)
    process.send_signal(how)
    out, err = process.communicate()
    return process.returncode, out, err


def completed(run_dir: Path) -> int:
    """Finished trials of the search's study; 0 as long as there is none."""
    if not (run_dir / "study.db").exists():
        return 0
    try:
        with closing(sqlite3.connect(f"file:{run_dir / 'study.db'}?mode=ro", uri=True)) as connection:
            return int(connection.execute("select count(*) from trials where state = 'COMPLETE'").fetchone()[0])
    except sqlite3.OperationalError:  # its tables are just being made, or it is locked
        return 0
