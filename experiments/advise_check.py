"""How far advice can be trusted: sums of blocks, predicted savings against applied ones, and the best changes.

`python -m experiments.advise_check sums --out sums.json` times the blocks of well-known and random networks in every
deployment of this machine: the sum of the blocks over an undisturbed call, and what belongs to no block. Another
`--minutes` sets how long it may take. With `--earlier sums.json`, of another hour, it also tells how alike the order of
the blocks is. `python -m experiments.advise_check changes --out changes.json` takes random networks, the best three
changes of each and three random ones that remove as many MACs, builds and measures all of them beside the original, and
compares what they save with what was predicted. Ask for it on a quiet machine: both together take a quarter of an hour.
"""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import numpy as np

from nas.advice.advise import judged
from nas.advice.applying import applied
from nas.advice.subject import described, read_subject
from nas.advice.timing import timed
from nas.advice.what_if import WhatIf, best, model_for, what_ifs
from nas.bench.bench import chosen_deployments
from nas.bench.preparing import ModelFiles
from nas.deployment import Deployment
from nas.errors import UserError
from nas.files.writing import write_json
from nas.measure.host import fingerprint, threads_here
from nas.targets.registry import load_target
from search_spaces import Architecture, load_search_space, space_of

ZOO = (
    "torchvision:resnet18", "torchvision:mobilenet_v3_small", "torchvision:mobilenet_v2", "torchvision:efficientnet_b0",
    "torchvision:regnet_y_400mf", "torchvision:shufflenet_v2_x1_0", "torchvision:squeezenet1_1",
    "torchvision:convnext_tiny", "timm:mobilenetv4_conv_small", "timm:ghostnet_100",
)  # fmt: skip
SPACES = ("mixed", "mobile", "dense")
SIDE = 128
SIZE = (10,)
SUM_LOW, SUM_HIGH, UNASSIGNED = 0.9, 1.2, 0.05
"""Where the sum of the blocks over an undisturbed call is right, and the most that may belong to none."""
BEST = 3
"""Changes of each network that are applied, and as many random ones."""
SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """One network in one deployment."""

    network: str
    deployment: str
    sum_over_p50: float
    """With what a call takes beside its operators."""
    blocks_over_p50: float
    """Without that."""
    unassigned_share: float
    disturbed: bool
    block_ms: dict[str, float]

    @property
    def is_right(self) -> bool:
        return SUM_LOW <= self.sum_over_p50 <= SUM_HIGH and self.unassigned_share <= UNASSIGNED


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change that was applied."""

    network: str
    change: str
    is_best: bool
    d_macs: int
    predicted_ms: float
    low_ms: float
    high_ms: float
    measured_ms: float
    before_ms: float


def random_architectures(count: int, seed: int, spaces: Sequence[str] = SPACES) -> Iterator[Architecture]:
    """Of all spaces in turn, at one resolution."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        space = load_search_space(spaces[number % len(spaces)]).restrict("resolution", [SIDE])
        yield space.architecture(space.sample(1, rng)[0])


def sums_of(reference: str, deployments: Sequence[Deployment], sessions: int, folder: Path) -> list[Sum]:
    """Raises `UserError` for what cannot be exported or told apart."""
    subject = read_subject(reference, SIDE, folder)
    files = ModelFiles(subject.model, folder / "files")
    graph, parts = described(subject, files, 1)
    measured = [t for t in timed(files, deployments, sessions) if t.failed is None]
    return [
        Sum(
            network=Path(reference).name,
            deployment=advised.timed.deployment.name,
            sum_over_p50=advised.table.sum_over_p50,
            blocks_over_p50=advised.table.blocks_ms / advised.table.p50_ms,
            unassigned_share=advised.table.unassigned_ms / advised.table.p50_ms,
            disturbed=advised.timed.disturbed,
            block_ms={row.name: row.ms for row in advised.table.rows},
        )
        for advised in judged(measured, graph, parts, folder)
    ]


