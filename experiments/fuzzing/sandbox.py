"""What a reader does beside answering: files written elsewhere, programs started, connections opened."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod")
_FORBIDDEN = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "socket.connect", "pickle.find_class")
_HARMLESS = ("/dev/null", "/proc/", "/sys/")

_state: dict[str, Any] = {"allowed": None, "found": [], "hooked": False}
"""Of this process: Python has no way to take an audit hook away."""


@contextmanager
def watched(allowed: Path) -> Iterator[list[str]]:
    """Collects what happens outside the folder `allowed` while the block lasts (Python's audit events, PEP 578).

    Code in C that opens files by itself is not seen: compare the folders around `allowed` as well.
    """
    if not _state["hooked"]:
        sys.addaudithook(_hook)
        _state["hooked"] = True
    _state.update(allowed=os.path.realpath(allowed), found=[])
    try:
        yield _state["found"]
    finally:
        _state["allowed"] = None


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    allowed = _state["allowed"]
    if allowed is None:
        return
    if event in _FORBIDDEN:
        _state["found"].append(f"{event} {arguments[:2]!r}")
    elif event == "open":
        path, _, flags = arguments
        if isinstance(flags, int) and flags & _WRITES and isinstance(path, str | bytes) and _outside(path, allowed):
            _state["found"].append(f"wrote {os.fsdecode(path)!r}")
    elif event in _CHANGES:
        for path in arguments[:2]:
            if isinstance(path, str | bytes) and _outside(path, allowed):
                _state["found"].append(f"{event} {os.fsdecode(path)!r}")


def _outside(path: str | bytes, allowed: str) -> bool:
    text = os.path.abspath(os.fsdecode(path))
    # Compiled modules are written where modules are imported for the first time.
    return not (text.startswith((allowed + os.sep, *_HARMLESS)) or text == allowed or "__pycache__" in text)
