"""The promises of every task, as functions; `check_task` asks for all of them, of a task in any table or in none.

A test of a task from elsewhere calls `check_task(task, data, space, tmp_path)` with a little data of the task (at
least 4 training and 2 validation examples) and a space whose networks are for it.
"""

import ast
import json
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nas.deploy.answers import AnswersKept
from nas.evaluation.estimators import ESTIMATORS
from nas.evaluation.short_training import ShortTraining, trained
from nas.evaluation.zero_cost import PROXIES, candidate_scores
from nas.executors.shared_data import share
from nas.networks.description import NetworkDescription
from nas.tasks import baseline_named, task_named, task_of, task_of_baseline
from nas.tasks.recipes import bundled_recipes, recipe_named
from search_spaces import Architecture, SearchSpace

SPLITS = ("train", "val", "test")
BATCH = 3


def check_task(task: Any, data: Any, space: SearchSpace, folder: Path) -> None:
    """Everything below."""
    check_names(task, data, space)
    check_recipes(task)
    check_splits(task, data)
    check_data_reach_other_processes(task, data, folder)
    check_inputs(task, data, space)
    check_learning_and_evaluating(task, data, space)
    check_floors(task, data)
    check_scores(task, data, space)
    check_artifacts(task, data, space, folder)


def check_names(task: Any, data: Any, space: SearchSpace) -> None:
    """Data and space say which task they belong to, and tables have what the task names."""
    assert re.fullmatch(r"[a-z][a-z0-9-]*", task.name)
    assert task.metric
    assert task.examples.isalpha()
    assert task.teaching is None or not task.teaching.foreign("no such folder")
    assert task_of(data) is task_named(data.task) is task
    assert space.task == data.task
    assert set(task.estimators) <= set(ESTIMATORS)
    assert set(task.proxies) <= set(PROXIES)
    for low, high in (task.shape.short_epochs, task.shape.final_epochs):
        assert 1 <= low <= high
    assert task.shape.min_short_images >= 0
    for name, network in task.baselines.items():
        assert task_of_baseline(name) == data.task
        assert baseline_named(name) is network


def check_recipes(task: Any) -> None:
    """Recipes are found by name, are good for the task, and every search has one."""
    assert set(task.recipes) <= set(bundled_recipes(task))
    assert task.default_recipe in task.recipes
    for name in task.recipes:
        recipe = recipe_named(name, task=task)
        assert recipe.description
        task.check_recipe(recipe)
    recipe = task.recipe(epochs=7, seed=4)
    assert (recipe.epochs, recipe.seed) == (7, 4)


def same(task: Any, one: Any, other: Any) -> bool:
    """Whether two splits hold the same."""
    a, b = task.arrays(one), task.arrays(other)
    return list(a) == list(b) and all(np.array_equal(a[name], b[name]) and a[name].dtype == b[name].dtype for name in a)


def check_splits(task: Any, data: Any) -> None:
    """Splits are taken from, by chance and by index, and data are changed into other values, never in place."""
    task.check(data)
    for split in (data.train, data.val):
        few = split.some(2, seed=3)
        assert len(few) == 2
        assert same(task, few, split.some(2, seed=3))
        assert len(split.some(len(split) + 5)) == len(split)
        assert same(task, split.take(np.arange(len(split))), split)
        assert len(split.take([])) == 0
        back = split.take(np.arange(len(split))[::-1])
        assert same(task, back.take([len(split) - 1]), split.take([0]))
        assert task.proxy_labels(split).shape == (len(split),)
        assert (split.fingerprints.shape, split.fingerprints.dtype) == ((len(split),), np.uint64)
        assert np.array_equal(back.fingerprints, split.fingerprints[::-1])
    other = data.with_splits(train=data.val, val=data.train, test=data.test)
    assert same(task, other.val, data.train)
    assert not same(task, other.val, data.val)
    assert (other.name, other.classes, other.output_size) == (data.name, data.classes, data.output_size)
    assert data.with_preprocess(data.preprocess).preprocess == data.preprocess
    error = task.standard_error(0.5, data.val)
    assert error is None or error > 0


def check_data_reach_other_processes(task: Any, data: Any, folder: Path) -> None:
    """By memory-mapped arrays and by pickling."""
    for given in (data, data.with_splits(train=data.train, val=data.val, test=data.test.take([]))):
        for read in (share(given, folder / "shared").load(), pickle.loads(pickle.dumps(given))):  # noqa: S301
            assert (read.task, read.name, read.classes) == (data.task, data.name, data.classes)
            assert read.preprocess == data.preprocess
            assert all(same(task, getattr(given, split), getattr(read, split)) for split in SPLITS)


def cheapest(data: Any, space: SearchSpace) -> Architecture:
    """The cheapest of a few networks."""
    rows = space.sample(32, np.random.default_rng(0))
    return space.architecture(rows[space.costs(rows, data.output_size)["macs"].argmin()])


def check_inputs(task: Any, data: Any, space: SearchSpace) -> None:
    """Data are given as the space's networks take them; what is searched follows the data."""
    signature = space.signature(cheapest(data, space), data.output_size)
    assert signature.output.size == data.output_size
    split = data.for_input("train", signature.input)
    assert split.input == signature.input
    inputs = data.inputs(split.some(BATCH))
    assert inputs.shape == signature.input.batched(BATCH)
    assert inputs.dtype == np.dtype(signature.input.dtype)
    assert np.array_equal(data.inputs(data.for_input("train", signature.input).some(BATCH)), inputs)
    assert task.input_label(signature.input)
    part = task.searchable(space, data, {})
    rows = part.sample(4, np.random.default_rng(0))
    assert all(part.signature(part.architecture(row), data.output_size).output.size == data.output_size for row in rows)


