"""Writes the comparison of the samplers on NAS-Bench-201 into a page, each figure with the command that gives it.

`python -m experiments.search_tables --data DIR --out docs/search.md` replaces the page's section "Results".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from experiments.accuracy_tables import with_section
from experiments.line_chart import Panel, chart
from experiments.tabular.commands.search import compare, load_task
from experiments.tabular.commands.search_runs import MODES, TABLE_SAMPLERS, Mode, TableTask, recorded_run

CHOICES = "nb201_archs.npz:ops"
ACCURACY = "nb201_acc_cifar10.npz:acc200_test"
DEVICES = {
    "pixel3": "nb201_latency.npz:pixel3",
    "1080ti_1": "nb201_latency.npz:1080ti_1",
    "Raspberry Pi 5, ONNX": "nb201_pi5_pixel.npz:lat_pi5_onnx_cifar100",
}
OURS = "surrogate"
TIMED_LAST = 20
_CURVE = tuple(range(10, 201, 5))
_REGRET_RANGE = (0.03, 4.0)
_REGRET_TICKS = {"< 0.03": 0.03, "0.1": 0.1, "0.3": 0.3, "1": 1.0, "3": 3.0}
_HYPERVOLUME_RANGE = (0.2, 1.0)
_HYPERVOLUME_TICKS = {"0.2": 0.2, "0.4": 0.4, "0.6": 0.6, "0.8": 0.8, "1": 1.0}


@dataclass(frozen=True, slots=True)
class Effort:
    """How many searches of a sampler, and how long each."""

    seeds: int
    evals: int


@dataclass(frozen=True, slots=True)
class Device:
    """One device's table and its figures by sampler and number of evaluations."""

    title: str
    latency: str
    task: TableTask
    samplers: Mapping[str, Mapping[str, Mapping[str, float]]]
    seconds_per_proposal: float
    """CPU seconds of our sampler's last twenty proposals, mean; the slower kind of search."""
    timed_evals: int
    """After so many trials."""


