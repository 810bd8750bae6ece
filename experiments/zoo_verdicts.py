"""Winners of searches beside well-known networks: the table of results, and whether the bars are reached. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from nas.text import milliseconds

BIG = "resnet50"
BIG_THROUGHPUT_MUST, BIG_THROUGHPUT_AIM = 6.0, 10.0
BIG_ACCURACY = 0.01
"""A winner has to be so much more accurate than the big network."""
THROUGHPUT_MUST, THROUGHPUT_AIM = 1.5, 2.0
LEVEL = 0.005
"""A curve whose last tenth of the epochs gained less on the tenth before has levelled off."""

_COLUMNS = (
    "network", "deployment", "px", "accuracy %", "seeds", "p50 ms", "images/s", "params M", "train loss", "last gain",
    "levelled",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One network in its best deployment, over all seeds."""

    name: str
    winner: bool
    deployment: str
    """Runtime and precision."""
    resolution: int
    accuracies: tuple[float, ...]
    """Fractions of the test split in the runtime, one per seed."""
    p50_ms: float
    images_per_s: float
    """Best of one call at a time and of several streams."""
    disturbed: bool
    last_gain: float
    """Validation accuracy (fraction): last tenth of the epochs less the tenth before, mean over the seeds."""
    train_loss: float
    """Mean of the last epoch, mean over the seeds."""
    params: int

    @property
    def accuracy(self) -> float:
        return fmean(self.accuracies)

    @property
    def std(self) -> float:
        """Over the seeds; 0 for one."""
        return stdev(self.accuracies) if len(self.accuracies) > 1 else 0.0

    @property
    def spread(self) -> float:
        """Best less worst seed: what a difference has to exceed."""
        return max(self.accuracies) - min(self.accuracies)

    @property
    def levelled(self) -> bool:
        return self.last_gain < LEVEL


def last_gain(accuracies: Sequence[float]) -> float:
    """Mean accuracy of the last tenth of the epochs (at least one) less that of as many epochs before.

    Infinite for a single epoch: nothing is known. A learning rate that falls to zero flattens every curve in the end:
    a curve that still rises is too short, but a flat one may still be.
    """
    tenth = max(1, len(accuracies) // 10)
    if len(accuracies) < 2 * tenth:
        return float("inf")
    return fmean(accuracies[-tenth:]) - fmean(accuracies[-2 * tenth : -tenth])


def results_table(rows: Iterable[Row]) -> str:
    """Markdown, fastest first."""
    lines = [f"| {' | '.join(_COLUMNS)} |", "|---" * len(_COLUMNS) + "|"]
    for row in sorted(rows, key=lambda r: r.p50_ms):
        name = f"**{row.name}**" if row.winner else row.name
        mark = " (disturbed)" if row.disturbed else ""
        cells = (
            name,
            row.deployment,
            str(row.resolution),
            f"{100 * row.accuracy:.1f} ± {100 * row.std:.1f}",
            str(len(row.accuracies)),
            f"{milliseconds(row.p50_ms)}{mark}",
            f"{row.images_per_s:.0f}",
            f"{row.params / 1e6:.2f}",
            f"{row.train_loss:.2f}",
            f"{100 * row.last_gain:+.1f}",
            "yes" if row.levelled else "no",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def verdicts(rows: Sequence[Row]) -> str:
    """Markdown: every bar, for every pair it speaks of."""
    winners, baselines = [r for r in rows if r.winner], [r for r in rows if not r.winner]
    parts = [*_against_big(winners, baselines), *_against_faster(winners, baselines)]
    parts += _against_best(winners, baselines)
    return "\n".join(parts)


def _against_big(winners: Sequence[Row], baselines: Sequence[Row]) -> list[str]:
    big = next((row for row in baselines if row.name == BIG), None)
    head = [
        f"**Against {BIG}**: at least {BIG_THROUGHPUT_MUST:g} x its throughput (aim {BIG_THROUGHPUT_AIM:g} x) at its "
        f"accuracy + {100 * BIG_ACCURACY:g} point.",
        "",
    ]
    if big is None or not winners:
        return [*head, f"Not judged: {BIG} or a winner is missing.", ""]
    lines = []
    for winner in winners:
        ratio, gain = winner.images_per_s / big.images_per_s, winner.accuracy - big.accuracy
        reached = ratio >= BIG_THROUGHPUT_MUST and gain >= BIG_ACCURACY
        lines.append(
            f"- {winner.name}: {ratio:.1f} x, {100 * gain:+.1f} points: "
            f"{_word(reached, aim=ratio >= BIG_THROUGHPUT_AIM)}{_unripe(winner, big)}"
        )
    return [*head, *lines, ""]


def _against_faster(winners: Sequence[Row], baselines: Sequence[Row]) -> list[str]:
    lines = [
        "**Against every baseline of equal or lower latency**: more accurate, by more than the spread over the seeds "
        "(best less worst, of the two the larger).",
        "",
    ]
    for winner in winners:
        faster = [row for row in baselines if row.p50_ms <= winner.p50_ms]
        if not faster:
            lines.append(f"- {winner.name}: no baseline is as fast")
        for row in sorted(faster, key=lambda r: -r.accuracy):
            gain, spread = winner.accuracy - row.accuracy, max(winner.spread, row.spread)
            seeds = min(len(winner.accuracies), len(row.accuracies))
            verdict = f"{seeds} seeds: {_word(gain > spread)}" if seeds > 1 else "not judged: one seed"
            lines.append(
                f"- {winner.name} against {row.name}: {100 * gain:+.1f} points, spread {100 * spread:.1f}, "
                f"{verdict}{_unripe(winner, row)}"
            )
    return [*lines, ""]


def _against_best(winners: Sequence[Row], baselines: Sequence[Row]) -> list[str]:
    lines = [
        f"**Against the most accurate baselines**: a winner of equal or higher accuracy has at least "
        f"{THROUGHPUT_MUST:g} x the throughput (aim {THROUGHPUT_AIM:g} x). The first line is the bar.",
        "",
    ]
    for row in sorted(baselines, key=lambda r: -r.accuracy):
        able = [winner for winner in winners if winner.accuracy >= row.accuracy]
        where = f"- {row.name} ({100 * row.accuracy:.1f} %)"
        if not able:
            lines.append(f"{where}: **missed**, no winner is as accurate")
            continue
        winner = max(able, key=lambda w: w.images_per_s)
        ratio = winner.images_per_s / row.images_per_s
        verdict = _word(ratio >= THROUGHPUT_MUST, aim=ratio >= THROUGHPUT_AIM)
        lines.append(f"{where}: {winner.name} {ratio:.2f} x: {verdict}{_unripe(winner, row)}")
    return [*lines, ""]


def _word(reached: bool, *, aim: bool = False) -> str:
    return "**missed**" if not reached else "aim" if aim else "reached"


def _unripe(*rows: Row) -> str:
    """A pair says little where one of its curves still rises."""
    rising = [row.name for row in rows if not row.levelled]
    return f" (still rising: {', '.join(rising)})" if rising else ""
