"""The scores of `experiments.supernet_check` that need training: a supernet's paths, and networks from scratch.

Each is kept in a file as it is found, so that the same command goes on.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import click

from nas.data import ImageData
from nas.evaluation.short_training import ShortTraining, trained
from nas.evaluation.supernet.config import SupernetConfig, SupernetLog
from nas.evaluation.supernet.network import Supernet
from nas.evaluation.supernet.sandwich import Admissible
from nas.evaluation.supernet.scoring import PathScorer
from nas.evaluation.supernet.training import train_supernet
from nas.files.writing import write_json
from nas.networks.description import NetworkDescription
from nas.training.recipe import Recipe
from search_spaces import Architecture, StagedSpace

Scores = dict[str, dict[str, float]]
"""Network -> `accuracy` on the validation images, `seconds`, `core_seconds`; of paths `loss` as well."""


def trained_supernet(
    space: StagedSpace, images: ImageData, config: SupernetConfig, checkpoint: Path, admissible: Admissible,
) -> tuple[Supernet, SupernetLog]:  # fmt: skip
    """Trained now, or read where `checkpoint` holds it."""
    supernet = Supernet(space, images.output_size, seed=config.recipe.seed)
    log = train_supernet(
        supernet, images, config, checkpoint=checkpoint, admissible=admissible,
        callback=lambda entry: click.echo(f"step {entry.step}: {entry.largest:.3f} {entry.smallest:.3f}", err=True),
    )  # fmt: skip
    if log.diverged:
        raise click.ClickException(f"the supernet {log.stopped}")
    return supernet, log


def path_scores(scorer: PathScorer, archs: Mapping[str, Architecture], file: Path) -> Scores:
    """Every network as a path of the scorer's supernet."""
    known: Scores = json.loads(file.read_text()) if file.exists() else {}
    for key, arch in archs.items():
        if key not in known:
            known[key] = asdict(scorer.score(arch))
            write_json(file, known)
    return {key: known[key] for key in archs}


def short_scores(
    space: StagedSpace, archs: Mapping[str, Architecture], images: ImageData, recipe: Recipe, steps: int,
    file: Path,
) -> Scores:  # fmt: skip
    """Every network trained from scratch for `steps` steps, the learning rate ending at zero: what the steps of an
    adaptation are worth without a supernet. `recipe` says all but how long."""
    per_epoch = len(images.train) // recipe.fixed_batch_size
    epochs = -(-steps // per_epoch)
    short = ShortTraining(recipe.changed(epochs=epochs), steps * recipe.fixed_batch_size // epochs)
    known: Scores = json.loads(file.read_text()) if file.exists() else {}
    for key, arch in archs.items():
        if key in known:
            continue
        start, core_start = time.perf_counter(), time.process_time()
        description = NetworkDescription.of_architecture(space, arch, images.output_size)
        _, result = trained(description, images, short)
        known[key] = {
            "accuracy": result.accuracy,
            "seconds": time.perf_counter() - start,
            "core_seconds": time.process_time() - core_start,
        }
        write_json(file, known)
    return {key: known[key] for key in archs}
