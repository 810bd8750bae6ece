"""Measure networks side by side on this machine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nas import __version__
from nas.bench.cells import Cell, plan_cells
from nas.bench.document import SCHEMA, cell_document, model_document, operators_document
from nas.bench.models import BenchModel, on_tokens, read_models
from nas.bench.preparing import prepare_cells
from nas.calls import CAMERA_MS, CONTINUOUS, IDLE, calls_text, interval_ms_of
from nas.deployment import CPU, Deployment
from nas.errors import UnknownNameError, UserError
from nas.measure.host import fingerprint, threads_here
from nas.measure.measurement import Measurement, MeasureRequest
from nas.measure.protocol import measure
from nas.progress import Progress
from nas.runtimes import RUNTIMES, deployments_here, load_runtime, nothing_runs
from nas.runtimes.devices import require_device

PROFILING_S = 0.5
"""Time under the profiler, per network and deployment."""


OTHER_CALLS = (calls_text(CAMERA_MS), IDLE)
"""Patterns of calls that are shown beside continuous ones."""
SPACED_S = 0.1
"""`seconds_per_model` of calls with pauses, which makes eight of them: they wait much longer than they compute."""
FULL_BATCHES, FULL_OPERATORS = (1, 8, 32), 5
"""Batches and slowest operators of `nas bench --full`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchConfig:
    """Settings of a bench."""

    models: tuple[str, ...]
    """Networks as the user typed them, see `nas.bench.models`."""
    target: str = "local"
    devices: tuple[str, ...] = ()
    """`cpu` or `cuda:N`; the CPU where none is named."""
    runtimes: tuple[str, ...] | None = None
    """None: the installed ones."""
    precisions: tuple[str, ...] | None = None
    batches: tuple[int, ...] = (1,)
    streams: int | None = 1
    """Most calls at once; None: as many as threads."""
    threads: int | None = None
    """None: all that can run at once."""
    resolution: int | None = None
    sessions: int = 3
    seconds_per_cell: float = 0.3
    """Timing per cell and session, besides loading and warming up."""
    operators: int = 0
    """Slowest operators to tell of; 0: no profiled run."""
    calls: tuple[str, ...] = OTHER_CALLS
    """Patterns of calls, besides continuous ones, in which single calls at the smallest batch are timed too."""
    blocks: bool = False
    """Also time each block of the networks, see `nas.networks.units`."""
    command: str = "nas bench"


def run_bench(config: BenchConfig, progress: Progress) -> dict[str, Any]:
    """The document of a bench; see docs/bench.md.

    All cells are measured in one interleaved call of `measure`; what cannot be measured is a cell with a reason.

    Raises:
        UserError: bad input, before anything is measured: networks that do not exist, unknown names, too many streams.
    """
    if config.target != "local":
        raise UserError(f"bench measures on this machine, not on {config.target!r}", "run it there: --target local")
    threads = _threads(config)
    models = read_models(config.models, config.resolution)
    deployments = chosen_deployments(
        threads, config.runtimes, config.precisions, config.devices, dynamic_int8=on_tokens(models)
    )
    cells = plan_cells(len(models), deployments, config.batches, config.streams or threads)
    with TemporaryDirectory(prefix="nas-bench-") as folder:
        with progress.stage("preparing files"):
            files = prepare_cells(models, cells, Path(folder))
        found = _measure(config, cells, files, progress)
        patterns = [calls for calls in dict.fromkeys(config.calls) if calls != CONTINUOUS]
        spaced = _spaced(patterns, cells, found, progress)
        operators = _operators(config, models, cells, files, found, progress) if config.operators else []
    blocks = _blocks(models, deployments, progress) if config.blocks else []
    return {
        "schema": SCHEMA,
        "nas_version": __version__,
        "command": config.command,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "target": config.target,
        "device": (host := fingerprint()).cpu_model,
        "fingerprint": host.to_json(),
        "threads": threads,
        "sessions": config.sessions,
        "seconds_per_cell_and_session": config.seconds_per_cell,
        "models": [model_document(model) for model in models],
        "calls": [CONTINUOUS, *patterns],
        "cells": [
            cell_document(cell, models[cell.model], m, others)
            for cell, m, others in zip(cells, found, spaced, strict=True)
        ],
        "operators": operators,
        "blocks": blocks,
        "roofline": None,
    }


def _blocks(
    models: Sequence[BenchModel], deployments: Sequence[Deployment], progress: Progress
) -> list[dict[str, Any]]:
    from nas.bench.blocks import bench_blocks  # brings torch, which files of others do not need

    return bench_blocks(models, deployments, progress)


