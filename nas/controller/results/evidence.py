"""The evidence that a search leaves for people: the document, the table, the page, and the bundle of each winner."""

from typing import Any

from nas.controller.results.candidates import candidate_rows
from nas.controller.results.outcome import Outcome
from nas.controller.results.receipt import write_receipt
from nas.controller.results.result import result_document
from nas.controller.results.there import accuracy_there
from nas.controller.runs.run_folder import write_candidates
from nas.files.writing import write_json
from nas.runtimes import load_runtime
from nas.tasks import task_of


def write_evidence(outcome: Outcome) -> dict[str, Any]:
    """Write everything into the run's folder, `result.json` last, and return that document."""
    import pandas as pd

    from nas.report.html import write_report

    folder = outcome.folder
    rows = candidate_rows(outcome)
    document = {**result_document(outcome), "pictures": _write_pictures(outcome)}
    write_candidates(folder, rows)
    for winner, entry in zip(outcome.winners, document["best"], strict=True):
        there = accuracy_there(outcome.target.site, winner, outcome.data)
        document["notes"] += [there.remark] if there.remark else []
        receipt = write_receipt(outcome, winner, document, entry, there.value)
        entry["postprocess_ms"] = receipt.get("postprocess_ms")
    write_report(document, pd.DataFrame(rows), folder.report)
    write_json(folder.result, document)
    return document


def _write_pictures(outcome: Outcome) -> list[dict[str, str]]:
    """The task's pictures of the first winner, as files in the run's folder: each `file` with its `caption`."""
    if not outcome.winners:
        return []
    deployed = outcome.winners[0].deployed
    chosen = deployed.chosen
    assert chosen is not None
    assert chosen.path is not None
    session = load_runtime(chosen.deployment.runtime).load(chosen.path, chosen.deployment)
    sheet = task_of(outcome.data).artifacts.sheet(
        session.run, outcome.data, deployed.description.signature, chosen.deployment.batch
    )
    if sheet is None:
        return []
    (outcome.folder.path / sheet.file).write_bytes(sheet.png)
    return [{"file": sheet.file, "caption": sheet.caption}]
