"""Searched detectors beside well-known ones: trained from scratch alike, each in its best deployment.

Two commands on one folder; each may be stopped and repeated.
`python -m experiments.detection_bccd train --data D --winner RUN#1 --network fcos_resnet18 --random 2 --out DIR` trains
what is missing, every network with the recipe `detection` from random weights, for as many epochs, and goes on after
the last finished epoch. `python -m experiments.detection_bccd table --data D --out DIR` exports everything that is
trained in every runtime and precision, measures all of it in one interleaved session, and writes `DIR/results.md`.

A network with several learning rates gets the one that was best on the validation images. Test images are looked at
once, by the delivered files.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import click
import numpy as np
from numpy.typing import NDArray

from experiments.detection_rows import Kind, Row, Tried, agreement_table, best_lr, results_table, verdicts
from experiments.zoo_trainings import Contestant, Trainings, contestants
from nas.controller.planning.plan import nominal_image_s
from nas.controller.prediction.scoring import CandidateScorer
from nas.controller.runs.records import deployed_network, figures_on_test
from nas.data.images import image_side
from nas.deploy.choosing import choose, no_rejection
from nas.deploy.tried import Deployed, TriedDeployment
from nas.deployment import Deployment
from nas.errors import UserError
from nas.finetune.run import RESULT, Job, train_candidate
from nas.finetune.sources import Candidate
from nas.limits import Limits
from nas.measure.host import fingerprint, usable_threads
from nas.measure.measurement import MeasureRequest
from nas.measure.protocol import measure
from nas.networks.description import NetworkDescription, load_network, read_json
from nas.progress import progress_for
from nas.runtimes import deployments_here, load_runtime
from nas.samplers.base import random_feasible
from nas.targets.latency import LatencyModel
from nas.targets.registry import load_target
from nas.tasks.detection.artifacts import DetectionArtifacts
from nas.tasks.detection.baselines import BASELINES
from nas.tasks.detection.data import DetectionData, load_detection
from nas.tasks.detection.evaluate import metrics_of
from nas.tasks.recipes import recipe_named
from nas.training.recipe import Recipe
from nas.training.world import joined_world
from search_spaces import Choices, load_search_space

RECIPE = "detection"
MAX_DROP = 0.01
"""mAP@50 (fraction of the validation images) that a faster deployment may cost."""
RANDOM = "random-"
"""What names of random networks begin with."""


@click.group()
def main() -> None:
    """Searched detectors beside well-known ones."""


data_option = click.option("--data", required=True, help="As `nas search --task detection --data`.")
out_option = click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True)


@main.command()
@data_option
@out_option
@click.option(
    "--network", "networks", multiple=True, type=click.Choice(list(BASELINES)), help="Of the zoo (repeatable)."
)
@click.option("--winner", "winners", multiple=True, help="RUN#k (repeatable).")
@click.option("--arch", "archs", multiple=True, type=click.Path(exists=True, path_type=Path), help="architecture.json.")
@click.option("--random", "randoms", type=click.IntRange(min=0), default=0, help="So many random networks of `detect`.")
@click.option("--latency-ms", default=25.0, show_default=True, help="Limit that random networks are to keep.")
@click.option("--target", default="local", show_default=True, help="By whose profile they are predicted to keep it.")
@click.option("--train-ms", type=float, help="Most that an image may take one thread to train on, of random networks.")
@click.option("--resolution", default=320, show_default=True, help="Of the zoo, in pixels.")
@click.option("--epochs", type=click.IntRange(min=1), default=60, show_default=True)
@click.option("--lr", "rates", type=float, multiple=True, default=(2e-3,), show_default=True, help="Repeatable.")
@click.option("--seeds", type=click.IntRange(min=1), default=1, show_default=True, help="0, 1, ...")
@click.option("--set", "settings", multiple=True, metavar="KEY.SUB=VALUE", help="Change the recipe (repeatable).")
@click.option("--threads", type=click.IntRange(min=1), help="[default: all]")
def train(
    data: str, out: Path, networks: Sequence[str], winners: Sequence[str], archs: Sequence[Path], randoms: int,
    latency_ms: float, target: str, train_ms: float | None, resolution: int, epochs: int,
    rates: Sequence[float], seeds: int, settings: Sequence[str], threads: int | None,
) -> None:  # fmt: skip
    """Train every network from scratch with every rate and seed; skips what is finished."""
    import torch

    torch.set_num_threads(threads or usable_threads())
    loaded = load_detection(data)
    # Settings that would be measured could differ from one network to the next.
    shared = [f"epochs={epochs}", "precision=bf16", "channels_last=true", *settings]
    recipe = recipe_named(RECIPE, shared)
    Trainings(out).settle({"data": loaded.name, "recipe": recipe.model_dump(mode="json")})
    found = contestants(networks, winners, loaded, resolution)
    found += [_from_file(path, loaded) for path in archs]
    if randoms:
        found += random_contestants(randoms, latency_ms, target, train_ms, loaded)
    if not found:
        raise UserError("no network is named", "give --network, --winner, --arch or --random")
    for seed in range(seeds):
        for contestant in found:
            for rate in rates:
                one = recipe_named(RECIPE, [*shared, f"optimizer.lr={rate}", f"seed={seed}"])
                document = _train(contestant, one, loaded, out)
                click.echo(
                    f"{contestant.name}, rate {rate:g}, seed {seed}: "
                    f"mAP@50 {100 * document['accuracy']['after']:.1f} % on the validation images",
                    err=True,
                )


def _from_file(path: Path, data: DetectionData) -> Contestant:
    document = cast(dict[str, Any], read_json(path))
    space = load_search_space(str(document["space"]))
    arch = space.from_json(document)
    return Contestant(path.stem, NetworkDescription.of_architecture(space, arch, data.output_size), True)


def random_contestants(
    count: int, latency_ms: float, target: str, train_ms: float | None, data: DetectionData
) -> list[Contestant]:
    """Random networks of `detect` that are predicted to keep the limit; always the same ones.

    `train_ms` is nominal: a search leaves out in this way what its budget cannot train.
    """
    space = load_search_space("detect")
    profile = load_target(target, task="detection").profile
    if profile is None:
        raise UserError(f"no profile of {target!r} knows detectors", "run `nas profile local --space detect`")

    def affordable(choices: Choices) -> NDArray[np.bool_]:
        longest_s = np.inf if train_ms is None else 1e-3 * train_ms
        within: NDArray[np.bool_] = nominal_image_s(space.costs(choices, data.output_size)) <= longest_s
        return within

    limits = Limits.of(latency_ms=latency_ms)
    scorer = CandidateScorer(space, LatencyModel(profile), limits, data.output_size, affordable=affordable)
    rows = random_feasible(space, scorer.feasible, count, np.random.default_rng(0))
    archs = [space.architecture(row) for row in rows]
    return [
        Contestant(f"{RANDOM}{i}", NetworkDescription.of_architecture(space, arch, data.output_size), winner=False)
        for i, arch in enumerate(archs)
    ]


def _train(contestant: Contestant, recipe: Recipe, data: DetectionData, out: Path) -> dict[str, Any]:
    """What `nas finetune` does with a network of a run."""
    folder = out / contestant.name / f"lr{recipe.optimizer.lr:g}" / f"seed{recipe.seed}"
    job = Job(recipe=recipe, label=contestant.name, data=data, progress=progress_for())
    with joined_world() as world:
        return train_candidate(Candidate(rank=1, description=contestant.description), job, folder, world)


@main.command()
@data_option
@out_option
@click.option("--threads", type=click.IntRange(min=1), help="Of the deployed networks.  [default: all]")
@click.option("--sessions", type=click.IntRange(min=1), default=3, show_default=True, help="Fresh sessions.")
def table(data: str, out: Path, threads: int | None, sessions: int) -> None:
    """Deploy and measure what was trained; write results.md."""
    loaded = load_detection(data)
    count = threads or usable_threads()
    entries = [_Entry(folder, document) for folder, document in _chosen_trainings(out)]
    if not entries:
        raise UserError(f"'{out}' holds no finished training", "run the command `train` first")
    deployed = _measured([_deployed(entry, loaded, deployments_here(count)) for entry in entries], sessions)
    networks = list(dict.fromkeys(entry.name for entry in entries))
    rows, tried = [], {}
    for name in networks:
        seeds = [(e, d) for e, d in zip(entries, deployed, strict=True) if e.name == name]
        rows.append(_row(seeds, loaded))
        tried[name] = [_tried(t, _torch_map50(seeds[0][0], loaded)) for t in seeds[0][1].tried]
    text = "\n\n".join(
        [
            f"{loaded.name}: {len(loaded.train)} training, {len(loaded.val)} validation and {len(loaded.test)} test "
            f"images; recipe `{RECIPE}` from scratch; {fingerprint().cpu_model}, {count} threads. mAP in % of the "
            "delivered file in its runtime: mean and standard deviation over the seeds. p50: median call at batch 1, "
            f"all files in one interleaved session of {sessions} fresh processes; decoding and suppression (post ms) "
            "come on top.",
            results_table(rows),
            "mAP@50 of the validation images, in % (first seed):",
            agreement_table(tried),
            verdicts(rows, tried),
        ]
    )
    (out / "results.md").write_text(text + "\n", encoding="utf-8")
    click.echo(text)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A finished training: `OUT/NAME/lrRATE/seedN`, and its `result.json`."""

    folder: Path
    document: dict[str, Any]

    @property
    def name(self) -> str:
        return self.folder.parent.parent.name

    @property
    def kind(self) -> Kind:
        if isinstance(self.description.source, str):
            return "well-known"
        return "random" if self.name.startswith(RANDOM) else "searched"

    @property
    def description(self) -> NetworkDescription:
        return NetworkDescription.from_json(self.document["identity"]["network"])


