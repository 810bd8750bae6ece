"""Splits by content: what is added or removed moves nothing else."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from nas.data.contents import Contents, contents_of_arrays, drawn, hold_out, labelled
from nas.data_options import DataOptions
from nas.tasks.classification.data.registry import load_dataset


def labels_and_contents(counts: list[int], seed: int) -> tuple[np.ndarray, Contents]:
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    return labels, rng.integers(0, 2**64, len(labels), dtype=np.uint64)


@given(
    counts=st.lists(st.integers(3, 60), min_size=1, max_size=6),
    fraction=st.floats(0.01, 0.9),
    seed=st.integers(0, 99),
    keep=st.integers(1, 2),
)
@settings(max_examples=60, deadline=None)
def test_every_class_is_on_both_sides(counts: list[int], fraction: float, seed: int, keep: int) -> None:
    labels, contents = labels_and_contents(counts, seed)
    kept, held = hold_out(labels, contents, fraction, "val 0", keep=keep)
    assert sorted([*kept, *held]) == list(range(len(labels)))
    for label, count in enumerate(counts):
        assert 1 <= int((labels[held] == label).sum()) <= count - keep


def test_a_class_that_is_too_small_is_kept_whole() -> None:
    labels, contents = labels_and_contents([2, 5, 1], 0)
    kept, held = hold_out(labels, contents, 0.15, "val 0", keep=2)
    assert set(labels[held]) == {1}
    assert len(kept) + len(held) == 8
    assert len(hold_out(labels, contents, 0.15, "val 0", keep=9)[1]) == 0


@given(seed=st.integers(0, 2**32 - 1), added=st.integers(1, 50))
@settings(max_examples=40, deadline=None)
def test_what_is_added_moves_no_other(seed: int, added: int) -> None:
    labels, contents = labels_and_contents([200, 120], seed)
    _, before = hold_out(labels, contents, 0.15, "test 0")
    more_labels, more = labels_and_contents([added], seed + 1)
    order = np.random.default_rng(seed).permutation(len(labels) + added)  # where they lie does not matter
    all_labels, everything = np.concatenate([labels, more_labels])[order], np.concatenate([contents, more])[order]
    kept, held = hold_out(all_labels, everything, 0.15, "test 0")
    assert set(contents[before]) == set(everything[held]) - set(more)
    assert not set(contents) - set(contents[before]) - set(everything[kept])


def test_the_share_is_what_was_asked_for_and_follows_the_seed() -> None:
    labels, contents = labels_and_contents([20_000], 0)
    held = [hold_out(labels, contents, 0.15, f"val {seed}")[1] for seed in range(2)]
    for found in held:
        assert len(found) == pytest.approx(3000, abs=5 * np.sqrt(20_000 * 0.15 * 0.85))
    assert len(np.intersect1d(*held)) == pytest.approx(450, abs=5 * np.sqrt(450)), "two seeds draw independently"
    position = drawn(contents, "x")
    assert position.min() >= 0
    assert position.max() < 1


def test_copies_lie_on_one_side_and_labels_count() -> None:
    images = np.random.default_rng(0).integers(0, 256, (30, 8, 8, 3), dtype=np.uint8)
    twice = contents_of_arrays(np.concatenate([images, images]))
    assert np.array_equal(twice[:30], twice[30:])
    assert len(set(twice)) == 30
    kept, held = hold_out(np.zeros(60, np.int64), twice, 0.3, "val 0")
    assert not set(twice[kept]) & set(twice[held])
    assert (labelled(twice, [b"a"] * 60) != labelled(twice, [b"b"] * 60)).all()


def test_one_photo_more_holds_out_no_former_training_image(tmp_path: Path) -> None:
    """The files decide, not their names, order or the size they are stored at."""
    rng = np.random.default_rng(0)
    for name, count in (("cat", 60), ("dog", 40)):
        (tmp_path / name).mkdir()
        for number in range(count):
            pixels = rng.integers(0, 256, (40, 40, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{number:03}.png")
    before = load_dataset(str(tmp_path))
    pixels = rng.integers(0, 256, (48, 48, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "cat" / "000a.png")
    after = load_dataset(str(tmp_path), options=DataOptions(max_resolution=32))
    for split in ("val", "test"):
        held, was = set(getattr(after, split).contents), set(getattr(before, split).contents)
        assert was <= held
        assert not held & set(before.train.contents)
    assert len(set(after.train.contents) ^ set(before.train.contents)) <= 1
