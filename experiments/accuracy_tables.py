"""Judges the accuracy predictor on all public tables and writes the figures into a page.

`python -m experiments.accuracy_tables --data DIR --out docs/accuracy-tables.md` measures every table, size and seed
once and replaces the page's section "Results". Each split is kept in a file of its own under `--checkpoints`, so the
command may be stopped (or limited with `--minutes`) and repeated until all is measured. Files belong to one version of
the predictor: after a change of its code everything is measured again.
"""

import hashlib
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import numpy as np

from experiments.tabular.commands.accuracy import Scores, SplitResult, Table, judge_split, load_table

_PREDICTOR_MODULES = (
    *(f"predictors.{name}" for name in ("accuracy", "accuracy_features", "additive_gp", "ensembles", "target_scale")),
    "experiments.tabular.cells",
    "experiments.tabular.views",
)
_KENDALL_COLUMNS = (
    "table", "n", "splits", "predictor", "must", "aim", "reached",
    "parameters", "MACs", "one-hot GP", "boosting", "best extra",
)  # fmt: skip
_OTHER_COLUMNS = (
    "table", "n", "Spearman", "top 1 % hit", "top 1 % overlap", "regret", "90 % coverage", "fit, core-s",
    "candidates per core-s",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bar:
    """Kendall tau that must be, and that should be reached."""

    must: float
    aim: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Benchmark:
    """One table; columns as `experiments.tabular accuracy` takes them, `B/` standing for the data folder."""

    key: str
    name: str
    space: str
    choices: str
    y: str
    extra: str | None = None
    bars: Mapping[int, Bar]
    """Labelled networks -> bar."""

    def load(self, data: Path) -> Table:
        """The aligned columns."""
        return load_table(
            _at(data, self.choices), _at(data, self.y), _at(data, self.extra) if self.extra else None, None
        )

    def command(self, seeds: int) -> str:
        """What prints the figures of one row, `N` standing for the labelled networks."""
        extra = f" --extra {self.extra}" if self.extra else ""
        return (
            f"python -m experiments.tabular accuracy --space {self.space} --choices {self.choices} --y {self.y}{extra} "
            f"--n N --seeds {seeds} --json"
        ).replace("B/", "$B/")


_NB201 = "B/nb201_archs.npz:ops"
_PROXIES = "B/nb201_zerocost_cifar10.npz"
BENCHMARKS = (
    Benchmark(
        key="nb201",
        name="NAS-Bench-201 CIFAR-10, structure only",
        space="nb201",
        choices=_NB201,
        y="B/nb201_acc_cifar10.npz:acc200_test",
        bars={50: Bar(0.62, 0.68), 100: Bar(0.70, 0.75), 200: Bar(0.76, 0.80), 400: Bar(0.80, 0.83)},
    ),
    Benchmark(
        key="nb201-proxies",
        name="NAS-Bench-201 CIFAR-10 with 13 proxies",
        space="nb201",
        choices=f"{_PROXIES}:ops",
        y=f"{_PROXIES}:val_acc",
        extra=f"{_PROXIES}:prox",
        bars={32: Bar(0.755, 0.79), 128: Bar(0.815, 0.84), 467: Bar(0.85, 0.87)},
    ),
    Benchmark(
        key="nb201-epochs",
        name="NAS-Bench-201 CIFAR-10 with 12-epoch accuracy",
        space="nb201",
        choices=_NB201,
        y="B/nb201_acc_cifar10.npz:acc200_test",
        extra="B/nb201_acc_cifar10.npz:acc12_val",
        bars={100: Bar(0.72, 0.80)},
    ),
    Benchmark(
        key="nbmacro",
        name="NAS-Bench-Macro CIFAR-10",
        space="nbmacro",
        choices="B/nbmacro_cifar10.npz:ops",
        y="B/nbmacro_cifar10.npz:acc",
        bars={50: Bar(0.86, 0.88), 100: Bar(0.89, 0.90)},
    ),
    Benchmark(
        key="anb",
        name="Accel-NASBench ImageNet",
        space="anb",
        choices="B/anb_imagenet.npz:X",
        y="B/anb_imagenet.npz:acc",
        bars={50: Bar(0.73, 0.78), 100: Bar(0.79, 0.82), 200: Bar(0.82, 0.85)},
    ),
)


@click.command()
@click.option("--data", type=click.Path(exists=True, file_okay=False, path_type=Path), required=True)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True)
@click.option("--checkpoints", type=click.Path(file_okay=False, path_type=Path), default=Path("runs/accuracy-tables"))
@click.option("--seeds", type=click.IntRange(min=1), default=10, show_default=True, help="Random splits per size.")
@click.option("--minutes", type=float, help="Stop measuring after so long; the same command goes on.")
def main(data: Path, out: Path, checkpoints: Path, seeds: int, minutes: float | None) -> None:
    """Measure what is missing and write the section "Results" of OUT from all that is there."""
    end = np.inf if minutes is None else time.monotonic() + 60 * minutes
    folder = checkpoints / predictor_digest()
    missing = 0
    for seed in range(seeds):  # seed by seed, so that an early stop has a little of everything
        for benchmark in BENCHMARKS:
            table: Table | None = None
            for n in benchmark.bars:
                file = folder / f"{benchmark.key}-{n}-{seed}.json"
                if file.exists():
                    continue
                if time.monotonic() >= end:
                    missing += 1
                    continue
                table = table or benchmark.load(data)
                _write(file, json.dumps(asdict(judge_split(table, benchmark.space, n, seed))))
                click.echo(f"{benchmark.key} n={n} seed={seed}", err=True)
    if missing:
        click.echo(f"{missing} splits are still missing: repeat the command", err=True)
    page = out.read_text(encoding="utf-8") if out.exists() else "# Learned accuracy prediction on public tables\n"
    _write(out, with_section(page, "Results", results_section(folder, seeds)))


