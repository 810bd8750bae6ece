"""Every single latency of a load test as a parquet file."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nas.files.writing import staged_file
from nas.loadtest.document import Made
from nas.loadtest.plan import ClosedLoop
from nas.loadtest.records import failure_name


def write_latencies(path: Path, made: Sequence[tuple[str, Made]]) -> None:
    """One row per request that counted: `server`, `purpose`, `run`, `load` (clients, or requests per second), `due_s`
    since the trial began to count, `lag_ms`, `latency_ms` (float32, infinite for failures) and `result` (`200`, `503`,
    `timeout`)."""
    import pyarrow as pa
    from pyarrow import parquet

    texts, whole, real, single = pa.string(), pa.int32(), pa.float64(), pa.float32()
    schema = pa.schema(
        {
            "server": texts, "purpose": texts, "run": whole, "load": real, "due_s": real, "lag_ms": single,
            "latency_ms": single, "result": texts,
        }
    )  # fmt: skip
    tables = [schema.empty_table()]
    for server, entry in made:
        counted, load = entry.trial.counted, entry.trial.load
        size = len(counted)
        codes, which = np.unique(counted.code, return_inverse=True)
        names = np.array([failure_name(int(code)) for code in codes] or [""], dtype=object)
        columns = {
            "server": np.full(size, server, dtype=object),
            "purpose": np.full(size, entry.purpose, dtype=object),
            "run": np.full(size, entry.run, np.int32),
            "load": np.full(size, load.clients if isinstance(load, ClosedLoop) else load.rate_per_s, np.float64),
            "due_s": counted.due_s,
            "lag_ms": counted.lag_ms.astype(np.float32),
            "latency_ms": counted.latency_ms,
            "result": names[which],
        }
        tables.append(pa.table(columns, schema=schema))
    with staged_file(path) as staged:
        parquet.write_table(pa.concat_tables(tables), staged)
