"""Checks the zero-cost proxies against scores published for the same networks.

`python -m experiments.zero_cost_check --data DIR --images FOLDER --out docs/accuracy-zero-cost.md` builds random cells
of NAS-Bench-201, scores them at initialisation on a batch of CIFAR-10 and correlates the scores with the table
`nb201_zerocost_cifar10.npz` of NAS-Bench-Suite-Zero (Krishnakumar et al. 2022, https://arxiv.org/abs/2210.03230; 13
proxies, 9,445 networks, PyTorch's initialisation, batches of 64). FOLDER holds CIFAR-10 as `experiments.datasets`
describes it. Some networks are scored twice, with another initialisation and batch: how far a proxy agrees with itself
bounds how far it can agree with anybody. Scores are kept in a file, so the command may be stopped and repeated.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from experiments.datasets import read_mosaics
from experiments.proxies import ALL_PROXIES, rank_aggregate
from experiments.tabular.nb201 import Nb201Space
from nas.evaluation.zero_cost import zero_cost_scores

Floats = NDArray[np.float64]

PUBLISHED: Mapping[str, str] = {
    "params": "params",
    "macs": "flops",
    "grad_norm": "grad_norm",
    "snip": "snip",
    "synflow": "synflow",
    "jacob_cov": "jacov",
    "naswot": "nwot",
}
"""Our name -> column of the table; zico is not in it."""

AGGREGATED = ("macs", "synflow", "jacob_cov", "naswot", "zico")
"""What the rank aggregate sees: cost, and one score of each kind."""

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
_FAILED = -1e7  # the table writes -1e8 where a score does not exist


@dataclass(frozen=True, slots=True)
class Published:
    """Rows of the table, in random order."""

    row: NDArray[np.int64]
    ops: NDArray[np.int64]
    scores: dict[str, Floats]
    accuracy: Floats


@click.command()
@click.option("--data", type=click.Path(exists=True, file_okay=False, path_type=Path), required=True)
@click.option("--images", type=click.Path(exists=True, file_okay=False, path_type=Path), required=True)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True)
@click.option("--scores", type=click.Path(dir_okay=False, path_type=Path), default=Path("runs/zero-cost-check.jsonl"))
@click.option("--networks", type=click.IntRange(min=10), default=150, show_default=True)
@click.option("--twice", type=click.IntRange(min=2), default=40, show_default=True, help="Networks scored twice.")
@click.option("--batch", type=click.IntRange(min=4), default=64, show_default=True, help="Images per batch.")
@click.option("--seed", default=0, show_default=True, help="Of the networks, the batches and the initialisations.")
@click.option("--minutes", type=float, help="Stop scoring after so long; the same command goes on.")
def main(
    data: Path,
    images: Path,
    out: Path,
    scores: Path,
    networks: int,
    twice: int,
    batch: int,
    seed: int,
    minutes: float | None,
) -> None:
    """Score what is missing and write the page OUT from all scores that are there."""
    end = np.inf if minutes is None else time.monotonic() + 60 * minutes
    table = load_published(data / "nb201_zerocost_cifar10.npz", networks, seed)
    scores.parent.mkdir(parents=True, exist_ok=True)
    known = _read(scores)
    batches = [cifar10_batch(images, batch, seed + repeat) for repeat in (0, 1)]
    wanted = [(at, 0) for at in range(networks)] + [(at, 1) for at in range(min(twice, networks))]
    scored: list[dict[int, list[float]]] = [{}, {}]
    for at, repeat in wanted:
        key = f"{table.row[at]}/{batch}/{seed}/{repeat}"
        if key not in known:
            if time.monotonic() >= end:
                continue
            known[key] = _scored(table.ops[at].tolist(), *batches[repeat], seed=seed + 1000 * repeat)
            with scores.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, **known[key]}) + "\n")
        scored[repeat][at] = known[key]["scores"]
    click.echo(f"{len(scored[0])} + {len(scored[1])} of {len(wanted)} scores are there", err=True)
    if len(scored[0]) < 3 or len(scored[1]) < 3:
        click.echo("too few networks are scored for a page: repeat the command", err=True)
        return
    seconds = np.median([known[f"{table.row[at]}/{batch}/{seed}/0"]["cpu_s"] for at in scored[0]], axis=0)
    out.write_text(page(table, scored, seconds, batch), encoding="utf-8")


def load_published(file: Path, networks: int, seed: int) -> Published:
    """`networks` random rows of the table."""
    with np.load(file, allow_pickle=False) as archive:
        rows = np.random.default_rng(seed).permutation(len(archive["ops"]))[:networks]
        columns = [str(name) for name in archive["prox_names"]]
        proxies = archive["prox"][rows].astype(np.float64)
        found = {ours: proxies[:, columns.index(theirs)] for ours, theirs in PUBLISHED.items()}
        return Published(
            rows, archive["ops"][rows].astype(np.int64), found, archive["val_acc"][rows].astype(np.float64)
        )


def cifar10_batch(folder: Path, size: int, seed: int) -> tuple[Tensor, Tensor]:
    """`size` random training images, normalised `(size, 3, 32, 32)` float32, and their labels `(size,)` int64."""
    with np.load(folder / "labels.npz", allow_pickle=False) as archive:
        labels = archive["train"][:1000].astype(np.int64)
    pixels = read_mosaics(sorted(folder.glob("train-*.webp"))[:1])
    rows = np.random.default_rng(seed).permutation(len(pixels))[:size]
    scaled = ((pixels[rows] / 255.0 - np.array(MEAN)) / np.array(STD)).astype(np.float32)
    return torch.from_numpy(scaled.transpose(0, 3, 1, 2).copy()), torch.from_numpy(labels[rows])


def spearman(a: Floats, b: Floats) -> float:
    """Rank correlation over the networks that have both; where a score does not exist it does not count."""
    from scipy.stats import spearmanr

    both = np.isfinite(a) & np.isfinite(b) & (a > _FAILED) & (b > _FAILED)
    return float(spearmanr(a[both], b[both]).statistic)


def page(table: Published, scored: Sequence[Mapping[int, list[float]]], seconds: Floats, batch: int) -> str:
    """Markdown with the agreement of every proxy with the table, with itself, and of both with accuracy.

    `scored` maps networks (positions in the table) to their scores in the order of `ALL_PROXIES`, once per repeat.
    """
    done, again = sorted(scored[0]), sorted(scored[1])
    first = np.array([scored[0][at] for at in done], dtype=np.float64)
    both = [np.array([scores[at] for at in again], dtype=np.float64) for scores in scored]
    accuracy = table.accuracy[done]
    lines = [
        "# Zero-cost proxies against published scores",
        "",
        "Made by `python -m experiments.zero_cost_check`: "
        f"{len(done)} random cells of NAS-Bench-201, built by the space `nb201` with PyTorch's initialisation and "
        f"scored on {batch} images of CIFAR-10, against the scores that NAS-Bench-Suite-Zero published for the same "
        f"cells. Spearman correlations; `itself` is the same proxy with another initialisation and batch ({len(again)} "
        "networks), which is as far as agreement can be expected to go; the next columns tell what each is worth: its "
        "correlation with the accuracy after 200 epochs.",
        "",
        "| proxy | with the table | with itself | ours with accuracy | table's with accuracy | core-s per network |",
        "|---|---|---|---|---|---|",
    ]
    for at, name in enumerate(ALL_PROXIES):
        theirs = table.scores[name][done] if name in table.scores else None
        cells = [
            "-" if theirs is None else f"{spearman(first[:, at], theirs):.3f}",
            f"{spearman(both[0][:, at], both[1][:, at]):.3f}",
            f"{spearman(first[:, at], accuracy):.3f}",
            "-" if theirs is None else f"{spearman(theirs, accuracy):.3f}",
            f"{seconds[at]:.2f}",
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    columns = [list(ALL_PROXIES).index(name) for name in AGGREGATED]
    itself = spearman(*(rank_aggregate(scores[:, columns]) for scores in both))
    worth = spearman(rank_aggregate(first[:, columns]), accuracy)
    published = table.scores["params"][done] * 1e6
    exact = int((np.abs(first[:, list(ALL_PROXIES).index("params")] - published) < 1.0).sum())
    lines += [
        f"| rank aggregate | - | {itself:.3f} | {worth:.3f} | - | - |",
        "",
        f"The rank aggregate is over {', '.join(AGGREGATED)}.",
        f"Parameters equal the published number, to the last one, in {exact} of {len(done)} networks. The published "
        "`flops` count batch norms too, ours only multiply-adds.",
    ]
    return "\n".join(lines) + "\n"


def _scored(ops: list[int], images: Tensor, labels: Tensor, seed: int) -> dict[str, list[float]]:
    space = Nb201Space()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = space.build(space.architecture(ops), size=(10,))
    scores, cpu_s = [], []
    for name in ALL_PROXIES:
        start = time.process_time()
        scores.append(float(zero_cost_scores(network, images, labels, [name], ALL_PROXIES)[0]))
        cpu_s.append(time.process_time() - start)
    return {"scores": scores, "cpu_s": cpu_s}


def _read(file: Path) -> dict[str, dict[str, list[float]]]:
    if not file.exists():
        return {}
    lines = file.read_text(encoding="utf-8").splitlines()
    return {record.pop("key"): record for record in map(json.loads, lines)}


if __name__ == "__main__":
    main()
