"""What a search leaves for people: the document, the table, the page, and the papers of each winner."""

from typing import Any

from nas.controller.candidates import candidate_rows
from nas.controller.outcome import Outcome
from nas.controller.receipt import write_receipt
from nas.controller.result import result_document
from nas.controller.run_folder import write_candidates
from nas.export.checkpoint import write_json


def write_evidence(outcome: Outcome) -> dict[str, Any]:
    """Write everything into the run's folder, `result.json` last, and return that document."""
    import pandas as pd

    from nas.report.html import write_report

    folder = outcome.folder
    rows = candidate_rows(outcome)
    document = result_document(outcome)
    write_candidates(folder, rows)
    write_report(document, pd.DataFrame(rows), folder.report)
    for winner, entry in zip(outcome.winners, document["best"], strict=True):
        write_receipt(outcome, winner, document, entry)
    write_json(folder.result, document)
    return document
