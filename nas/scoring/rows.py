"""What is written of one image: a row of plain values, and the columns of many of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

Box = tuple[float, float, float, float]
"""Edges x0, y0, x1, y1 in pixels of the upright picture."""
Point = tuple[float, float, float]
"""x and y in pixels of the upright picture, which it may lie outside of, and a confidence in [0, 1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One image and the answer of the network, or why there is none."""

    path: str
    label: str | None = None
    """The surest class, or the class of the surest object; None with an error, and where no object was found."""
    score: float | None = None
    error: str | None = None
    """Why there is no answer, in a sentence; None where there is one."""
    labels: tuple[str, ...] | None = None
    """The surest classes, or the classes of all objects, the surest first."""
    scores: tuple[float, ...] | None = None
    """Those of `labels`."""
    boxes: tuple[Box, ...] | None = None
    """Of a detector alone: those of `labels`."""
    points: tuple[tuple[Point, ...], ...] | None = None
    """Of poses alone: the points of each of `labels`, in the order of the bundle's skeleton; None also where there is
    no pose."""
    width: int | None = None
    """In pixels of the upright picture."""
    height: int | None = None


def answered(path: str, answer: Sequence[Mapping[str, Any]], size: tuple[int, int] | None, top: int) -> Row:
    """The row of an image with its answer (see `nas.bundles.predictor.Answer`) and size (width, height).

    Of classes, the `top` surest are kept; of objects, all.
    """
    boxes = None if answer and "xyxy" not in answer[0] else tuple(_box(found["xyxy"]) for found in answer)
    points = tuple(_points(found["points"]) for found in answer) if answer and "points" in answer[0] else None
    kept = answer[:top] if boxes is None else answer
    width, height = size or (None, None)
    return Row(
        path=path,
        label=kept[0]["label"] if kept else None,
        score=kept[0]["score"] if kept else None,
        labels=tuple(found["label"] for found in kept),
        scores=tuple(found["score"] for found in kept),
        boxes=boxes,
        points=points,
        width=width,
        height=height,
    )


def _box(edges: Sequence[float]) -> Box:
    x0, y0, x1, y1 = (float(edge) for edge in edges)
    return x0, y0, x1, y1


def _points(points: Sequence[Sequence[float]]) -> tuple[Point, ...]:
    return tuple((float(x), float(y), float(confidence)) for x, y, confidence in points)


def row_of_json(document: Mapping[str, Any]) -> Row:
    """What `dataclasses.asdict` of a row has become on its way through JSON."""
    lists = {name: None if document[name] is None else tuple(document[name]) for name in ("labels", "scores")}
    boxes, points = document["boxes"], document.get("points")
    places = {
        "boxes": None if boxes is None else tuple(_box(box) for box in boxes),
        "points": None if points is None else tuple(_points(own) for own in points),
    }
    return Row(**{**document, **lists, **places})


def schema() -> "pa.Schema":
    """The columns of a table of rows: the fields of `Row`, all but `path` nullable."""
    import pyarrow as pa

    text, number = pa.string(), pa.float64()
    return pa.schema(
        [
            pa.field("path", text, nullable=False),
            pa.field("label", text),
            pa.field("score", number),
            pa.field("error", text),
            pa.field("labels", pa.list_(text)),
            pa.field("scores", pa.list_(number)),
            pa.field("boxes", pa.list_(pa.list_(number, 4))),
            pa.field("points", pa.list_(pa.list_(pa.list_(number, 3)))),
            pa.field("width", pa.int32()),
            pa.field("height", pa.int32()),
        ]
    )


def table_of(rows: Iterable[Row], more: "pa.Schema | None" = None) -> "pa.Table":
    """Rows as a table of `schema`, or of another one that names a part of its columns."""
    import pyarrow as pa

    return pa.Table.from_pylist([asdict(row) for row in rows], schema=more or schema())


def table_bytes(table: "pa.Table") -> bytes:
    """A Parquet file of `table`: the same bytes for the same rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content
