"""How well estimates of accuracy order networks that were trained alone, and what each estimate costs.

`python -m experiments.supernet_check train-alone --data NAME --networks-file FILE.json` trains random networks of a
part of `mixed`, each alone with one recipe, and keeps architecture, accuracies, curve and price in FILE.json.
`python -m experiments.supernet_check compare --data NAME --networks-file FILE.json --out PAGE.md` trains the supernet
on the same images, scores the same networks with every estimator, and writes the page and a plot beside it.
Both go on where they were stopped. Small budgets cannot pay for the widest networks, so only the narrower options of
the space take part (`Part`): the supernet holds these and no more.
"""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from experiments.supernet_page import Evidence, page, plot
from experiments.supernet_paths import Scores, path_scores, short_scores, trained_supernet
from nas.data import ImageData
from nas.evaluation.supernet.config import Adaptation, SupernetConfig, supernet_recipe
from nas.evaluation.supernet.scoring import PathScorer
from nas.files.writing import write_json
from nas.networks.description import NetworkDescription
from nas.tasks import TASKS
from nas.tasks.classification.data.registry import load_dataset
from nas.training import recipe as training
from nas.training.precision import Precision
from search_spaces import Architecture, Choices, StagedSpace, load_search_space

PROXY_IMAGES = 64
TRAIN_S_PER = {"macs": 2.2e-11, "activations": 3.3e-9, "depthwise_macs": 2.2e-9}
"""Seconds of one thread per image that the recorded networks were drawn by. Not those that searches plan with, which
are fitted anew from time to time: the part that the networks come from must stay as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Which networks take part."""

    space: str = "mixed"
    resolution: int = 32
    widths: int = 3
    """The first options of every stage's width."""
    depth: int = 2
    """Most blocks per stage."""
    kernel: int = 5
    """Largest kernel."""
    image_ms: float = 5.0
    """Nominal milliseconds of one thread for training one image; dearer networks are left out."""

    def restricted(self) -> StagedSpace:
        space = load_search_space(self.space).restrict("resolution", [self.resolution])
        space = space.restrict("stem.width", space.table.stem_widths[:2])
        names = {d.name for d in space.decisions}
        for number, stage in enumerate(space.table.stages, start=1):
            space = space.restrict(f"stage{number}.width", stage.widths[: self.widths])
            space = space.restrict(f"stage{number}.depth", [d for d in stage.depths if d <= self.depth])
            if f"stage{number}.kernel" in names:
                kernels = [k for k in space.table.kernels if k <= self.kernel]
                space = space.restrict(f"stage{number}.kernel", kernels)
        return space

    def affordable(self, choices: Choices) -> NDArray[np.bool_]:
        costs = load_search_space(self.space).costs(choices)
        seconds = sum(value * costs[name] for name, value in TRAIN_S_PER.items())
        return np.asarray(seconds <= self.image_ms / 1000)

    def draw(self, count: int, seed: int) -> list[Architecture]:
        """`count` distinct networks; the first ones are the same for every count."""
        space, rng = self.restricted(), np.random.default_rng(seed)
        found: dict[str, Architecture] = {}
        while len(found) < count:
            row = space.sample(1, rng)
            if self.affordable(row)[0]:
                arch = space.architecture(row[0])
                found.setdefault(arch.key, arch)
        return list(found.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How each network is trained; the images are the supernet's too."""

    data: str
    train_images: int = 5000
    val_images: int = 2000
    test_images: int = 4000
    epochs: int = 5
    batch_size: int = 64
    lr: float = 0.1
    precision: str = "bf16"
    seed: int = 0
    """Of training; the images and the networks are drawn with fixed seeds."""

    def images(self, path: str) -> ImageData:
        """Training images for weights, val for everything that is chosen, test for the figure to be predicted."""
        data = load_dataset(path)
        return replace(
            data,
            train=data.train.some(self.train_images),
            val=data.val.some(self.val_images),
            test=data.test.some(self.test_images),
        )

    def config(self) -> training.Recipe:
        precision: Precision = "bf16" if self.precision == "bf16" else "fp32"
        return TASKS["classification"].recipe(
            epochs=self.epochs,
            batch_size=self.batch_size,
            optimizer={"lr": self.lr},
            precision=precision,
            seed=self.seed,
        )


@click.group()
def main() -> None:
    """Estimated against trained accuracies."""


def _common(command: Any) -> Any:
    command = click.option("--data", required=True, help="A data set as `nas search --data` takes it.")(command)
    path = click.Path(dir_okay=False, path_type=Path)
    return click.option("--networks-file", type=path, required=True, help="The trained networks.")(command)


@main.command()
@_common
@click.option("--networks", type=click.IntRange(min=1), default=24, show_default=True)
@click.option("--epochs", default=5, show_default=True)
@click.option("--batch", default=64, show_default=True)
@click.option("--lr", default=0.1, show_default=True)
@click.option("--train-images", default=5000, show_default=True)
@click.option("--val-images", default=2000, show_default=True)
@click.option("--test-images", default=4000, show_default=True)
@click.option("--widths", default=3, show_default=True, help="First options of every stage's width.")
@click.option("--depth", default=2, show_default=True, help="Most blocks per stage.")
@click.option("--image-ms", default=5.0, show_default=True, help="Leave networks out that are dearer to train.")
@click.option("--draw", default=0, show_default=True, help="Seed of the networks.")
@click.option("--seed", default=0, show_default=True, help="Seed of the trainings.")
@click.option("--minutes", type=float, help="Start no training after so long; the same command goes on.")
def train_alone(
    data: str, networks_file: Path, networks: int, epochs: int, batch: int, lr: float, train_images: int,
    val_images: int, test_images: int, widths: int, depth: int, image_ms: float, draw: int, seed: int,
    minutes: float | None,
) -> None:  # fmt: skip
    """Train random networks, each alone with one recipe."""
    end = np.inf if minutes is None else time.monotonic() + 60 * minutes
    part = Part(widths=widths, depth=depth, image_ms=image_ms)
    recipe = Recipe(
        data=Path(data).name, train_images=train_images, val_images=val_images, test_images=test_images,
        epochs=epochs, batch_size=batch, lr=lr, seed=seed,
    )  # fmt: skip
    document = _document(networks_file, part, recipe, draw)
    networks_file.parent.mkdir(parents=True, exist_ok=True)
    images = recipe.images(data)
    space = part.restricted()
    known = {record["key"] for record in document["networks"]}
    for arch in part.draw(networks, draw):
        if arch.key in known:
            continue
        if time.monotonic() >= end:
            break
        record = trained_alone(space, arch, images, recipe)
        document["networks"].append(record)
        write_json(networks_file, document)
        click.echo(f"{len(document['networks'])} of {networks}: {record['test_accuracy']} {arch.key}", err=True)
    click.echo(f"{len(document['networks'])} of {networks} networks are trained", err=True)


def trained_alone(space: StagedSpace, arch: Architecture, images: ImageData, recipe: Recipe) -> dict[str, Any]:
    """One network's record; a training that diverged has no accuracy."""
    from nas.evaluation.short_training import ShortTraining, trained
    from nas.tasks.classification.evaluate import evaluate_accuracy

    start, core_start = time.perf_counter(), time.process_time()
    description = NetworkDescription.of_architecture(space, arch, images.output_size)
    network, result = trained(description, images, ShortTraining(recipe.config()))
    seconds, core_seconds = time.perf_counter() - start, time.process_time() - core_start
    failed = result.stopped is not None
    test = None if failed else evaluate_accuracy(network, images.at("test", space.resolution(arch)), images.preprocess)
    costs = space.costs(space.choices([arch]), images.output_size)
    return {
        "key": arch.key,
        "decisions": space.parameters(arch),
        "macs": int(costs["macs"][0]),
        "params": int(costs["params"][0]),
        "val_accuracy": None if failed else result.accuracy,
        "test_accuracy": test,
        "curve": [log.val_accuracy for log in result.curve],
        "stopped": result.stopped,
        "seconds": round(seconds, 2),
        "core_seconds": round(core_seconds, 2),
    }


@main.command()
@_common
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), required=True, help="The page; a plot beside it."
)
@click.option("--work", type=click.Path(file_okay=False, path_type=Path), default=Path("runs/supernet-check"))
@click.option(
    "--again", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Trained with another seed."
)
@click.option("--supernet/--no-supernet", "with_supernet", default=True, show_default=True, help="All but it is cheap.")
@click.option("--steps", default=1000, show_default=True, help="Steps of the supernet's training.")
@click.option("--batch", default=64, show_default=True)
@click.option("--lr", default=0.1, show_default=True)
@click.option("--distillation", default=1.0, show_default=True)
@click.option("--random-paths", default=2, show_default=True)
@click.option("--sandwich/--no-sandwich", default=True, show_default=True, help="Largest and smallest paths as well.")
@click.option("--fair/--no-fair", default=False, show_default=True, help="Block families take turns in random paths.")
@click.option("--optimizer", type=click.Choice(["sgd", "adamw"]), default="sgd", show_default=True)
@click.option("--weight-decay", default=1e-4, show_default=True)
@click.option("--adapt", type=click.IntRange(min=1), multiple=True, help="Train each path alone for so many steps.")
@click.option("--adapt-lr", default=Adaptation().lr, show_default=True, help="Peak learning rate of --adapt.")
@click.option("--short", type=click.IntRange(min=1), multiple=True, help="Train from scratch for so many steps.")
@click.option("--seed", default=0, show_default=True, help="Of the supernet and of the proxies.")
def compare(
    data: str, networks_file: Path, out: Path, work: Path, again: Path | None, with_supernet: bool, steps: int,
    batch: int, lr: float, distillation: float, random_paths: int, sandwich: bool, fair: bool,
    optimizer: str, weight_decay: float,
    adapt: tuple[int, ...], adapt_lr: float, short: tuple[int, ...], seed: int,
) -> None:  # fmt: skip
    """Score the trained networks with every estimator and write the page."""
    document = json.loads(networks_file.read_text())
    part, recipe = Part(**document["part"]), Recipe(**document["recipe"])
    if recipe.data != Path(data).name:
        raise click.ClickException(f"the networks were trained on {recipe.data}, not on {data}")
    images = recipe.images(data)
    records = [r for r in document["networks"] if r["test_accuracy"] is not None]
    if len(records) < 4:
        raise click.ClickException(f"{networks_file} holds {len(records)} trained networks: train more of them first")
    config = SupernetConfig(
        steps=steps, distillation=distillation, random_paths=random_paths, sandwich=sandwich, fair=fair,
        recipe=supernet_recipe(recipe.config()).changed(
            batch_size=batch, optimizer={"name": optimizer, "lr": lr, "weight_decay": weight_decay}, seed=seed
        ),
    )  # fmt: skip
    space = part.restricted()
    archs = {r["key"]: space.from_json({"space": space.name, "decisions": r["decisions"]}) for r in records}
    work.mkdir(parents=True, exist_ok=True)
    about = [document["part"], document["recipe"]]
    paths: Scores = {}
    adapted: dict[int, Scores] = {}
    log: dict[str, Any] = {}
    if with_supernet:
        tag = _tag(config.to_json(), *about)
        supernet, trained = trained_supernet(
            space, images, config, work / f"supernet-{tag}.safetensors", part.affordable
        )
        log = trained.to_json()
        scorer = PathScorer(supernet=supernet, data=images, precision=trained.precision)
        paths = path_scores(scorer, archs, work / f"paths-{tag}.json")
        for count in adapt:
            adaptation = Adaptation(steps=count, lr=adapt_lr)
            file = work / f"paths-{tag}-{_tag(asdict(adaptation))}.json"
            adapted[count] = path_scores(replace(scorer, adaptation=adaptation), archs, file)
    from_scratch = {
        count: short_scores(space, archs, images, recipe.config(), count, work / f"short-{count}-{_tag(*about)}.json")
        for count in short
    }
    proxies = proxy_scores(space, archs, images, seed, work / f"proxies-{seed}.json")
    untrained = [
        {key: np.nan if score is None else score for key, (score, _) in scores.items()} for scores in proxies.values()
    ]
    given: dict[str, list[dict[str, float]]] = {"structure": [], "structure and proxies": untrained}
    if paths:
        longest = adapted[max(adapted)] if adapted else paths
        path = {key: score["accuracy"] for key, score in longest.items()}
        given |= {"structure and supernet": [path], "structure, proxies and supernet": [*untrained, path]}
    left_out, fit_core_s = predictor_scores(space, records, given)
    evidence = Evidence(
        records=records, paths=paths, adapted=adapted, adapt_lr=adapt_lr, short=from_scratch, log=log,
        proxies=proxies, learned=left_out, learned_core_s=fit_core_s, epochs=recipe.epochs, part=asdict(part),
        recipe=asdict(recipe), config=config.to_json(), again=_accuracies(again) if again else {},
    )  # fmt: skip
    out.write_text(page(evidence, out.with_suffix(".svg").name), encoding="utf-8")
    out.with_suffix(".svg").write_text(plot(evidence), encoding="utf-8")
    click.echo(f"wrote {out} on {len(records)} networks", err=True)


