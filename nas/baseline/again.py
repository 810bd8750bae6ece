"""Another limit on a run that began from a baseline: what it has learnt and measured is used again."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from nas.baseline.config import BaselineConfig, is_baseline_run
from nas.baseline.folder import BaselineFolder, read_step, write_step
from nas.baseline.run import run_baseline
from nas.controller.search import SearchResult
from nas.errors import UserError
from nas.limits import Limits
from nas.progress import Progress

LEARNT = ("deploying", "library", "losses")
"""Numbers of a run's plan that hold for any limit."""


def derive_again(run: Path, changes: Mapping[str, Any], progress: Progress | None = None) -> SearchResult:
    """The run's derivation with `changes`, answered in `run`/limits/<limits>, with the options that it has taught.

    Raises:
        UserError: `run` has taught none; and what `run_baseline` raises.
    """
    old = BaselineFolder(run)
    if not old.times.exists():
        raise UserError(
            f"the run '{run}' has taught no options that could be used again",
            "run its search to the end first; where its network kept the limit as it was, begin anew in another --out",
        )
    return run_baseline(changed_config(old, changes), progress, before=lambda new: take_over(old, new), origin=old.path)


def runs_from_baseline(run: Path) -> bool:
    """True if the folder is that of a run that began from a baseline."""
    try:
        document = json.loads((run / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(document, dict) and is_baseline_run(document)


def changed_config(old: BaselineFolder, changes: Mapping[str, Any]) -> BaselineConfig:
    """The run's configuration with `changes`, in a folder of its own."""
    document = json.loads(old.config.read_text(encoding="utf-8"))
    known = {field.name for field in fields(BaselineConfig)}
    settings = {name: value for name, value in document.items() if name in known}
    for name in ("runtimes", "precisions"):
        settings[name] = tuple(settings[name]) if settings[name] is not None else None
    settings["limits"] = Limits.of(**settings["limits"])
    config = BaselineConfig(**{**settings, **changes})
    goal = config.limits.label or f"{config.speedup:g}x"
    allowed = f"-loss{100 * config.max_loss:g}" if config.max_loss != document["max_loss"] else ""
    return replace(config, out=old.path / "limits" / f"{goal}{allowed}")


def take_over(old: BaselineFolder, new: BaselineFolder) -> None:
    """Copy what holds for any limit to a new run's folder, unless it has begun already."""
    if new.plan.exists():
        return
    shutil.copytree(old.baseline_network, new.baseline_network, dirs_exist_ok=True)
    if old.adapted.exists():
        shutil.copytree(old.adapted, new.adapted, dirs_exist_ok=True)
    for name in ("adapting", "times", "library", "losses"):
        source: Path = getattr(old, name)
        if source.exists():
            shutil.copyfile(source, getattr(new, name))
    if not old.plan.exists():  # a run in which no network kept the limit ends before it plans
        return
    origin = json.loads(old.plan.read_text(encoding="utf-8"))["of"]
    plan: dict[str, int] = read_step(old.plan, origin) or {}
    write_step(new.plan, origin, {name: plan[name] for name in LEARNT if name in plan})
