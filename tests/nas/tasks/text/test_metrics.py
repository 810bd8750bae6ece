"""Macro-F1 and accuracy against scikit-learn's, and in the task's figures."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from nas.data_options import DataOptions
from nas.tasks import TASKS
from nas.tasks.text import answers, f1_scores, macro_f1
from search_spaces import resolve_space
from tests.nas.tasks.text.sentences import text_data


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40))
def test_as_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    found, labels = (np.array(column, dtype=np.int64) for column in zip(*pairs, strict=True))
    present = np.unique(labels)
    expected = f1_score(labels, found, labels=present, average="macro", zero_division=0.0)
    assert macro_f1(found, labels) == pytest.approx(expected)
    assert np.isnan(f1_scores(found, labels, 4)).tolist() == [at not in present for at in range(4)]


def test_what_is_no_number_is_no_answer() -> None:
    logits = np.array([[0.0, 1.0], [np.nan, 1.0], [np.inf, 0.0], [2.0, 1.0]], np.float32)
    assert answers(logits).tolist() == [1, -1, -1, 0]


def test_the_figure_of_merit_follows_the_data() -> None:
    task, space = TASKS["text"], resolve_space("text")
    for name, first in (("accuracy", "accuracy"), ("macro-f1", "macro-F1")):
        data = text_data(options=DataOptions(metric=name))  # type: ignore[arg-type]
        arch = space.restricted({"tokens": [16], "vocab": [1000]}).anchors[1]
        signature = space.signature(arch, (2,))
        val = data.for_input("val", signature.input)

        def run(ids: np.ndarray) -> np.ndarray:
            """Class 1 for texts of ten tokens or more."""
            many = (ids != 0).sum(1) >= 10
            return np.stack([~many, many], 1).astype(np.float32)

        figures = task.figures_in_runtime(run, val, data.preprocess, signature, classes=data.classes, batch=3)
        assert next(iter(figures)) == first == task.metric_of(data)
        assert task.accuracy_in_runtime(run, val, data.preprocess, signature, batch=4) == figures[first]
        outputs = run(data.inputs(val))
        assert (task.hits(outputs, val, signature) is None) == (name == "macro-f1")
        assert 0 < task.standard_error(0.8, val) < 0.2  # type: ignore[operator]
