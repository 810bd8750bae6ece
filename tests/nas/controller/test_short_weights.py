"""Nothing is handed over that is worse than it was when it was chosen."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from nas.controller.runs.records import Before, trained_network
from nas.controller.runs.short_weights import ShortWeights
from nas.executors import Journal, Outcome
from nas.executors.training import train_briefly
from nas.networks.weights import weights_of
from nas.tasks import TASKS
from tests.nas.executors.tasks import task, tiny_data


def short_outcome() -> Outcome:
    found = train_briefly(task(), tiny_data())
    assert isinstance(found, Outcome)
    return found


def test_weights_are_kept_found_and_forgotten(tmp_path: Path) -> None:
    kept = ShortWeights(tmp_path / "weights")
    assert kept.find("a") is None
    kept.forget_others("search", ["a"])
    for name in ("a", "b"):
        kept.keep("search", name, name.encode())
    kept.keep("search", "a", b"again")
    kept.keep("random", "c", b"c")
    kept.forget_others("search", ["a"])
    found = kept.find("a")
    assert found is not None
    assert found.read_bytes() == b"again"
    assert kept.find("b") is None
    assert kept.find("c") is not None, "of another study"


@pytest.mark.parametrize("accuracy", [0.0, 1.0])
def test_the_better_weights_are_delivered(tmp_path: Path, accuracy: float) -> None:
    """A time limit of nothing: the full training learns nothing."""
    short = short_outcome()
    assert short.weights is not None
    path = tmp_path / "short.safetensors"
    path.write_bytes(short.weights)
    description, data = task().description, tiny_data()
    recipe = TASKS["classification"].recipe(epochs=4, batch_size=8, precision="fp32", time_limit_s=1e-3)
    before = Before(path, accuracy)
    network, outcome = trained_network(tmp_path / "network", description, data, recipe, before)
    same = weights_of(network) == short.weights
    assert same == outcome.by_short_training == (accuracy == 1.0)
    assert outcome.epochs == 0
    assert outcome.accuracy == accuracy if same else outcome.accuracy >= accuracy
    again, known = trained_network(tmp_path / "network", description, data, recipe, before)
    assert known == replace(outcome, reused=True)
    assert weights_of(again) == weights_of(network)


def test_a_short_training_hands_out_its_network(tmp_path: Path) -> None:
    short, data = short_outcome(), tiny_data()
    assert short.weights is not None
    path = tmp_path / "short.safetensors"
    path.write_bytes(short.weights)
    recipe = TASKS["classification"].recipe(epochs=1, batch_size=8, precision="fp32", time_limit_s=1e-3)
    network, _ = trained_network(tmp_path / "network", task().description, data, recipe, Before(path, 2.0))
    with torch.no_grad():
        classes = network(data.preprocess.tensor(torch.from_numpy(data.val.images))).argmax(1).numpy()
    assert float(np.mean(classes == data.val.labels)) == pytest.approx(short.accuracy)


def test_the_journal_keeps_weights_too(tmp_path: Path) -> None:
    journal, outcome = Journal(tmp_path / "outcomes"), short_outcome()
    journal.write(task(1), outcome)
    assert journal.find(task(1)) == outcome
    journal.write(task(2), replace(outcome, weights=None))
    assert journal.find(task(2)) == replace(outcome, weights=None)
    journal.write(task(1), replace(outcome, weights=None))
    assert journal.find(task(1)) == replace(outcome, weights=None), "not with the weights it had before"
    for number in (1, 2):
        journal.forget(task(number))
    assert list((tmp_path / "outcomes").iterdir()) == []
    assert Outcome.from_json(outcome.to_json()) == replace(outcome, weights=None)


def test_a_training_that_came_to_its_end_counts_under_any_time_limit(tmp_path: Path) -> None:
    description, data = task().description, tiny_data()
    recipe = TASKS["classification"].recipe(epochs=1, batch_size=8, precision="fp32", time_limit_s=1e3)
    _, first = trained_network(tmp_path, description, data, recipe)
    assert (first.stopped, first.reused) == (None, False)
    for limit in (1e4, None, 2e-3):
        _, again = trained_network(tmp_path, description, data, recipe.changed(time_limit_s=limit))
        assert again == replace(first, reused=True)
    _, other = trained_network(tmp_path, description, data, recipe.changed(epochs=2))
    assert not other.reused
    _, cut = trained_network(tmp_path, description, data, recipe.changed(epochs=4, time_limit_s=1e-3))
    assert cut.stopped == "time limit"
    _, longer = trained_network(tmp_path, description, data, recipe.changed(epochs=4, time_limit_s=2e-3))
    assert not longer.reused, "it might get further"
