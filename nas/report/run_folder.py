"""A finished run's folder as the report needs it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nas.errors import UserError
from nas.report.document import SCHEMA, Document

if TYPE_CHECKING:
    import pandas as pd


def read_run(run: Path) -> "tuple[dict[str, Any], pd.DataFrame]":
    """The result document and the candidates of a run.

    Raises:
        UserError: no such folder, an unfinished run, a damaged file, or a result of another version.
    """
    if not run.is_dir():
        raise UserError(f"no such run folder: '{run}'", "give the folder that `nas search` printed as `run`")
    document = _read_document(run / "result.json")
    import pandas as pd
    import pyarrow

    try:
        return document, pd.read_parquet(run / "candidates.parquet")
    except FileNotFoundError as error:
        raise UserError(
            f"the run '{run}' has no candidates.parquet", "run its search again on that folder: it resumes"
        ) from error
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(
            f"cannot read '{run / 'candidates.parquet'}': {error}", "run its search again on that folder"
        ) from error


def _read_document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(
            f"the run '{path.parent}' is not finished: it has no result.json",
            "run its search again on that folder: it resumes",
        ) from error
    except (json.JSONDecodeError, UnicodeDecodeError, OSError) as error:
        raise UserError(f"cannot read '{path}': {error}", "run its search again on that folder") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise UserError(f"'{path}' is no result of schema {SCHEMA}", "read it with the version of `nas` that wrote it")
    return document


def render_run(run: Path, document: Document, candidates: "pd.DataFrame") -> Path:
    """Write `report.html` into the run's folder and return its path.

    Raises:
        UserError: the folder cannot be written.
    """
    from nas.report.html import write_report

    path = run / "report.html"
    try:
        write_report(document, candidates, path)
    except OSError as error:
        raise UserError(f"cannot write '{path}': {error.strerror}", "make the run folder writable") from error
    return path
