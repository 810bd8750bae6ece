"""Detectors side by side: which learning rate a network gets, the tables, and whether the bars are reached. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import Literal

from nas.text import milliseconds

Kind = Literal["searched", "random", "well-known"]
"""`random`: drawn from the space under the limit that the searched one was found under."""

FP32_MUST, INT8_MUST = 0.002, 0.01
"""Largest difference (fraction of mAP@50) between torch and a delivered file; bf16 may lose as much as int8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One deployment of one training."""

    name: str
    """Runtime and precision, and what is left in floating point."""
    precision: str
    torch: float
    """mAP@50 (fraction) of the validation images in torch, fp32."""
    runtime: float | None
    """The same in the runtime; None where the file could not be made or run."""
    p50_ms: float
    """NaN where it could not be measured."""
    chosen: bool
    reason: str
    """Why it is not the one to deliver."""

    @property
    def difference(self) -> float | None:
        return None if self.runtime is None else self.runtime - self.torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One network, over its seeds: an entry per seed in every tuple."""

    name: str
    kind: Kind
    resolution: int
    lr: float
    epochs: int
    params: int
    val: tuple[float, ...]
    """mAP@50 (fraction) of the delivered file in its runtime; likewise `test` and `test_strict` (mAP@50:95)."""
    test: tuple[float, ...]
    test_strict: tuple[float, ...]
    deployments: tuple[str, ...]
    p50_ms: tuple[float, ...]
    postprocess_ms: tuple[float, ...]
    disturbed: bool


def best_lr(accuracies: Mapping[float, Mapping[int, float]]) -> float:
    """The learning rate with the best mean accuracy over the seeds that all of them have.

    Args:
        accuracies: learning rate -> seed -> accuracy on the validation images. At least one rate.

    Raises:
        ValueError: the rates have no seed in common.
    """
    common = set.intersection(*(set(of_rate) for of_rate in accuracies.values()))
    if not common:
        raise ValueError("the learning rates have no seed in common")
    return max(accuracies, key=lambda lr: fmean(accuracies[lr][seed] for seed in common))


def results_table(rows: Iterable[Row]) -> str:
    """Markdown, fastest first."""
    heads = (
        "network", "deployment", "px", "p50 ms", "post ms", "val mAP@50", "test mAP@50", "test mAP@50:95", "seeds",
        "epochs", "rate", "params M",
    )  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in sorted(rows, key=lambda r: median(r.p50_ms)):
        cells = (
            f"**{row.name}**" if row.kind == "searched" else row.name,
            " / ".join(dict.fromkeys(row.deployments)),
            str(row.resolution),
            milliseconds(median(row.p50_ms)) + (" (disturbed)" if row.disturbed else ""),
            milliseconds(median(row.postprocess_ms)),
            *(_spread(values) for values in (row.val, row.test, row.test_strict)),
            str(len(row.test)),
            str(row.epochs),
            f"{row.lr:g}",
            f"{row.params / 1e6:.2f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def agreement_table(tried: Mapping[str, Sequence[Tried]]) -> str:
    """Markdown: of each network (its first seed), torch against every runtime and precision."""
    heads = ("network", "deployment", "torch", "runtime", "difference", "p50 ms", "delivered")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, of_network in tried.items():
        for t in of_network:
            runtime = "-" if t.runtime is None else _points(t.runtime)
            difference = "-" if t.difference is None else f"{100 * t.difference:+.2f}"
            verdict = "yes" if t.chosen else f"no: {t.reason}"
            cells = (name, t.name, _points(t.torch), runtime, difference, milliseconds(t.p50_ms), verdict)
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def verdicts(rows: Sequence[Row], tried: Mapping[str, Sequence[Tried]]) -> str:
    """Markdown: each bar, for every pair of networks or every deployment that it speaks of."""
    lines = ["**More accurate and faster** (than a random network: more accurate), on the test images:", ""]
    baselines = [row for row in rows if row.kind != "searched"]
    for row in rows:
        lines += [_duel(row, baseline) for baseline in baselines if row.kind == "searched"]
    if len(lines) == 2:
        lines.append("Not judged: a searched network or a baseline is missing.")
    return "\n".join([*lines, "", "**Torch and runtime agree**, on the validation images:", "", *_agreement(tried)])


def _duel(row: Row, baseline: Row) -> str:
    gain, speed = fmean(row.test) - fmean(baseline.test), median(row.p50_ms) / median(baseline.p50_ms)
    # A random network keeps the same limit: what counts is which one is more accurate under it.
    reached = "reached" if gain > 0 and (speed < 1 or baseline.kind == "random") else "**missed**"
    seeds = min(len(row.test), len(baseline.test))
    doubt = f"{seeds} seed{'s' if seeds > 1 else ''}"
    if row.epochs != baseline.epochs:
        doubt += f", {row.epochs} against {baseline.epochs} epochs"
    figures = f"{100 * gain:+.1f} points at {speed:.2f} x its latency"
    return f"- {row.name} against {baseline.name}: {figures}, {doubt}: {reached}"


def _agreement(tried: Mapping[str, Sequence[Tried]]) -> list[str]:
    lines = []
    for name, of_network in tried.items():
        exact = [abs(t.difference) for t in of_network if t.precision == "fp32" and t.difference is not None]
        if exact:
            lines.append(_within(f"{name}, fp32", max(exact), FP32_MUST))
        for t in of_network:
            if t.chosen and t.precision != "fp32" and t.difference is not None:
                lines.append(_within(f"{name}, {t.name} (delivered)", max(0.0, -t.difference), INT8_MUST))
        refused = [t.name for t in of_network if t.reason and t.difference is not None and t.difference < -INT8_MUST]
        if refused:
            lines.append(f"- {name}: not delivered since it loses more than 1 point: {', '.join(refused)}")
    return lines


def _within(what: str, difference: float, must: float) -> str:
    reached = "reached" if difference <= must else "**missed**"
    return f"- {what}: {100 * difference:.2f} points, at most {100 * must:g}: {reached}"


def _spread(values: Sequence[float]) -> str:
    std = f" ± {100 * stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * fmean(values):.1f}{std}"


def _points(fraction: float) -> str:
    return f"{100 * fraction:.2f}"