def check_learning_and_evaluating(task: Any, data: Any, space: SearchSpace) -> None:
    """A network is trained, and torch and a runtime give it the same accuracy."""
    arch = cheapest(data, space)
    description = NetworkDescription.of_architecture(space, arch, data.output_size)
    signature = description.signature
    recipe = task.recipe(epochs=1, batch_size=4, precision="fp32")
    network, result = trained(description, data, ShortTraining(recipe))
    assert len(result.curve) == 1
    assert 0 <= result.accuracy <= 1
    val = data.for_input("val", signature.input)
    in_torch = task.accuracy(network, val, data.preprocess)
    assert in_torch == pytest.approx(result.accuracy, abs=1e-6)
    sizes = []

    def run(inputs: np.ndarray) -> np.ndarray:
        sizes.append(len(inputs))
        with torch.inference_mode():
            return network(torch.from_numpy(inputs)).numpy()

    again = task.accuracy_in_runtime(run, val, data.preprocess, signature, batch=BATCH)
    assert again == pytest.approx(in_torch, abs=1e-3)
    assert set(sizes) == {BATCH}, "an exported file may take no other number of examples"
    figures = task.figures_in_runtime(run, val, data.preprocess, signature, classes=data.classes, batch=BATCH)
    assert next(iter(figures)) == task.metric
    assert figures[task.metric] == pytest.approx(again)
    raw = run(data.inputs(val))
    assert raw.shape[1:] == signature.output.shape
    assert raw.dtype == np.float32
    assert task.agreement(raw, raw + np.float32(1e-6), signature) == 1.0
    hits = task.hits(raw, val, signature)
    if hits is not None:
        assert hits.shape == (len(val),)
        assert hits.mean() == pytest.approx(again, abs=1e-3)
        kept = AnswersKept(run, task, val, signature)
        one_by_one = kept.answers(task.accuracy_in_runtime(kept, val, data.preprocess, signature, batch=BATCH))
        assert one_by_one is not None
        assert one_by_one.hits.tolist() == hits.tolist(), "examples are asked about in their order"
    for preprocess in task.usual_preprocess(data).values():
        assert data.inputs(val).shape == data.with_preprocess(preprocess).inputs(val).shape


def check_floors(task: Any, data: Any) -> None:
    """Fractions, the same for the same seed, and plain values for a document."""
    floors = task.floors(data, 0)
    for floor in floors:
        assert 0 <= floor.accuracy <= 1
        assert floor.test is None or 0 <= floor.test <= 1
        json.dumps(floor.to_json())
    assert [(f.name, f.accuracy) for f in task.floors(data, 0)] == [(f.name, f.accuracy) for f in floors]


def check_scores(task: Any, data: Any, space: SearchSpace) -> None:
    """Zero-cost scores hang on the arguments alone."""
    arch = cheapest(data, space)
    scores = candidate_scores(space, data, arch, 4, 0)
    assert scores.shape == (len(task.proxies),)
    assert np.isfinite(scores).any() or not task.proxies
    assert np.array_equal(scores, candidate_scores(space, data, arch, 4, 0), equal_nan=True)


def check_artifacts(task: Any, data: Any, space: SearchSpace, folder: Path) -> None:
    """Documents are read back, the sample too, and answers are plain values."""
    artifacts = task.artifacts
    description = NetworkDescription.of_architecture(space, cheapest(data, space), data.output_size)
    signature = description.signature
    bundle = folder / "bundle"
    bundle.mkdir()
    assert artifacts.read_preprocess(bundle) is None
    (bundle / "labels.json").write_text(json.dumps(list(data.classes)))
    for name, document in artifacts.documents(data.preprocess, signature).items():
        (bundle / name).write_text(json.dumps(document))
    assert artifacts.read_preprocess(bundle) == data.preprocess

    inputs, sample = artifacts.write_sample(bundle, data, signature.input)
    assert inputs.shape == signature.input.batched(1)
    assert np.array_equal(artifacts.read_sample(bundle, json.loads(json.dumps(sample))), inputs)
    usual = artifacts.usual_example(bundle, json.loads(json.dumps(sample)))
    assert artifacts.processor(bundle).preprocess(usual).inputs.shape == signature.input.batched(1)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = description.build().eval()

    def run(given: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return network(torch.from_numpy(given)).numpy()

    (output,) = run(inputs)
    stored = json.loads(json.dumps(artifacts.write_output(bundle, output)))
    np.testing.assert_allclose(artifacts.read_output(bundle, stored), output, rtol=1e-6)
    answers = artifacts.processor(bundle).postprocess
    found = answers(output, artifacts.processor(bundle).preprocess(example_of(bundle, sample)).context)
    assert json.loads(json.dumps(found)) == found

    figures = artifacts.figures(run, data, signature, 1)
    json.dumps([dict(figures.accuracy), dict(figures.more)])
    sheet = artifacts.sheet(run, data, signature, 1)
    assert sheet is None or sheet.png.startswith(b"\x89PNG")
    script = artifacts.script(signature)
    assert "{run}" in script
    ast.parse(script.replace("{imports}", "").replace("{run}", "output = inputs"))


def example_of(bundle: Path, sample: dict[str, Any]) -> Any:
    """The stored example as a person would give it: the file that `sample.json` names, or its one list of numbers."""
    file = sample.get("image")
    return bundle / file if file is not None else sample["example"]
