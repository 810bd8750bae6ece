"""The functions that run inside Spark and Ray Data give the rows of `nas predict`."""

from functools import partial
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from nas.bundles.predictor import Predictor
from nas.errors import UserError
from nas.scoring.frames import SPARK_SCHEMA, TableScorer, score_frames
from nas.scoring.rows import schema, table_of
from nas.scoring.scorer import Item, score
from tests.nas.scoring.conftest import write_images

pytestmark = pytest.mark.xdist_group("scoring")


def test_frames_and_tables(bundle: Path, tmp_path: Path) -> None:
    paths = [*write_images(tmp_path, 3), tmp_path / "gone.jpg"]
    expected = table_of(score(Predictor.open(bundle, threads=1), [Item(str(path), str(path)) for path in paths]))
    by_path = pd.DataFrame({"path": [str(path) for path in paths], "more": 1})
    contents = [path.read_bytes() for path in paths[:3]]
    by_content = pd.DataFrame({"path": by_path["path"][:3], "content": contents})
    mapped = list(partial(score_frames, bundle=str(bundle))(iter([by_path, by_content])))
    for frame, count in zip(mapped, (4, 3), strict=True):
        # As Spark makes a table of a frame: column by column, by the types of the schema.
        columns = [pa.Array.from_pandas(frame[field.name], type=field.type) for field in schema()]
        assert pa.table(columns, schema=schema()) == expected[:count]
    scorer = TableScorer(str(bundle))
    assert scorer(pa.Table.from_pandas(by_path)) == expected
    alone = scorer(pa.table({"content": contents}))
    assert alone["label"] == expected["label"][:3]
    assert alone["path"].to_pylist() == ["0", "1", "2"]
    with pytest.raises(UserError, match="neither a column 'path'"):
        scorer(pa.table({"image": contents}))


def test_spark_knows_the_columns_of_a_row() -> None:
    kinds = {"string": pa.string(), "double": pa.float64(), "int": pa.int32()}
    columns = [part.split(" ") for part in SPARK_SCHEMA.split(", ")]
    assert [name for name, _ in columns] == schema().names
    for name, kind in columns:
        depth = kind.count("array<")
        found = schema().field(name).type
        for _ in range(depth):
            found = found.value_type
        assert found == kinds[kind.replace("array<", "").rstrip(">")], name
