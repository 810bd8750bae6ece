"""A bundle inside engines that hold many tables: Spark's `mapInPandas` and Ray Data's `map_batches`.

A table has a column `content` (bytes of image files) or a column `path` (where they lie), or both; what comes back are
the columns of `nas.scoring.rows.Row`. A bad image is a row with an error, never an exception.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from nas.bundles.predictor import Predictor
from nas.errors import UserError
from nas.scoring.rows import Row, table_of
from nas.scoring.scorer import TOP, Item, score

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

SPARK_SCHEMA = (
    "path string, label string, score double, error string, labels array<string>, scores array<double>, "
    "boxes array<array<double>>, points array<array<array<double>>>, width int, height int"
)
"""The columns, as Spark writes them."""


def score_frames(frames: "Iterable[pd.DataFrame]", bundle: str, *, top: int = TOP) -> "Iterator[pd.DataFrame]":
    """Score frame after frame; the bundle is opened once, by the process that works.

    For Spark: `images.mapInPandas(partial(score_frames, bundle=folder), SPARK_SCHEMA)`.

    Raises:
        UserError: no such bundle on this machine, or a frame without `path` and `content`.
    """
    import pandas as pd

    predictor = Predictor.open(bundle, threads=1)
    names = [field.name for field in fields(Row)]
    for frame in frames:
        columns = {name: frame[name].tolist() for name in ("path", "content") if name in frame}
        rows = score(predictor, _items(columns, len(frame)), top=top)
        # Objects: a column of numbers could not hold the lack of one.
        yield pd.DataFrame([asdict(row) for row in rows], columns=names, dtype=object)


class TableScorer:
    """Scores one Arrow table a call.

    For Ray Data: `images.map_batches(TableScorer, fn_constructor_args=(folder,), batch_format="pyarrow", ...)`.
    """

    def __init__(self, bundle: str, top: int = TOP) -> None:
        """Raises `UserError` where there is no such bundle on this machine."""
        self._predictor = Predictor.open(bundle, threads=1)
        self._top = top

    def __call__(self, table: "pa.Table") -> "pa.Table":
        """Raises `UserError` for a table without `path` and `content`."""
        columns = {name: table[name].to_pylist() for name in ("path", "content") if name in table.column_names}
        return table_of(score(self._predictor, _items(columns, len(table)), top=self._top))


def _items(columns: dict[str, list[Any]], count: int) -> list[Item]:
    if not columns:
        raise UserError("the table has neither a column 'path' nor a column 'content'", "name one of them so")
    paths = [str(path) for path in columns.get("path", range(count))]
    sources = columns.get("content", paths)
    return [Item(path, source) for path, source in zip(paths, sources, strict=True)]
