"""The class that a bundle names first is the one that accuracies count, also where logits are equal."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nas.tasks.classification import portable as of_images
from nas.tasks.classification.evaluate import right_answers
from nas.tasks.text import portable as of_texts

CLASSES = 20  # of more than 16 numbers numpy's usual order of equal ones is not theirs


@pytest.mark.parametrize("postprocess", [of_images.postprocess, of_texts.postprocess])
@given(values=st.lists(st.integers(-2, 2), min_size=CLASSES, max_size=CLASSES))
def test_of_equal_logits_the_first_counts(postprocess: Callable[..., list[dict[str, Any]]], values: list[int]) -> None:
    output = np.array(values, np.float32)
    named = postprocess(output, [str(at) for at in range(CLASSES)])
    (right,) = right_answers(output[None], np.array([int(named[0]["label"])]))
    assert right
    scores = [answer["score"] for answer in named]
    assert scores == sorted(scores, reverse=True)
    assert sorted(int(answer["label"]) for answer in named) == list(range(CLASSES))