def _chosen_trainings(out: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Folders and documents of every network's trainings with the rate that was best for it, seed by seed."""
    found: dict[str, dict[float, dict[int, tuple[Path, dict[str, Any]]]]] = {}
    for path in sorted(out.glob(f"*/lr*/seed*/{RESULT}")):
        document = json.loads(path.read_text(encoding="utf-8"))
        recipe = document["identity"]["recipe"]
        rates = found.setdefault(path.parents[2].name, {})
        rates.setdefault(recipe["optimizer"]["lr"], {})[recipe["seed"]] = (path.parent, document)
    chosen = []
    for rates in found.values():
        accuracies = {lr: {s: d["accuracy"]["after"] for s, (_, d) in seeds.items()} for lr, seeds in rates.items()}
        chosen += [entry for _, entry in sorted(rates[best_lr(accuracies)].items())]
    return chosen


def _deployed(entry: _Entry, data: DetectionData, deployments: Sequence[Deployment]) -> Deployed:
    """Every deployment with its accuracy, not yet measured; made once, then read."""
    network = load_network(entry.folder / "model.network.json", fold=False)
    return deployed_network(
        entry.folder / "deployed", network, entry.description, data, deployments,
        max_drop=MAX_DROP, rejection=no_rejection, site=None, upper_bound=lambda _deployment: 0.0,
    )  # fmt: skip


def _measured(found: Sequence[Deployed], sessions: int) -> list[Deployed]:
    """All files in one interleaved session; then each network's fastest that keeps its accuracy is chosen."""
    requests = [MeasureRequest(t.path, t.deployment) for d in found for t in d.tried if t.path is not None]
    results = {m.request: m for m in measure(requests, sessions=sessions, timeout_s=300.0)}

    def timed(t: TriedDeployment) -> TriedDeployment:
        return t if t.path is None else replace(t, measurement=results[MeasureRequest(t.path, t.deployment)])

    return [
        replace(d, tried=tuple(choose([timed(t) for t in d.tried], MAX_DROP, parity=d.parity, metric="mAP@50")))
        for d in found
    ]


def _torch_map50(entry: _Entry, data: DetectionData) -> float:
    network = load_network(entry.folder / "model.network.json")
    return metrics_of(
        network, data.for_input("val", entry.description.signature.input), data.preprocess, device="cpu"
    ).map50


def _tried(t: TriedDeployment, torch_map50: float) -> Tried:
    return Tried(
        name=t.name,
        precision=t.deployment.precision,
        torch=torch_map50,
        runtime=t.accuracy,
        p50_ms=t.p50_ms,
        chosen=t.chosen,
        reason=t.reason,
    )


def _row(seeds: Sequence[tuple[_Entry, Deployed]], data: DetectionData) -> Row:
    first = seeds[0][0]
    delivered = [(entry, _delivered(entry, deployed)) for entry, deployed in seeds]
    tests = [figures_on_test(e.folder / "deployed", t, data, e.description) for e, t in delivered]
    measured = [t.measurement for _, t in delivered if t.measurement is not None]
    recipe = first.document["identity"]["recipe"]
    return Row(
        name=first.name,
        kind=first.kind,
        resolution=image_side(first.description.signature.input),
        lr=recipe["optimizer"]["lr"],
        epochs=first.document["epochs"],
        params=first.document["params"],
        val=tuple(t.accuracy or 0.0 for _, t in delivered),
        test=tuple(test["mAP@50"] for test in tests),
        test_strict=tuple(test["mAP@50:95"] for test in tests),
        deployments=tuple(t.name for _, t in delivered),
        p50_ms=tuple(m.p50_ms for m in measured),
        postprocess_ms=tuple(_postprocess_ms(e, t, data) for e, t in delivered),
        disturbed=any(m.verdict != "quiet" for m in measured),
    )


def _delivered(entry: _Entry, deployed: Deployed) -> TriedDeployment:
    if deployed.chosen is None:
        reasons = "; ".join(f"{t.name}: {t.reason}" for t in deployed.tried)
        raise UserError(f"{entry.name} has no acceptable deployment: {reasons}")
    return deployed.chosen


def _postprocess_ms(entry: _Entry, t: TriedDeployment, data: DetectionData) -> float:
    assert t.path is not None
    session = load_runtime(t.deployment.runtime).load(t.path, t.deployment)
    figures = DetectionArtifacts().figures(session.run, data, entry.description.signature, t.deployment.batch)
    return float(figures.more["postprocess_ms"])


if __name__ == "__main__":
    main()
