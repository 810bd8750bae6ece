"""Data as they are: classes of very different size, and accuracies that count each of them as much."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from nas.data import ImageData, ImageSplit, RawImages
from nas.data.splits import class_weights, complete
from nas.data_options import DataOptions
from nas.executors.shared_data import without_files
from nas.tasks.classification import balanced_accuracy, loss
from nas.tasks.classification.evaluate import evaluate_accuracy, hits_in_runtime
from nas.tasks.classification.floors import share_right
from nas.tasks.classification.task import Classification, counting_std
from nas.tasks.floor import guessing

NAMES = ("common", "rare", "single")


def split(counts: Sequence[int], seed: int = 0) -> ImageSplit:
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(counts)), counts)
    return ImageSplit(rng.integers(0, 256, (len(labels), 8, 8, 3), dtype=np.uint8), labels)


def tailed(**options: object) -> ImageData:
    return complete("x", RawImages(NAMES, split([400, 6, 1])), seed=0, options=DataOptions(**options))  # type: ignore[arg-type]


class Constant(torch.nn.Module):
    """Always the first class."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.tensor([1.0, 0.0, 0.0]).expand(len(images), 3)


def test_rare_classes_are_kept_and_told_of_in_one_sentence() -> None:
    data = tailed()
    (remark,) = [note for note in data.notes if "rare classes" in note]
    assert "1 of 3 classes have no image in val ('single')" in remark
    assert "2 have fewer than 10 training images ('rare', 'single')" in remark
    assert [set(s.labels) for s in (data.train, data.val, data.test)] == [{0, 1, 2}, {0, 1}, {0, 1}]
    even = complete("x", RawImages(NAMES, split([20, 20, 20])), seed=0)
    assert not [note for note in even.notes if "rare classes" in note]


def test_a_class_may_be_absent_where_networks_are_judged() -> None:
    data = complete("x", RawImages(NAMES, split([20, 20, 20]), split([4, 4]), split([5, 0, 5])), seed=0)
    (remark,) = data.notes
    assert remark.count("have no image in") == 2


def test_balanced_accuracy_counts_classes_and_not_images() -> None:
    labels = np.array([0] * 8 + [2] * 2)
    assert balanced_accuracy(labels == 0, labels) == pytest.approx(0.5)
    hits = np.array([True] * 4 + [False] * 4 + [True, True])
    assert balanced_accuracy(hits, labels) == pytest.approx(0.75)


def test_the_metric_is_honoured_wherever_networks_are_judged() -> None:
    task = Classification()
    plain, balanced = tailed(), tailed(metric="balanced-accuracy")
    assert (task.metric_of(plain), task.metric_of(balanced)) == ("accuracy", "balanced accuracy")
    share = float((plain.val.labels == 0).mean())
    for data, expected in ((plain, share), (balanced, 0.5)):
        assert evaluate_accuracy(Constant(), data.val, data.preprocess) == pytest.approx(expected)
        assert guessing(data.train, data.val, data.test, share_right).accuracy == pytest.approx(expected)
        sent = without_files(data)  # as another process has it
        assert evaluate_accuracy(Constant(), sent.val.take(range(len(sent.val))), data.preprocess) == pytest.approx(
            expected
        )
        resized = data.at("val", 16)
        assert evaluate_accuracy(Constant(), resized, data.preprocess) == pytest.approx(expected)
    assert share > 0.9


def test_both_figures_are_told_and_the_metric_first() -> None:
    def run(inputs: np.ndarray) -> np.ndarray:
        return np.tile(np.float32([1, 0, 0]), (len(inputs), 1))

    task = Classification()
    for data, first in ((tailed(), "accuracy"), (tailed(metric="balanced-accuracy"), "balanced accuracy")):
        figures = task.figures_in_runtime(run, data.test, data.preprocess, None, classes=NAMES)  # type: ignore[arg-type]
        assert next(iter(figures)) == first
        assert figures["accuracy"] == pytest.approx(hits_in_runtime(run, data.test, data.preprocess).mean())
        assert figures["balanced accuracy"] == pytest.approx(0.5)


def test_a_balanced_accuracy_of_few_rare_images_is_less_sure() -> None:
    task = Classification()
    plain, balanced = tailed(), tailed(metric="balanced-accuracy")
    unsure, sure = task.standard_error(0.7, balanced.val), task.standard_error(0.7, plain.val)
    assert unsure is not None
    assert sure is not None
    assert unsure > 1.3 * sure
    labels = np.repeat([0, 1], 50)
    even = ImageSplit(np.zeros((100, 8, 8, 3), np.uint8), labels, balanced=True)
    assert task.standard_error(0.7, even) == pytest.approx(counting_std(0.7, 100))


def test_class_weights_make_rare_examples_count() -> None:
    labels = np.array([0] * 9 + [1])
    weights = class_weights(labels, 3)
    assert weights == pytest.approx((10 / 18, 5.0, 1.0))
    assert np.mean([weights[label] for label in labels]) == pytest.approx(1)
    logits, targets = torch.zeros(10, 3), torch.from_numpy(labels)
    logits[9, 0] = 4.0  # the rare one is answered wrong
    assert loss(logits, targets, class_weights=torch.tensor(weights)) > 1.5 * loss(logits, targets)
    data = tailed(class_weights=True)
    assert data.traits.class_weights == class_weights(data.train.labels, 3)
    assert tailed().traits.class_weights is None
