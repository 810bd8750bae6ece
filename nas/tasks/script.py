"""`run.py` of a bundle: made of the very functions that pre-process and post-process in this package."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

_HEAD = '''\
"""{purpose}"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
{imports}
from PIL import Image, ImageDraw, ImageOps

'''


def script_of(purpose: str, constants: dict[str, Any], parts: Sequence[Callable[..., Any]], main: str) -> str:
    """The template of a `run.py`, see `nas.bundles.run_script.run_script`.

    Args:
        purpose: what the script does, one line.
        constants: module constants that `parts` use.
        parts: functions and classes that need the standard library, numpy and Pillow alone; their source is written
            out. Annotations are never evaluated.
        main: the lines that use them; they read the field `{run}`, which defines `output` from `inputs`.
    """
    values = "\n".join(f"{name} = {value!r}" for name, value in constants.items())
    sources = "\n\n\n".join(inspect.getsource(part).rstrip() for part in parts)
    head = _HEAD.replace("{purpose}", purpose)
    return f"{head}{values}\n\n\n{sources}\n\n\n{main}" if values else f"{head}\n{sources}\n\n\n{main}"
