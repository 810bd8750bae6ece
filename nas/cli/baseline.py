"""The options of `nas search` that begin from a trained network."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nas.cli.types import PercentagePoints, Positive
from nas.limits import NAMES, Limits

if TYPE_CHECKING:
    from nas.controller.search import SearchResult
    from nas.progress import Progress

SHARED = (
    *("task", "target", "data", "calls", "limit_on", "budget_s", "threads", "runtimes", "precisions", "max_drop"),
    *("seed", "out", "flip", "flip_anyway", "fit", "max_resolution"),
)
"""Options of any search that mean the same with --baseline."""
OWN = ("speedup", "max_loss")
"""Options that mean nothing without it."""


def baseline_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options, in their order."""
    for option in (
        click.option(
            "--max-loss",
            type=PercentagePoints("largest loss"),
            help="With --baseline: accuracy that may be lost against it, in percentage points.  [default: 1.0]",
        ),
        click.option(
            "--speedup",
            type=Positive("factor", "speed-up", "3"),
            help="With --baseline, instead of --latency-ms: so many times as fast as it is in its fastest deployment.",
        ),
        click.option(
            "--baseline",
            help="A trained network to make a faster one of, with its weights: torchvision:NAME:FILE.safetensors, "
            "timm:NAME:FILE.safetensors, NAME.network.json, a bundle or RUN#1.",
        ),
    ):
        command = option(command)
    return command


def search_from_baseline(
    options: Mapping[str, Any], typed: Mapping[str, Any], command: str, progress: "Progress"
) -> "SearchResult":
    """What `nas search --baseline` does.

    Args:
        options: all of the command.
        typed: those that the user gave.
        command: as typed.
        progress: is told.

    Raises:
        UserError: an option that means nothing here; what `nas.baseline.run.run_baseline` raises.
    """
    from nas.baseline.config import MAX_LOSS, BaselineConfig
    from nas.baseline.run import run_baseline
    from nas.errors import UserError

    known = {*SHARED, *NAMES, *OWN, "baseline", "allowed", "as_json", "quiet"}
    unusable = sorted(name for name in typed if name not in known)
    if unusable:
        raise UserError(
            f"--{unusable[0].replace('_', '-')} is of no use with --baseline, which searches among its parts",
            "leave it out, or search from scratch: leave out --baseline and teach with --teacher",
        )
    config = BaselineConfig(
        **{name: options[name] for name in SHARED},
        baseline=options["baseline"],
        limits=_limits(options, typed),
        speedup=options["speedup"],
        max_loss=MAX_LOSS if options["max_loss"] is None else options["max_loss"],
        resolution=_resolution(options["allowed"]),
        command=command,
    )
    return run_baseline(config, progress)


def search_again_from_baseline(
    run: Path, typed: Mapping[str, Any], command: str, progress: "Progress"
) -> "SearchResult":
    """What `nas search --run RUN` does where RUN began from a baseline.

    Raises:
        UserError: an option that cannot be changed; what `nas.baseline.again.derive_again` raises.
    """
    from nas.baseline.again import derive_again
    from nas.errors import UserError

    changeable = {*NAMES, *OWN, "budget_s", "run", "as_json", "quiet"}
    fixed = sorted(name for name in typed if name not in changeable)
    if fixed:
        raise UserError(
            f"--{fixed[0].replace('_', '-')} cannot be changed with --run: what was learnt depends on it",
            "ask for another --latency-ms, --speedup, --max-loss or --budget, or begin anew without --run",
        )
    changes: dict[str, Any] = {name: typed[name] for name in ("speedup", "max_loss", "budget_s") if name in typed}
    if typed.keys() & set(NAMES) and "speedup" in typed:
        raise UserError("how fast the network has to be is said once", "give either --latency-ms or --speedup")
    if typed.keys() & set(NAMES):
        changes |= {"limits": _limits(typed, typed), "speedup": None}
    elif "speedup" in changes:
        changes["limits"] = Limits()
    return derive_again(run, {**changes, "command": command}, progress)


def refuse_without_baseline(options: Mapping[str, Any]) -> None:
    """Raises `UserError` for options that mean nothing without --baseline."""
    from nas.errors import UserError

    given = next((name for name in OWN if options[name] is not None), None)
    if given is not None:
        raise UserError(
            f"--{given.replace('_', '-')} compares with a trained network, and none was given",
            "name it: --baseline torchvision:resnet18:FILE.safetensors",
        )


def _limits(options: Mapping[str, Any], typed: Mapping[str, Any]) -> Limits:
    percentile = typed.get("percentile")
    given: dict[str, float | None] = {name: options.get(name) for name in NAMES if name != "percentile"}
    return Limits.of(percentile=None if percentile is None else int(percentile), metric="accuracy", **given)


def _resolution(allowed: Mapping[str, Any]) -> int | None:
    from nas.errors import UserError

    sides = allowed.get("resolution", ())
    if len(sides) > 1:
        raise UserError("a baseline has one --resolution", "give the one that it was trained with")
    return int(sides[0]) if sides else None
