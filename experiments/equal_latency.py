"""Winners of searches beside random networks of the same space that are as fast: the same recipe, the same time.

`python -m experiments.equal_latency RUN... --out FOLDER` takes the winner of each run, with its data, space and
options. Of many random networks of that space it takes one whose median latency, measured beside the winner's in its
deployment, is within 10 % of it, or the next slower one where chance finds none so fast, and trains that with the
recipe of the winner's full training, for as many seconds. What was finished is kept: the same command goes on. It
prints the test figures of the delivered files and the mean difference.

So it tells what a search finds that chance does not, where both have learnt for as long. The time that the search took
beside its final training is not given to the random network.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from nas.controller.runs.records import deployed_network, figures_on_test, trained_network
from nas.data_options import DataOptions
from nas.deploy.choosing import no_rejection
from nas.deployment import Deployment
from nas.errors import UserError
from nas.files.writing import write_json
from nas.measure.protocol import measure
from nas.measure.site import this_host
from nas.networks.description import NetworkDescription
from nas.networks.run_networks import TRAINED
from nas.targets.latency import LatencyModel
from nas.targets.preparing import deploy_untrained, new_folder
from nas.targets.registry import load_target
from nas.tasks import TaskData, task_named
from nas.text import milliseconds
from nas.training.recipe import Recipe
from search_spaces import Architecture, SearchSpace, architecture_of_json, resolve_space
from search_spaces.signature import Size
from search_spaces.space import Choices

WITHIN = 0.1
"""Largest difference of a random network's latency from the winner's, as a share of that."""
DRAWS, DRAWN, AT_ONCE, MOST = 400_000, 20_000, 4, 8
"""Random networks that are drawn, drawn at once, measured at once, and measured at all. A winner under a tight limit is
faster than nearly all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The winner of a run, and all that another network needs to be trained and judged like it."""

    run: Path
    config: Mapping[str, Any]
    arch: Architecture
    deployment: Deployment
    p50_ms: float
    recipe: Recipe
    seconds: float
    """Of its full training."""
    test_figures: Mapping[str, float]

    @property
    def space(self) -> SearchSpace:
        """With the options that the search was allowed."""
        return resolve_space(self.config["space"]).restricted(self.config["allowed"])

    def data(self) -> TaskData:
        known = self.config
        options = DataOptions(**{option.name: known[option.name] for option in fields(DataOptions)})
        data: TaskData = task_named(known["task"]).load(known["data"], seed=known["seed"], options=options)
        return data


def winner_of(run: Path) -> Found:
    """Raises `UserError` where the run has no winner that was trained in full."""
    if not (run / "result.json").is_file():
        raise UserError(f"'{run}' has no result", "let its search end")
    config: dict[str, Any] = json.loads((run / "config.json").read_text(encoding="utf-8"))
    best: list[dict[str, Any]] = json.loads((run / "result.json").read_text(encoding="utf-8"))["best"]
    if not best:
        raise UserError(f"'{run}' has no winner", "search again, with more time or a higher limit")
    winner = best[0]
    arch = architecture_of_json(winner["architecture"])
    for path in run.glob(f"finalists/*/{TRAINED}"):
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        source = NetworkDescription.from_json(record["network"]).source
        if source == arch:
            return Found(
                run=run, config=config, arch=arch,
                deployment=Deployment(winner["runtime"], winner["precision"], winner["threads"]),
                p50_ms=winner["measured_latency_ms"]["p50"], recipe=Recipe.of(record["recipe"], str(path)),
                seconds=record["seconds"], test_figures=winner["test_figures"],
            )  # fmt: skip
    raise UserError(f"'{run}' keeps no full training of its winner", "search again")


def nearest(found: Found, size: Size) -> list[Architecture]:
    """The `MOST` of `DRAWS` random networks whose latency is predicted to be nearest to the winner's, and not below it
    by more than `WITHIN`; nearest first.

    Raises:
        UserError: nothing is known of the target.
    """
    space, profile = found.space, load_target(found.config["target"], task=found.config["task"]).profile
    if profile is None:
        raise UserError(f"nothing is known of {found.config['target']!r}", "profile it: `nas profile`")
    way = next(t.deployment for t in profile.tables if t.deployment.name == found.deployment.name)
    model = LatencyModel(profile, [way])

    def predicted(choices: Choices) -> NDArray[np.float64]:
        return model.predict(space, choices, size)[way].mean

    expected, rng = float(predicted(space.choices([found.arch]))[0]), np.random.default_rng(found.config["seed"])
    best: list[tuple[float, Architecture]] = []
    for _ in range(DRAWS // DRAWN):
        rows = space.sample(DRAWN, rng)
        ratios = predicted(rows) / expected
        order = np.argsort(np.where(ratios < 1 - WITHIN, np.inf, np.abs(ratios - 1)))[:MOST]
        best += [(float(abs(ratios[i] - 1)), space.architecture(rows[i])) for i in order if ratios[i] >= 1 - WITHIN]
        best = sorted(best, key=lambda pair: pair[0])[:MOST]
    return [arch for _, arch in best]


def as_fast(found: Found, size: Size, folder: Path) -> tuple[Architecture, float]:
    """A random network that takes as long as the winner does, or else the next slower one; and how many times the
    winner's latency, both measured in the same sessions, untrained.

    Raises:
        UserError: all that were measured are faster, or could not be; or nothing is known of the target.
    """
    seen: list[tuple[float, Architecture]] = []
    likely = nearest(found, size)
    for start in range(0, len(likely), AT_ONCE):
        archs = [found.arch, *likely[start : start + AT_ONCE]]
        requests = [
            deploy_untrained(arch, [found.deployment], new_folder(folder / f"{start}-{i}"), 0, size)[0]
            for i, arch in enumerate(archs)
        ]
        first, *others = measure(requests, sessions=3)
        ratios = [m.p50_ms / first.p50_ms if m.failed is None else np.nan for m in others]
        seen += [(ratio, arch) for ratio, arch in zip(ratios, archs[1:], strict=True) if ratio >= 1 - WITHIN]
        if seen and min(ratio for ratio, _ in seen) <= 1 + WITHIN:
            break
    if not seen:
        raise UserError(f"no random network is as slow as the winner of '{found.run}'", "draw more of them")
    ratio, arch = min(seen, key=lambda pair: pair[0])
    return arch, ratio


def chosen(found: Found, data: TaskData, place: Path) -> Architecture:
    """The random network of `place`; drawn where there is none yet."""
    path = place / "architecture.json"
    if not path.exists():
        with TemporaryDirectory(prefix="nas-equal-") as temporary:
            arch, ratio = as_fast(found, data.output_size, Path(temporary))
        click.echo(f"{found.run}: a random network of {ratio:.2f} times the winner's latency, untrained", err=True)
        place.mkdir(parents=True, exist_ok=True)
        write_json(path, found.space.to_json(arch))
    return architecture_of_json(json.loads(path.read_text(encoding="utf-8")))


def random_figures(found: Found, place: Path) -> tuple[float, Mapping[str, float]]:
    """Median latency (ms) of a random network's file, trained as the winner was, and its figures on the test split."""
    data = found.data()
    arch = chosen(found, data, place)
    description = NetworkDescription.of_architecture(found.space, arch, data.output_size)
    network, trained = trained_network(place, description, data, found.recipe, limit_s=found.seconds)
    click.echo(f"{found.run}: {trained.epochs} epochs, {trained.accuracy:.1%} on validation", err=True)
    deployed = deployed_network(
        place, network, description, data, [found.deployment], max_drop=1.0, rejection=no_rejection, site=this_host()
    )
    if deployed.chosen is None:
        raise UserError(f"the random network of '{found.run}' cannot be delivered", deployed.tried[0].reason)
    return deployed.chosen.p50_ms, figures_on_test(place, deployed.chosen, data, description)


@click.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path))
def main(runs: tuple[Path, ...], out: Path) -> None:
    rows = [(found, *random_figures(found, out / found.run.name)) for found in map(winner_of, runs)]
    _show(rows)


def _show(rows: Sequence[tuple[Found, float, Mapping[str, float]]]) -> None:
    names = list(rows[0][0].test_figures)
    table = Table("run", "network", "p50 ms", *(f"{name} %" for name in names))
    for found, p50_ms, figures in rows:
        ours = found.test_figures
        table.add_row(found.run.name, "searched", milliseconds(found.p50_ms), *(f"{100 * ours[n]:.1f}" for n in names))
        table.add_row("", "random", milliseconds(p50_ms), *(f"{100 * figures[n]:.1f}" for n in names))
    gains = [100 * (found.test_figures[names[0]] - figures[names[0]]) for found, _, figures in rows]
    console = Console()
    console.print(table)
    console.print(f"{names[0]}: {np.mean(gains):+.1f} points on average ({', '.join(f'{g:+.1f}' for g in gains)})")


if __name__ == "__main__":
    main()