def chosen_deployments(
    threads: int,
    runtimes: Sequence[str] | None,
    precisions: Sequence[str] | None,
    devices: Sequence[str] = (),
    *,
    dynamic_int8: bool = False,
) -> list[Deployment]:
    """Deployments that this host can run, of those asked for; `dynamic_int8`: see `deployments_here`.

    Raises:
        UserError: nothing; an unknown name; a runtime that is not installed; a device that is not there.
    """
    offered = {precision for name in RUNTIMES for precision in load_runtime(name).precisions}
    for precision in precisions or ():
        if precision not in offered:
            raise UnknownNameError("precision", precision, offered)
    here = list[Deployment]()
    for device in devices or (CPU,):
        require_device(device)
        found = deployments_here(threads, runtimes, device=device, dynamic_int8=dynamic_int8)
        if not found:
            raise UserError(*nothing_runs(device, runtimes))
        here += found
    chosen = [d for d in here if precisions is None or d.precision in precisions]
    if not chosen:
        raise UserError(
            f"no runtime that was asked for runs {' or '.join(precisions or ())} on this machine",
            f"it can run {', '.join(d.name for d in here)}" if here else "install a runtime: pip install onnxruntime",
        )
    return chosen


def _threads(config: BenchConfig) -> int:
    threads = threads_here(config.threads)
    if (config.streams or 1) > threads:
        raise UserError(f"{config.streams} streams cannot share {threads} threads", f"give at most --streams {threads}")
    return threads


def _measure(
    config: BenchConfig, cells: Sequence[Cell], files: Sequence[Path | str], progress: Progress
) -> list[Measurement | str]:
    """A measurement of every cell that has a file, and the reason of the others."""
    requests = [
        MeasureRequest(file, cell.deployment, cell.streams)
        for cell, file in zip(cells, files, strict=True)
        if isinstance(file, Path)
    ]
    with progress.stage("measuring", total=len(requests) * config.sessions) as bar:
        results = iter(
            measure(
                requests,
                sessions=config.sessions,
                seconds_per_model=config.seconds_per_cell,
                progress=_advancing(bar.advance),
            )
        )
    return [file if isinstance(file, str) else next(results) for file in files]


def _spaced(
    patterns: Sequence[str], cells: Sequence[Cell], found: Sequence[Measurement | str], progress: Progress
) -> list[dict[str, float | None]]:
    """Of each cell its median latency in ms by pattern of calls, from one session; None where it cannot be called so.

    Empty for cells of several streams or larger batches, and for those that were not measured at all.
    """
    by_cell: list[dict[str, float | None]] = [{} for _ in cells]
    smallest = min((cell.deployment.batch for cell in cells), default=1)
    timed = [
        (at, m.request)
        for at, (cell, m) in enumerate(zip(cells, found, strict=True))
        if cell.streams == 1 and cell.deployment.batch == smallest
        if isinstance(m, Measurement) and m.failed is None
    ]
    with progress.stage("calls with pauses", total=len(timed) * len(patterns)) as bar:
        for calls in patterns:
            interval_ms = interval_ms_of(calls)
            requests = [replace(r, deployment=r.deployment.called(interval_ms)) for _, r in timed]
            results = measure(requests, sessions=1, seconds_per_model=SPACED_S, progress=_advancing(bar.advance))
            for (at, _), m in zip(timed, results, strict=True):
                by_cell[at][calls] = m.p50_ms if m.failed is None else None
    return by_cell


def _operators(
    config: BenchConfig,
    models: Sequence[BenchModel],
    cells: Sequence[Cell],
    files: Sequence[Path | str],
    found: Sequence[Measurement | str],
    progress: Progress,
) -> list[dict[str, Any]]:
    """The slowest operators at the smallest batch, in a worker of their own: a profiler slows the network down."""
    smallest = min(cell.deployment.batch for cell in cells)
    profiled = [
        (cell, MeasureRequest(file, cell.deployment))
        for cell, file, measured in zip(cells, files, found, strict=True)
        if cell.streams == 1 and cell.deployment.batch == smallest
        if isinstance(file, Path) and isinstance(measured, Measurement) and measured.failed is None
    ]
    with progress.stage("profiling operators", total=len(profiled)) as bar:
        results = measure(
            [request for _, request in profiled],
            sessions=1,
            seconds_per_model=0.02,
            node_seconds=PROFILING_S,
            progress=_advancing(bar.advance),
        )
    return [
        operators_document(cell, models[cell.model], measured.sessions[0].nodes, config.operators)
        for (cell, _), measured in zip(profiled, results, strict=True)
        if measured.sessions and measured.sessions[0].nodes
    ]


def _advancing(advance: Callable[[float], None]) -> Callable[[int, int], None]:
    """A callback for `measure`, which tells how much is done in all, for a bar that wants the difference."""
    last = 0

    def tell(done: int, _total: int) -> None:
        nonlocal last
        advance(done - last)
        last = done

    return tell
