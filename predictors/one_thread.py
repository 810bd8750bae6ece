"""Small linear algebra on one thread: more of them gain nothing, and on a busy machine they wait for each other."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController


@contextmanager
def one_thread() -> Iterator[None]:
    """BLAS calls of this process use one thread while the block lasts, then as many as before. Also a decorator.

    Costs some 20 microseconds: the libraries are looked up once for a process, which takes milliseconds.
    """
    with _libraries().limit(limits=1, user_api="blas"):
        yield


@cache
def _libraries() -> ThreadpoolController:
    # A controller knows the libraries that are loaded when it is made: numpy and SciPy bring one each.
    import numpy.linalg  # noqa: F401
    import scipy.linalg  # noqa: F401

    return ThreadpoolController()
