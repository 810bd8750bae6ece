"""The options of `nas search` that begin from a trained network, or from the weights that libraries publish."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nas.cli.types import PercentagePoints, Positive
from nas.limits import NAMES, Limits

if TYPE_CHECKING:
    from nas.baseline.config import BaselineConfig
    from nas.controller.config import SearchConfig
    from nas.controller.search import SearchResult
    from nas.progress import Progress

SHARED = (
    *("task", "target", "data", "calls", "limit_on", "budget_s", "threads", "runtimes", "precisions", "max_drop"),
    *("seed", "out", "flip", "flip_anyway", "fit", "max_resolution"),
)
"""Options of any search that mean the same with --baseline and with --weights."""
OWN = ("speedup", "max_loss")
"""Options that mean nothing without --baseline."""


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
        click.option(
            "--weights",
            multiple=True,
            help="Begin from trained weights of other data, if they help on these: `auto` tries all that are in a "
            "cache of torchvision or timm; or torchvision:NAME or timm:NAME, which may be downloaded, or with a file, "
            "torchvision:NAME:FILE.safetensors (repeatable).",
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
    from nas.baseline.config import MAX_LOSS
    from nas.baseline.run import run_baseline
    from nas.errors import UserError

    if options["weights"]:
        raise UserError("--baseline and --weights both say what the search begins from", "give one of them")
    _refuse_useless(
        typed, "--baseline", "leave it out, or search from scratch: leave out --baseline and teach with --teacher"
    )
    loss = MAX_LOSS if options["max_loss"] is None else options["max_loss"]
    config = _config(options, typed, command, baseline=options["baseline"], speedup=options["speedup"], max_loss=loss)
    return run_baseline(config, progress)


def search_from_weights(
    options: Mapping[str, Any], typed: Mapping[str, Any], scratch: "SearchConfig", progress: "Progress"
) -> "SearchResult":
    """What `nas search --weights` does.

    Args:
        options: all of the command.
        typed: those that the user gave.
        scratch: the same search without --weights.
        progress: is told.

    Raises:
        UserError: an option that means nothing here; what `nas.baseline.from_weights.run_from_weights` raises.
    """
    from nas.baseline.from_weights import run_from_weights

    _refuse_useless(typed, "--weights", "leave it out, or search from scratch: leave out --weights")
    config = _config({**options, "data": scratch.data}, typed, scratch.command, baseline="", accuracy_first=True)
    if config.out is None:
        config = replace(config, out=scratch.run_dir.with_name(f"{scratch.run_dir.name}-from-weights"))
    return run_from_weights(options["weights"], config, scratch, progress)


def _refuse_useless(typed: Mapping[str, Any], option: str, hint: str) -> None:
    """Raises `UserError` for what means nothing with `option`, by which a search begins from a trained network."""
    from nas.errors import UserError

    known = {*SHARED, *NAMES, *OWN, "baseline", "weights", "allowed", "as_json", "quiet"}
    unusable = sorted(name for name in typed if name not in known)
    if unusable:
        raise UserError(
            f"--{unusable[0].replace('_', '-')} is of no use with {option}: a trained network brings its own parts",
            hint,
        )


def _config(options: Mapping[str, Any], typed: Mapping[str, Any], command: str, **own: Any) -> "BaselineConfig":
    from nas.baseline.config import BaselineConfig

    return BaselineConfig(
        **{name: options[name] for name in SHARED},
        **own,
        limits=_limits(options, typed),
        resolution=_resolution(options["allowed"]),
        command=command,
    )


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

    if allowed.keys() - {"resolution"}:
        raise UserError("--tokens is for networks that are searched", "leave it out: a trained network has its own")
    sides = allowed.get("resolution", ())
    if len(sides) > 1:
        raise UserError("a trained network has one --resolution", "give the one that it is to be used with")
    return int(sides[0]) if sides else None
