"""From image files to rows in one process: decoded in threads, inferred in the calls that the bundle is made for.

The rows of a list of images depend on the list alone: neither on threads nor on what was tried before.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Self

import numpy as np

from nas.bundles.predictor import Predictor
from nas.data.decode import unreadable
from nas.errors import UserError
from nas.scoring.rows import Row, answered
from nas.tasks.artifacts import Prepared

TOP = 5
"""Classes of an answer that are kept by default."""
CHANGED = "it changed after it had been listed"
NO_ERRORS: Mapping[int, str] = MappingProxyType({})

Note = Callable[[int, str], None]
"""Told the number of an item and what is done with it, before it is done."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """What tells of a file that it is still the same one."""

    size_bytes: int
    mtime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Self:
        return cls(status.st_size, status.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class Item:
    """One image to score."""

    name: str
    """`Row.path`."""
    source: str | bytes
    """Path of its file, or the bytes of it."""
    stamp: Stamp | None = None
    """Of the file when it was listed; None: whatever is there."""


def score(
    predictor: Predictor,
    items: Sequence[Item],
    *,
    top: int = TOP,
    pool: ThreadPoolExecutor | None = None,
    ahead: int = 1,
    note: Note | None = None,
    given_up: Mapping[int, str] = NO_ERRORS,
) -> list[Row]:
    """One row for each item, in order.

    Args:
        predictor: used by the thread that calls.
        top: classes to keep.
        pool: threads that decode, up to `ahead` images before they are needed; None: the thread that calls decodes each
            image when it is its turn.
        note: called when an item's turn comes.
        given_up: the errors of items, by their number, that are not to be tried.
    """
    tell = note or (lambda index, phase: None)
    rows: dict[int, Row] = {index: Row(path=items[index].name, error=why) for index, why in given_up.items()}
    waiting: list[tuple[int, Prepared]] = []
    size = predictor.receipt.deployment.batch

    def infer() -> None:
        outputs = predictor.run(np.concatenate([prepared.inputs for _, prepared in waiting]))
        for (index, prepared), output in zip(waiting, outputs, strict=True):
            name = items[index].name
            if np.isfinite(output).all():
                answer = predictor.processor.postprocess(output, prepared.context)
                rows[index] = answered(name, answer, prepared.size, top)
            else:
                rows[index] = Row(path=name, error="the network's output is not a number")
        waiting.clear()

    tried = [index for index in range(len(items)) if index not in rows]
    for index, found in _prepared(predictor, items, tried, pool, ahead, tell):
        if isinstance(found, str):
            rows[index] = Row(path=items[index].name, error=found)
            continue
        waiting.append((index, found))
        if len(waiting) == size:
            infer()
    if waiting:
        infer()
    return [rows[index] for index in range(len(items))]


def _prepared(
    predictor: Predictor,
    items: Sequence[Item],
    tried: Sequence[int],
    pool: ThreadPoolExecutor | None,
    ahead: int,
    tell: Note,
) -> Iterator[tuple[int, Prepared | str]]:
    """The numbers `tried`, in order, each with the network's input or the reason why there is none."""
    if pool is None:
        for index in tried:
            tell(index, "decoding")
            yield index, _prepare(predictor, items[index])
        return
    under_way: deque[tuple[int, Future[Prepared | str]]] = deque()
    try:
        for index in tried:
            under_way.append((index, pool.submit(_prepare, predictor, items[index])))
            if len(under_way) > ahead:
                first, future = under_way.popleft()
                tell(first, "scoring")
                yield first, future.result()
        while under_way:
            first, future = under_way.popleft()
            tell(first, "scoring")
            yield first, future.result()
    finally:
        for _, future in under_way:
            future.cancel()


def _prepare(predictor: Predictor, item: Item) -> Prepared | str:
    """What the network takes, or the error of the row: everything that can be wrong with one file."""
    path = item.source if isinstance(item.source, str) else None
    try:
        if path is not None and item.stamp is not None and Stamp.of(os.stat(path)) != item.stamp:
            return CHANGED
        prepared = predictor.processor.preprocess(Path(path) if path is not None else item.source)
        if path is not None and item.stamp is not None and Stamp.of(os.stat(path)) != item.stamp:
            return CHANGED
    except OSError as error:  # of `stat`: the file is gone
        return str(unreadable(item.name, error))
    except UserError as error:
        # Rows name files as the job does, wherever they lie on the machine that reads them.
        return str(error) if path is None else str(error).replace(repr(path), repr(item.name))
    return prepared
