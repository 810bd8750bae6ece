"""The folder in which the processes of a server keep their numbers; see `nas.serving.metrics`."""

from contextlib import suppress
from pathlib import Path

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable with the folder's path: `prometheus_client` looks at it when it is imported."""


def forget_process(folder: Path, pid: int) -> None:
    """What a process that has ended had in hand no longer counts; what it had counted still does.

    `prometheus_client.multiprocess.mark_process_dead` does the same, in a process that imports the library.
    """
    for file in folder.glob(f"gauge_live*_{pid}.db"):
        with suppress(OSError):
            file.unlink()