@click.command()
@click.option("--data", type=click.Path(exists=True, file_okay=False, path_type=Path), required=True)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True)
@click.option("--runs", type=click.Path(file_okay=False, path_type=Path), help="Finished searches are kept here.")
@click.option("--seeds", default=10, show_default=True, help="Searches per sampler and device, seeds 0, 1, ...")
@click.option("--evals", default=200, show_default=True, help="Evaluations per search.")
@click.option(
    "--effort",
    "efforts",
    multiple=True,
    metavar="NAME=SEEDSxEVALS",
    help="Another number of searches or evaluations for a slow sampler (repeatable).",
)
@click.option("--timed-evals", default=200, show_default=True, help="Trials after which our sampler is timed.")
def main(
    data: Path, out: Path, runs: Path | None, seeds: int, evals: int, efforts: Sequence[str], timed_evals: int
) -> None:
    """Compare every sampler on every device of DATA; replace "Results" in the page OUT, and the plot beside it."""
    effort = {name: Effort(seeds, evals) for name in TABLE_SAMPLERS} | dict(parse_effort(text) for text in efforts)
    devices = []
    for title, latency in DEVICES.items():
        task = load_task(f"{data}/{CHOICES}", f"{data}/{ACCURACY}", f"{data}/{latency}", 0.5)
        found: dict[str, Any] = {}
        for name, one in effort.items():
            click.echo(f"{title}: {name}", err=True)
            found |= compare(task, [name], range(one.seeds), one.evals, runs)["samplers"]
        timed = [recorded_run(runs, task, OURS, 0, timed_evals, mode).seconds[-TIMED_LAST:] for mode in MODES]
        devices.append(
            Device(title, latency, task, found, max(float(np.mean(seconds)) for seconds in timed), timed_evals)
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    plot = out.with_suffix(".svg")
    plot.write_text(chart(_panels(devices, effort, runs), "evaluations"), encoding="utf-8")
    page = out.read_text(encoding="utf-8") if out.exists() else "# Samplers on complete tables\n"
    out.write_text(with_section(page, "Results", results(devices, effort, plot.name)), encoding="utf-8")


def results(devices: Sequence[Device], effort: Mapping[str, Effort], plot: str) -> str:
    """The body of the section "Results"."""
    parts = [
        _effort(effort),
        f"![Regret and hypervolume by evaluations]({plot})",
        _verdicts(devices),
        _front_mean(devices),
    ]
    return "\n\n".join([*parts, *(_section(device, effort) for device in devices)])


def _panels(devices: Sequence[Device], effort: Mapping[str, Effort], runs: Path | None) -> list[list[Panel]]:
    rows = []
    for mode in MODES:
        row = []
        for device in devices:
            lines = {name: _curve(device.task, name, one, mode, runs) for name, one in effort.items()}
            span = (0.0, float(max(one.evals for one in effort.values())))
            if mode == "limit":
                ticks = {label: float(np.log10(regret)) for label, regret in _REGRET_TICKS.items()}
                low, high = np.log10(_REGRET_RANGE)
                row.append(Panel(f"{device.title}: regret, points", lines, span, (low, high), ticks))
            else:
                row.append(Panel(f"{device.title}: hypervolume", lines, span, _HYPERVOLUME_RANGE, _HYPERVOLUME_TICKS))
        rows.append(row)
    return rows


def _curve(
    task: TableTask, name: str, one: Effort, mode: Mode, runs: Path | None
) -> tuple[np.ndarray[Any, np.dtype[np.float64]], np.ndarray[Any, np.dtype[np.float64]]]:
    """Median over searches by evaluations; regret on a log scale."""
    rows = [np.array(recorded_run(runs, task, name, s, one.evals, mode).rows) for s in range(one.seeds)]
    x = np.array([c for c in _CURVE if c <= one.evals], dtype=np.float64)
    if mode == "limit":
        medians = [np.median([task.regret(r[: int(c)]) for r in rows]) for c in x]
        return x, np.log10(np.maximum(medians, 1e-3))
    return x, np.array([np.median([task.relative_hypervolume(r[: int(c)]) for r in rows]) for c in x])


def parse_effort(text: str) -> tuple[str, Effort]:
    """Of `NAME=SEEDSxEVALS`."""
    name, _, numbers = text.partition("=")
    if name not in TABLE_SAMPLERS:
        raise click.BadParameter(f"{text!r} does not name one of {', '.join(TABLE_SAMPLERS)}")
    seeds, cross, evals = numbers.partition("x")
    if not (cross and seeds.isdigit() and evals.isdigit()):
        raise click.BadParameter(f"{text!r} is not NAME=SEEDSxEVALS")
    return name, Effort(int(seeds), int(evals))


def _effort(effort: Mapping[str, Effort]) -> str:
    parts = [f"{name} {one.seeds} x {one.evals}" for name, one in effort.items()]
    return f"Searches x evaluations per device and kind of search: {', '.join(parts)}; seeds count from 0."


def _section(device: Device, effort: Mapping[str, Effort]) -> str:
    lines = [f"### {device.title}", "", "```"]
    for one in dict.fromkeys(effort.values()):
        names = ",".join(name for name, other in effort.items() if other == one)
        lines.append(
            f"python -m experiments.tabular search --choices {CHOICES} --accuracy {ACCURACY} "
            f"--latency {device.latency} --evals {one.evals} --seeds {one.seeds} --samplers {names} --json"
        )
    lines += [
        "```",
        "",
        f"Limit {device.task.limit_ms:.4g} ms (the median), best accuracy within it {device.task.best_accuracy:.2f}.",
    ]
    counts = sorted({c for by_count in device.samplers.values() for c in by_count}, key=int)
    for figure, title, digits in (
        ("regret", "Regret under the limit, points of accuracy (lower is better)", 3),
        ("hypervolume", "Hypervolume of the front, part of the true front's (higher is better)", 3),
        ("violations", "Networks over the limit that were evaluated", 1),
        ("seconds_per_proposal", "CPU seconds per proposal, mean of the last twenty", 3),
    ):
        lines += ["", f"{title}:", "", f"| sampler | {' | '.join(f'after {c}' for c in counts)} |"]
        lines.append("|---" * (len(counts) + 1) + "|")
        for name, by_count in device.samplers.items():
            cells = [f"{by_count[c][figure]:.{digits}f}" if c in by_count else "-" for c in counts]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _verdicts(devices: Sequence[Device]) -> str:
    lines = ["### Bars", "", "| device | bar | ours | to compare | met |", "|---|---|---|---|---|"]
    for device in devices:
        regret_100, regret_50 = _figure(device, OURS, "100", "regret"), _figure(device, OURS, "50", "regret")
        front = _figure(device, OURS, "100", "hypervolume")
        others = [name for name in device.samplers if name != OURS]
        best = float(np.fmin.reduce([_figure(device, name, "100", "regret") for name in others]))
        both = min(_figure(device, name, "100", "regret") for name in ("tpe", "nsga2"))
        widest = float(np.fmax.reduce([_figure(device, name, "200", "hypervolume") for name in others]))
        seconds = device.seconds_per_proposal
        for bar, value, other, met in (
            ("regret at 100 <= the best other's at 100", regret_100, best, regret_100 <= best),
            ("regret at 50 < TPE's and NSGA-II's at 100", regret_50, both, regret_50 < both),
            ("hypervolume at 100 >= the best other's at 200", front, widest, front >= widest),
            (
                f"CPU seconds per proposal at {device.timed_evals} trials (one search of each kind) < 2",
                seconds,
                2.0,
                seconds < 2,
            ),
        ):
            lines.append(f"| {device.title} | {bar} | {value:.3f} | {other:.3f} | {'yes' if met else '**no**'} |")
    return "\n".join(lines)


def _figure(device: Device, sampler: str, count: str, figure: str) -> float:
    """NaN where the searches were not that long."""
    return device.samplers[sampler].get(count, {}).get(figure, float("nan"))


def _front_mean(devices: Sequence[Device]) -> str:
    """Hypervolume over the devices, beside the figures of the same kind from elsewhere."""
    lines = ["### Hypervolume, mean over the devices", "", "| sampler | after 100 | after 200 |", "|---|---|---|"]
    for name in devices[0].samplers:
        cells = []
        for count in ("100", "200"):
            known = [d.samplers[name][count]["hypervolume"] for d in devices if count in d.samplers[name]]
            cells.append(f"{np.mean(known):.3f}" if len(known) == len(devices) else "-")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
