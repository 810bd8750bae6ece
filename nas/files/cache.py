"""Folder of files that belong to the user and can be made again: profiles, downloaded data, the reference network."""

import os
from pathlib import Path


def user_cache() -> Path:
    """`$XDG_CACHE_HOME/nas`, else `~/.cache/nas`; it need not exist."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nas"
