"""Features of spaces that nothing is known about."""

import numpy as np

from predictors.accuracy_features import generic_views


def test_generic_views_code_by_rank() -> None:
    seen = np.array([[1, 8], [4, 8], [6, 9]])
    ordinal, one_hot = generic_views(seen)
    np.testing.assert_array_equal(ordinal(np.array([[4, 9], [5, 8]])), [[1, 1], [2, 0]])
    np.testing.assert_array_equal(one_hot(np.array([[4, 9], [5, 8]])), [[0, 1, 0, 0, 1], [0, 0, 0, 1, 0]])