def predictor_digest() -> str:
    """Name of the predictor's version: a digest of the files that its figures depend on."""
    digest = hashlib.sha256()
    for name in _PREDICTOR_MODULES:
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        digest.update(Path(spec.origin).read_bytes())
    return digest.hexdigest()[:12]


def load_splits(folder: Path, benchmark: Benchmark, n: int, seeds: int) -> list[SplitResult]:
    """The splits of one row of the page that were measured."""
    found = []
    for seed in range(seeds):
        file = folder / f"{benchmark.key}-{n}-{seed}.json"
        if file.exists():
            document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            document["predictor"] = Scores(**document["predictor"])
            document["baselines"] = {name: Scores(**one) for name, one in document["baselines"].items()}
            found.append(SplitResult(**document))
    return found


def results_section(folder: Path, seeds: int) -> str:
    """Markdown: Kendall taus beside the baselines' and the bars, then the other scores and the price."""
    measured = [
        (benchmark, n, bar, splits)
        for benchmark in BENCHMARKS
        for n, bar in benchmark.bars.items()
        if (splits := load_splits(folder, benchmark, n, seeds))
    ]
    lines = [
        "Made by `python -m experiments.accuracy_tables`. Means over the report splits, seeds 0 and up; tested on all "
        "other networks, at most 5,000 of them.",
        "",
        "Kendall tau, in brackets its standard deviation over the splits:",
        "",
        f"| {' | '.join(_KENDALL_COLUMNS)} |",
        "|---" * len(_KENDALL_COLUMNS) + "|",
    ]
    lines += [_kendall_row(*row) for row in measured]
    lines += [
        "",
        "MACs are `flops` where the table has that column, and for NAS-Bench-201 they rank as the parameters do. The "
        "GP and the histogram boosting get one-hot operations or ids, and the extra columns where there are any.",
        "",
        f"| {' | '.join(_OTHER_COLUMNS)} |",
        "|---" * len(_OTHER_COLUMNS) + "|",
    ]
    lines += [_other_row(benchmark, n, splits) for benchmark, n, _, splits in measured]
    lines += ["", "Commands, with `B` the folder of the tables and `N` the labelled networks:", "```"]
    lines += [benchmark.command(seeds) for benchmark in dict.fromkeys(benchmark for benchmark, *_ in measured)]
    return "\n".join([*lines, "```"])


def with_section(page: str, title: str, text: str) -> str:
    """The page with the text of its section `## title` replaced, or appended where it has none."""
    section = f"## {title}\n{text}\n"
    found = re.search(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    if found is None:
        return f"{page.rstrip()}\n\n{section}"
    tail = page[found.end() :]
    return page[: found.start()] + section + (f"\n{tail}" if tail else "")


def _kendall_row(benchmark: Benchmark, n: int, bar: Bar, splits: Sequence[SplitResult]) -> str:
    taus = [split.predictor.kendall for split in splits]
    reached = float(np.mean(taus))
    verdict = "aim" if reached >= bar.aim else "must" if reached >= bar.must else "**missed**"
    cells = [benchmark.name, str(n), str(len(splits)), f"{reached:.3f} ({np.std(taus):.3f})"]
    cells += [f"{bar.must:.3f}", f"{bar.aim:.3f}", verdict]
    for names in (
        ("params", "params (= macs)"),
        ("macs", "flops", "params (= macs)"),
        ("gp on one-hot ranks",),
        ("histogram boosting",),
        ("best extra column alone",),
    ):
        known = [name for name in names if name in splits[0].baselines]
        cells.append(f"{np.mean([s.baselines[known[0]].kendall for s in splits]):.3f}" if known else "-")
    return f"| {' | '.join(cells)} |"


def _other_row(benchmark: Benchmark, n: int, splits: Sequence[SplitResult]) -> str:
    own = [split.predictor for split in splits]
    names = ("spearman", "top1pct_hit", "top1pct_overlap", "regret_of_best", "coverage_90")
    cells = [benchmark.name, str(n), *(f"{np.mean([getattr(one, name) for one in own]):.3f}" for name in names)]
    cells.append(f"{np.mean([split.fit_cpu_s for split in splits]):.1f}")
    cells.append(f"{np.median([split.candidates_per_cpu_s for split in splits]):,.0f}")
    return f"| {' | '.join(cells)} |"


def _at(data: Path, spec: str) -> str:
    return spec.replace("B/", f"{data}/")


def _write(path: Path, text: str) -> None:
    """Whole or not at all: a checkpoint half written would count as measured."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.part")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


if __name__ == "__main__":
    main()