def changes_of(arch: Architecture, deployment: Deployment, rng: np.random.Generator, sessions: int) -> list[Change]:
    """The best changes of a network, and random ones of about equal MACs, predicted and measured."""
    space, target = space_of(arch), load_target("local", deployment.threads)
    found = what_ifs(model_for(target, deployment), space, arch, SIZE)
    first = best(found, BEST)
    others = list[WhatIf]()
    for change in first:
        left = [c for c in found if c not in first and c not in others]
        others += [_of_equal_macs(change, left, rng)] if left else []
    with TemporaryDirectory(prefix="nas-advise-check-") as folder:
        tried = applied(arch, [*first, *others], deployment, SIZE, Path(folder), sessions)
    predicted_ms = float(model_for(target, deployment).predict(space, space.choices([arch]), SIZE)[deployment].mean[0])
    scale = tried.before_ms / predicted_ms
    return [
        Change(
            network=arch.key,
            change=f"{what_if.block} {what_if.change}",
            is_best=place < len(first),
            d_macs=what_if.d_macs,
            predicted_ms=scale * what_if.saves_ms,
            low_ms=scale * what_if.interval[0],
            high_ms=scale * what_if.interval[1],
            measured_ms=what_if.measured_ms,
            before_ms=tried.before_ms,
        )
        for place, what_if in enumerate(tried.changes)
        if what_if.measured_ms is not None
    ]


def _of_equal_macs(change: WhatIf, others: Sequence[WhatIf], rng: np.random.Generator) -> WhatIf:
    """One of the three others that are the nearest in MACs."""
    nearest = sorted(others, key=lambda other: abs(other.d_macs - change.d_macs))[:BEST]
    return nearest[int(rng.integers(len(nearest)))]


