"""Tables on a terminal of 100 columns."""

import io

import pytest
from rich.console import Console

from nas.report.tables import print_result
from tests.nas.report import documents


def shown(document: dict[str, object], width: int = 100) -> str:
    stream = io.StringIO()
    print_result(document, Console(file=stream, width=width))
    return stream.getvalue()


def test_fits_100_columns_without_cutting() -> None:
    text = shown(documents.document(best=[documents.winner(1), documents.winner(2)]))
    assert max(map(len, text.splitlines())) <= 100
    assert "…" not in text
    for name in ("random search (best of 24)", "mobilenet_v3_large", "openvino-int8", "winners/2/model.onnx"):
        assert name in text


def test_says_what_is_predicted_and_what_is_missed() -> None:
    elsewhere = documents.winner(measured_latency_ms=None, measured_here=False, within_limit=False, margin_pct=-3.0)
    text = shown(documents.document(best=[elsewhere]))
    assert "~1.20" in text
    assert "not measured here" in text
    assert "missed" in text


@pytest.mark.parametrize("changes", [{"best": [], "feasible": False}, {"best": []}, {"baselines": []}])
def test_poorer_results(changes: dict[str, object]) -> None:
    assert "run: runs/test" in shown(documents.document(**changes))


def test_brackets_in_names_are_text() -> None:
    assert "[red]x[/red]" in shown(documents.document(notes=["[red]x[/red]"]))
