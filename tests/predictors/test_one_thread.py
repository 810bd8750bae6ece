"""Small linear algebra on one thread."""

import numpy as np
from threadpoolctl import ThreadpoolController

import predictors.one_thread as module
from predictors.one_thread import one_thread


def blas_threads() -> set[int]:
    np.linalg.cholesky(np.eye(2))
    return {pool["num_threads"] for pool in ThreadpoolController().info() if pool["user_api"] == "blas"}


def test_blas_has_one_thread_inside_and_what_it_had_outside() -> None:
    with ThreadpoolController().limit(limits=2, user_api="blas"):
        before = blas_threads()
        with one_thread():
            assert blas_threads() == {1}
            with one_thread():
                assert blas_threads() == {1}
            assert blas_threads() == {1}
        assert blas_threads() == before != {1}


def test_libraries_are_looked_up_once() -> None:
    with one_thread():
        made = module._libraries()
    with one_thread():
        assert module._libraries() is made
