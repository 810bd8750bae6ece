"""Which kinds of text classifiers are worth searching: each trained by the recipe of searches, beside the linear model.

Bags, text CNNs, convolutional networks and transformers, with and without the wide path; the table of docs/text.md.
Everything is decided on the validation texts; the figures on the test texts are of the weights after the last epoch.

    python -m experiments.text_gate --data reviews.csv --epochs 8 --seeds 2
    python -m experiments.text_gate --latency
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from experiments.text_pretraining import pretrain
from nas.evaluation.short_training import ShortTraining, trained
from nas.measure.host import fingerprint, threads_here
from nas.networks.description import NetworkDescription
from nas.runtimes import deployments_here
from nas.targets.profiling import measure_networks
from nas.tasks import task_named
from nas.tasks.examples import examples_of
from nas.tasks.text import answers, macro_f1
from nas.tasks.text.data import TextData
from nas.tasks.text.evaluate import accuracy, logits_of
from nas.training.loop import train
from nas.training.precision import resolve_device
from nas.training.recipe import Recipe
from search_spaces import Architecture, TextSpace, resolve_space
from search_spaces.architecture import Option
from search_spaces.text_modules import TextNetwork

KINDS: Mapping[str, Mapping[str, Option]] = {
    "bag": {"embed.width": 64, "stages": 0},
    "text CNN": {"embed.width": 128, "pool": "max", "stages": 1, "stage1.family": "dense1d", "stage1.width": 128},
    "conv1d, 3 blocks": {
        "embed.width": 128, "stages": 1, "stage1.family": "conv1d", "stage1.width": 128, "stage1.depth": 3,
        "stage1.expansion": 2,
    },
    "transformer 2 x 128": {
        "embed.width": 128, "stages": 1, "stage1.family": "attention", "stage1.width": 128, "stage1.depth": 2,
        "stage1.heads": 2, "stage1.expansion": 4, "stage1.act": "hardswish",
    },
    "transformer 4 x 256": {
        "embed.width": 192, "stages": 1, "stage1.family": "attention", "stage1.width": 256, "stage1.depth": 4,
        "stage1.heads": 4, "stage1.expansion": 4, "stage1.act": "hardswish",
    },
}  # fmt: skip
"""The decisions of each kind that are not the first option."""


def architecture(space: TextSpace, kind: str, wide: str, tokens: int, vocabulary: int) -> Architecture:
    """The network of a kind, with a wide path (`none`, `words`, `pairs`)."""
    row = [0] * len(space.decisions)
    for name, option in {**KINDS[kind], "wide": wide, "tokens": tokens, "vocab": vocabulary}.items():
        column = space.column(name)
        row[column] = space.decisions[column].index(option)
    return space.architecture(row)


def judged(
    space: TextSpace, arch: Architecture, data: TextData, epochs: int, seed: int, more: Any, pretraining: int = 0
) -> dict[str, float]:
    """Train a network; its figures on validation and test texts, and the seconds of its training."""
    description = NetworkDescription.of_architecture(space, arch, data.output_size)
    recipe = task_named("text").recipe(epochs=epochs, seed=seed, **more)
    start = time.perf_counter()
    if pretraining:
        network = begun(description, data, recipe, pretraining)
    else:
        network, _ = trained(description, data, ShortTraining(recipe), validates="last")
    seconds = time.perf_counter() - start
    figures: dict[str, float] = {"seconds": seconds}
    for split in ("val", "test"):
        part = data.for_input(split, description.signature.input)
        found = answers(logits_of(network, part))
        figures |= {f"{split} accuracy": accuracy(found, part), f"{split} macro-F1": macro_f1(found, part.labels)}
    told = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
    print(f"seed {seed}, {pretraining} epochs of self-pretraining: {told}", file=sys.stderr, flush=True)
    return figures


def begun(description: NetworkDescription, data: TextData, recipe: Recipe, epochs: int) -> nn.Module:
    """Trained after `epochs` of self-pretraining on the training texts."""
    device = resolve_device("auto")
    with torch.random.fork_rng():
        torch.manual_seed(recipe.seed)
        network = description.build()
        assert isinstance(network, TextNetwork)
        texts = data.for_input("train", description.signature.input)
        losses = pretrain(network, torch.from_numpy(texts.ids).long(), epochs, recipe.seed, device)
    print(f"hidden tokens: {losses[0]:.2f} to {losses[-1]:.2f} nats", file=sys.stderr, flush=True)
    examples = examples_of(data, description.signature.input, train_images=None, validate_every=1, seed=recipe.seed)
    objective = task_named("text").objective(network, examples, recipe, device=device, teacher=None)
    train(network, objective, recipe, callback=None, teacher=None, validates="last")
    return network


def latencies(space: TextSpace, options: argparse.Namespace) -> None:
    """Milliseconds of every kind, untrained, with a wide path of pairs, in every deployment of this host."""
    deployments = deployments_here(threads_here(None), dynamic_int8=True)
    archs = [architecture(space, kind, "pairs", options.tokens, options.vocabulary) for kind in options.kind or KINDS]
    rows = measure_networks(archs, deployments, sessions=options.sessions)
    print(f"p50 ms, batch 1, {options.tokens} tokens, {deployments[0].threads} threads of {fingerprint().cpu_model}")
    print(f"| network | {' | '.join(d.name for d in deployments)} |\n|{'---|' * (1 + len(deployments))}")
    for kind, row in zip(options.kind or KINDS, rows, strict=True):
        cells = ["-" if m.failed is not None else f"{m.p50_ms:.3g}{' *' * (m.verdict == 'disturbed')}" for m in row]
        print(f"| {kind} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data")
    parser.add_argument("--latency", action="store_true", help="time the networks instead of training them")
    parser.add_argument("--sessions", type=int, default=3, help="fresh sessions of --latency")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--kind", action="append", choices=KINDS, help="repeatable; default: all")
    parser.add_argument("--pretraining", type=int, default=0, help="epochs of self-pretraining; default: none")
    parser.add_argument("--wide", action="append", choices=("none", "words", "pairs"), help="default: none and pairs")
    parser.add_argument("--set", default="{}", help="further settings of the recipe, as JSON")
    options = parser.parse_args()
    task, space = task_named("text"), resolve_space("text")
    assert isinstance(space, TextSpace)
    if options.latency:
        latencies(space, options)
        return
    if options.data is None:
        parser.error("give --data, or --latency")
    data = task.load(options.data, seed=0)
    print(f"{data.name}: {len(data.train)} / {len(data.val)} / {len(data.test)} texts; {options.epochs} epochs, "
          f"{torch.get_num_threads()} threads of {fingerprint().cpu_model}")  # fmt: skip
    names = ["val accuracy", "val macro-F1", "test accuracy", "test macro-F1", "seconds"]
    print(f"| network | wide | {' | '.join(names)} |\n|{'---|' * (2 + len(names))}")
    for floor in task.floors(data, 0):
        test = float("nan") if floor.test is None else floor.test
        print(
            f"| {floor.name} | | {task.metric_of(data)} {floor.accuracy:.3f} | | {test:.3f} | | {floor.seconds:.1f} |"
        )
    for kind in options.kind or KINDS:
        for wide in options.wide or ("none", "pairs"):
            arch = architecture(space, kind, wide, options.tokens, options.vocabulary)
            rows = [judged(space, arch, data, options.epochs, seed, json.loads(options.set), options.pretraining)
                    for seed in range(options.seeds)]  # fmt: skip
            cells = []
            for name in names:
                values = [row[name] for row in rows]
                digits = 1 if name == "seconds" else 3
                spread = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 and name != "seconds" else ""
                cells.append(f"{np.mean(values):.{digits}f}{spread}")
            print(f"| {kind} | {wide} | {' | '.join(cells)} |")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
