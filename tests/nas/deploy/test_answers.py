"""Answers that are kept one by one, and what they say of the difference between two networks."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from nas.baseline.contract import Z_90, paired_loss
from nas.data import ImageData
from nas.deploy.answers import Answers, AnswersKept, difference_error
from nas.tasks import task_of
from nas.tasks.task import Task
from search_spaces import Signature
from tests.nas.small_bundles import digits

SIGNATURE = cast(Signature, None)  # right answers of classes need none
BATCH = 7


@given(st.lists(st.booleans(), max_size=40))
def test_answers_outlive_the_process(hits: list[bool]) -> None:
    found = Answers.of(np.array(hits, np.bool_))
    again = Answers.from_json(found.to_json())
    assert again == found
    assert again.hits.tolist() == hits


def test_answers_that_are_cut_short_are_refused() -> None:
    document = Answers.of(np.ones(20, np.bool_)).to_json()
    with pytest.raises(ValueError, match="20 answers do not fit 2 bytes"):
        Answers.from_json(document | {"right": document["right"][:4]})


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
def test_the_error_of_a_difference_is_that_of_the_interval_of_a_loss(pairs: list[tuple[bool, bool]]) -> None:
    one, other = np.array(pairs, np.bool_).T
    loss = paired_loss(one, other)
    error = difference_error(Answers.of(one), Answers.of(other))
    assert error == pytest.approx((loss.high - loss.low) / 2 / Z_90)
    assert error == difference_error(Answers.of(other), Answers.of(one)) > 0


def test_networks_of_other_examples_are_not_compared() -> None:
    with pytest.raises(ValueError, match="got 3 and 4"):
        difference_error(Answers.of(np.ones(3, np.bool_)), Answers.of(np.ones(4, np.bool_)))


def test_a_run_that_keeps_its_answers_counts_them_as_the_task_does() -> None:
    data = digits(val=20)
    outputs = np.random.default_rng(0).random((20, 10), np.float32)
    kept, accuracy = _asked(task_of(data), outputs, data)
    found = kept.answers(accuracy)
    assert found is not None
    assert found.hits.tolist() == (outputs.argmax(axis=1) == data.val.labels).tolist()
    assert kept.answers(accuracy + 0.01) is None, "a metric that is no share of right answers"


def test_a_task_that_counts_no_answers_has_none() -> None:
    split = digits(val=20).val
    uncounted = SimpleNamespace(hits=lambda outputs, split, signature: None)
    kept = AnswersKept(lambda inputs: np.zeros((BATCH, 10), np.float32), cast(Any, uncounted), split, SIGNATURE)
    for _ in range(3):
        assert kept(np.zeros((BATCH, 3, 8, 8), np.float32)).shape == (BATCH, 10)
    assert kept.answers(0.0) is None


def _asked(task: Task[Any, Any], outputs: NDArray[np.float32], data: ImageData) -> tuple[AnswersKept, float]:
    """All of the validation split in batches, the last one filled up with copies; with the accuracy."""
    filled = np.concatenate([outputs, np.repeat(outputs[-1:], BATCH, axis=0)])
    batches = iter([filled[start : start + BATCH] for start in range(0, len(outputs), BATCH)])
    kept = AnswersKept(lambda inputs: next(batches), task, data.val, SIGNATURE)
    return kept, task.accuracy_in_runtime(kept, data.val, data.preprocess, SIGNATURE, batch=BATCH)
