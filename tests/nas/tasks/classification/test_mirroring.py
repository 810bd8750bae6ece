"""Mirrored images that are of another class are found out; photographs are mirrored as before."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from nas.data_options import DataOptions
from nas.tasks.classification.data.registry import load_dataset
from nas.tasks.classification.mirroring import _turned, mirrored_where_it_may, turned_classes
from nas.tasks.classification.task import Classification
from tests.nas.evaluation.small import coloured_images


@pytest.fixture
def arrows(tmp_path: Path) -> Path:
    """Noisy pictures whose bright half tells left from right, and others that are bright above."""
    rng = np.random.default_rng(0)
    for name, rows, columns in (("left", slice(None), slice(16)), ("right", slice(None), slice(16, 32)),
                                ("up", slice(16), slice(None))):  # fmt: skip
        folder = tmp_path / "arrows" / name
        folder.mkdir(parents=True)
        for number in range(80):
            pixels = rng.integers(0, 120, (32, 32, 3))
            pixels[rows, columns] += 100
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.png")
    return tmp_path / "arrows"


def test_left_and_right_are_turned_and_what_stands_above_is_not(arrows: Path) -> None:
    task = Classification()
    data = task.load(str(arrows), seed=0)
    assert turned_classes(data) == ["left", "right"]
    assert not data.flip_ok
    (note,) = (note for note in data.notes if "mirrored" in note)
    assert "'left', 'right'" in note
    assert "--flip-anyway" in note


def test_who_asks_for_mirrored_images_gets_them(arrows: Path) -> None:
    task = Classification()
    asked, never = (
        task.load(str(arrows), seed=0, options=options)
        for options in (DataOptions(flip_anyway=True), DataOptions(flip=False))
    )
    assert asked.flip_ok
    assert not any("mirrored" in note for note in asked.notes)
    assert not never.flip_ok
    assert "images are never mirrored (--no-flip)" in never.notes


def test_digits_are_turned_and_colours_are_not() -> None:
    digits = load_dataset("digits")
    assert {"3", "6", "7"} <= set(turned_classes(replace(digits, flip_ok=True)))
    assert mirrored_where_it_may(digits) is digits, "it knows that already"
    colours = coloured_images(train=96, val=96)
    assert mirrored_where_it_may(colours) is colours


def test_few_images_decide_nothing(arrows: Path) -> None:
    data = load_dataset(str(arrows))
    few = data.with_splits(train=data.train, val=data.val.some(20), test=data.test)
    assert turned_classes(few) == []


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 3)), min_size=1, max_size=120))
def test_only_classes_that_were_known_and_lost_half_are_turned(answers: list[tuple[bool, bool, int]]) -> None:
    plain, mirrored, labels = (np.array(column) for column in zip(*answers, strict=True))
    assert _turned(plain, plain, labels) == []
    for label in _turned(plain, mirrored, labels):
        before, after = plain[labels == label], mirrored[labels == label]
        assert before.mean() >= 0.5
        assert after.sum() <= before.sum() / 2
        assert before.sum() - after.sum() > 9, "three standard deviations of at least so many that differ"