def sums_text(found: Sequence[Sum], earlier: Sequence[Sum] = ()) -> str:
    """The table by deployment."""
    lines = [
        "| deployment | networks | right | median sum / p50 | lowest | highest | blocks alone: right, median "
        "| most unassigned | disturbed |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(s.deployment for s in found):
        own = [s for s in found if s.deployment == name]
        ratios, alone = [s.sum_over_p50 for s in own], [s.blocks_over_p50 for s in own]
        lines.append(
            f"| {name} | {len(own)} | {sum(s.is_right for s in own)} | {np.median(ratios):.2f} | {min(ratios):.2f} "
            f"| {max(ratios):.2f} | {sum(SUM_LOW <= r <= SUM_HIGH for r in alone)}, {np.median(alone):.2f} "
            f"| {max(s.unassigned_share for s in own):.1%} | {sum(s.disturbed for s in own)} |"
        )
    known = {(s.network, s.deployment): s for s in earlier}
    both = [(s, known[s.network, s.deployment]) for s in found if (s.network, s.deployment) in known]
    if both:
        alike = [rank_correlation(a, b) for a, b in both]
        lines.append(f"\nOrder of the blocks then and now: rank correlation {np.median(alike):.3f} in the median, ")
        lines[-1] += (
            f"{min(alike):.3f} at least, {np.mean(np.array(alike) >= 0.95):.0%} at 0.95 or above ({len(alike)})"
        )
    return "\n".join(lines)


def rank_correlation(a: Sum, b: Sum) -> float:
    """Spearman's, of the times of the same blocks."""
    from scipy.stats import spearmanr

    names = list(a.block_ms)
    return float(spearmanr([a.block_ms[n] for n in names], [b.block_ms.get(n, 0.0) for n in names]).statistic)


def changes_text(found: Sequence[Change]) -> str:
    """What was predicted against what was measured, and the best against random changes."""
    signs = [(c.predicted_ms > 0) == (c.measured_ms > 0) for c in found]
    errors = [abs(c.predicted_ms - c.measured_ms) / abs(c.measured_ms) for c in found if c.measured_ms]
    covered = [c.low_ms <= c.measured_ms <= c.high_ms for c in found]
    wins = []
    for network in dict.fromkeys(c.network for c in found):
        own = [c for c in found if c.network == network]
        sums = [sum(c.measured_ms for c in own if c.is_best is which) for which in (True, False)]
        wins.append(sums[0] > sums[1])
    return "\n".join(
        [
            f"{len(found)} changes of {len(wins)} networks applied and measured:",
            f"- sign right: {np.mean(signs):.0%}",
            f"- median error of the saving: {np.median(errors):.0%}",
            f"- within the 90 % interval: {np.mean(covered):.0%}",
            f"- the best {BEST} save more than {BEST} random changes of equal MACs: {sum(wins)} of {len(wins)}",
        ]
    )


@click.group()
def main() -> None:
    """How far advice can be trusted."""


@main.command()
@click.option("--minutes", type=float, default=5.0, show_default=True, help="Stop after the network of this minute.")
@click.option("--random", "count", type=int, default=50, show_default=True, help="Random networks behind the zoo.")
@click.option("--sessions", type=int, default=1, show_default=True, help="Fresh sessions of each.")
@click.option("--threads", type=int, help="Threads of a network.  [default: all]")
@click.option("--earlier", type=click.Path(path_type=Path, exists=True), help="What another hour found.")
@click.option("--out", type=click.Path(path_type=Path), help="Write all figures here.")
def sums(
    minutes: float, count: int, sessions: int, threads: int | None, earlier: Path | None, out: Path | None
) -> None:
    """Sum of blocks over undisturbed calls; well-known and random networks in turns."""
    deployments = chosen_deployments(threads_here(threads), None, None)
    deadline = time.monotonic() + 60 * minutes
    found = list[Sum]()
    with TemporaryDirectory(prefix="nas-advise-check-") as place:
        for number, reference in enumerate(_references(count, Path(place))):
            if time.monotonic() > deadline:
                click.echo(f"time is up after {number} networks", err=True)
                break
            folder = Path(place) / str(number)
            folder.mkdir()
            try:
                found += sums_of(reference, deployments, sessions, folder)
            except UserError as error:
                click.echo(f"{reference}: {error}", err=True)
            click.echo(f"{reference}: {len(found)} sums", err=True)
    then = [Sum(**entry) for entry in json.loads(earlier.read_text())["sums"]] if earlier else []
    click.echo(sums_text(found, then))
    _write(out, {"sums": [_fields(entry) for entry in found]})


@main.command()
@click.option("--minutes", type=float, default=8.0, show_default=True, help="Stop after the network of this minute.")
@click.option("--networks", type=int, default=10, show_default=True, help="Random networks.")
@click.option("--runtime", default="openvino", show_default=True, help="Runtime to measure in.")
@click.option("--precision", default="fp32", show_default=True, help="Precision to measure in.")
@click.option("--sessions", type=int, default=5, show_default=True, help="Fresh sessions of each.")
@click.option("--threads", type=int, help="Threads of a network.  [default: all]")
@click.option("--out", type=click.Path(path_type=Path), help="Write all figures here.")
def changes(
    minutes: float, networks: int, runtime: str, precision: str, sessions: int, threads: int | None, out: Path | None
) -> None:
    """Predicted savings against measured ones."""
    (deployment,) = chosen_deployments(threads_here(threads), [runtime], [precision])
    deadline, rng = time.monotonic() + 60 * minutes, np.random.default_rng(SEED)
    found = list[Change]()
    for number, arch in enumerate(random_architectures(networks, SEED + 1)):
        if time.monotonic() > deadline:
            click.echo(f"time is up after {number} networks", err=True)
            break
        found += changes_of(arch, deployment, rng, sessions)
        click.echo(f"{arch.key}: {len(found)} changes", err=True)
    click.echo(changes_text(found))
    _write(out, {"deployment": deployment.name, "changes": [_fields(entry) for entry in found]})


def _references(count: int, folder: Path) -> Iterator[str]:
    """Well-known and random networks in turns, as `read_subject` takes them."""
    zoo = iter(ZOO)
    for number, arch in enumerate(random_architectures(count, SEED)):
        yield from [name for name in [next(zoo, None)] if name is not None]
        path = folder / f"random{number}.json"
        write_json(path, space_of(arch).to_json(arch))
        yield str(path)


def _fields(entry: Sum | Change) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in type(entry).__slots__}


def _write(out: Path | None, document: dict[str, Any]) -> None:
    if out is not None:
        write_json(out, {"fingerprint": fingerprint().to_json(), **document})


if __name__ == "__main__":
    main()