def proxy_scores(
    space: StagedSpace, archs: Mapping[str, Architecture], images: ImageData, seed: int, file: Path
) -> dict[str, dict[str, list[float | None]]]:
    """Proxy -> network -> score (None: there is none) and core-seconds."""
    import torch

    from experiments.proxies import ALL_PROXIES
    from nas.evaluation.zero_cost import zero_cost_scores

    known: dict[str, dict[str, list[float | None]]] = json.loads(file.read_text()) if file.exists() else {}
    for key, arch in archs.items():
        split = images.at("train", space.resolution(arch)).some(PROXY_IMAGES, seed)
        batch = torch.from_numpy(images.preprocess.array(split.images[:])), torch.from_numpy(split.labels)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = space.build(arch, images.output_size)
        for name in ALL_PROXIES:
            if key in known.setdefault(name, {}):
                continue
            start = time.process_time()
            score = float(zero_cost_scores(network, *batch, names=[name], proxies=ALL_PROXIES)[0])
            known[name][key] = [score if np.isfinite(score) else None, time.process_time() - start]
        write_json(file, known)
    return {name: {key: scores[key] for key in archs} for name, scores in known.items()}


def predictor_scores(
    space: StagedSpace, records: Sequence[Mapping[str, Any]], given: Mapping[str, Sequence[Mapping[str, float]]]
) -> tuple[dict[str, list[float | None]], float]:
    """The learned predictor's opinion of each network (n,), learned from all the others: from the structure, and with
    the columns that are `given` beside it, each from network to score. Beside the opinions the core-seconds of one fit,
    a mean."""
    from nas.evaluation.estimators import PredictorEstimator

    labels = [
        (space.from_json({"space": space.name, "decisions": r["decisions"]}), r["test_accuracy"]) for r in records
    ]

    def left_out(columns: Sequence[Mapping[str, float]]) -> list[float | None]:
        scores = (lambda arch: np.array([column[arch.key] for column in columns])) if columns else None
        return [
            PredictorEstimator(space, labels[:at] + labels[at + 1 :], scores).estimate([arch])[0].value
            for at, (arch, _) in enumerate(labels)
        ]

    start = time.process_time()
    found = {name: left_out(columns) for name, columns in given.items()}
    return found, (time.process_time() - start) / (len(given) * len(labels))


def _tag(*settings: Any) -> str:
    """A name for scores that depend on these settings."""
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:12]


def _document(file: Path, part: Part, recipe: Recipe, draw: int) -> dict[str, Any]:
    """The file's content, or that of a new one; raises where it holds networks of another recipe."""
    wanted = {"part": asdict(part), "recipe": asdict(recipe), "draw": draw}
    if not file.exists():
        return {**wanted, "networks": []}
    document: dict[str, Any] = json.loads(file.read_text())
    for name, value in wanted.items():
        if document[name] != value:
            raise click.ClickException(f"{file} holds networks of another {name}: name another file")
    return document


def _accuracies(file: Path) -> dict[str, float]:
    records = json.loads(file.read_text())["networks"]
    return {r["key"]: r["test_accuracy"] for r in records if r["test_accuracy"] is not None}


if __name__ == "__main__":
    main()
