"""Tables on a terminal of 100 columns."""

import io

import pytest
from rich.console import Console

from nas.report.html import report_html
from nas.report.tables import print_profile, print_result
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
    elsewhere = documents.winner(measured_latency_ms=None, measured=False, within_limit=False, margin_pct=-3.0)
    text = shown(documents.document(best=[elsewhere]))
    assert "~1.20" in text
    assert "not measured" in text
    assert "missed" in text


@pytest.mark.parametrize("changes", [{"best": [], "feasible": False}, {"best": []}, {"baselines": []}])
def test_poorer_results(changes: dict[str, object]) -> None:
    assert "run: runs/test" in shown(documents.document(**changes))


def test_brackets_in_names_are_text() -> None:
    assert "[red]x[/red]" in shown(documents.document(notes=["[red]x[/red]"]))


def lines(document: dict[str, object]) -> str:
    return " ".join(shown(document, width=400).split())


def test_says_who_estimated_and_how_right_that_was() -> None:
    text = lines(documents.document())
    assert "Estimator: short, chosen because 240 s for estimates on 2 threads pay for 12 short trainings." in text
    assert "24 candidates by a short training (median 17 s each)" in text
    assert "winner 1: estimated 78.0 % by a short training (90 % interval 75.0 to 81.0, 17 s); 79.4 % when tra" in text
    assert "Kendall tau 0.50 over 4 finalists; parameters alone 0.10" in text


def test_scores_that_are_no_accuracies_are_not_shown_as_such() -> None:
    guess = documents.estimate(1.25, estimator="zero-cost", unit="standard deviations", interval=None, seconds=0.02)
    groups = [{"estimator": "zero-cost", "candidates": 40, "median_s": 0.02}]
    about = documents.estimator(asked="zero-cost", name="zero-cost", unit="standard deviations", evaluated_by=groups)
    few = {"kendall_tau": None, "params_kendall_tau": None, "n": 2}
    text = lines(documents.document(best=[documents.winner(estimate=guess)], estimator=about, agreement=few))
    assert "Estimator: zero-cost. Evaluated: 40 candidates by zero-cost scores (median 20 ms each)." in text
    assert "estimated +1.25 sd by zero-cost scores (no interval is known, 20 ms)" in text
    assert "too few finalists (2)" in text


def test_metrics_by_their_names() -> None:
    figures = {"mAP@50": 0.78, "mAP@50:95": 0.512, "AP@50 [red] cell": 0.9}
    document = documents.document(
        task="detection", metric="mAP@50", best=[documents.winner(test_figures=figures)],
        baselines=[documents.baseline("ssdlite") | {"test_figures": {"mAP@50": 0.6, "mAP@50:95": 0.333}}],
    )  # fmt: skip
    text = shown(document)
    assert "with an mAP@50 of 78.0 % (on the test images)" in " ".join(text.split())
    assert "Winners, mAP@50 in %" in text
    flat = " ".join(text.split())
    assert "winner 1 on the test images: mAP@50 78.0 %, mAP@50:95 51.2 %, AP@50 [red] cell 90.0 %" in flat
    assert "ssdlite on the test images: mAP@50 60.0 %, mAP@50:95 33.3 %" in flat
    assert " on the test images: " not in shown(documents.document()), "one figure is in the tables anyway"
    page = report_html(document, documents.candidates())
    for part in ("mAP@50 against latency", "AP@50 [red] cell", "51.2", "33.3"):
        assert part in page
    many = {f"AP@50 {i}": 0.5 for i in range(90)}
    some = " ".join(shown(documents.document(best=[documents.winner(test_figures=many)])).split())
    assert "AP@50 11 50.0 %, and 78 more in the report" in some


def test_a_profile_says_which_threads_and_how_much_energy() -> None:
    row = dict.fromkeys(("mape", "within_10pct", "constant_within_10pct", "macs_within_10pct", "noise_floor_pct"))
    row |= {"deployment": "onnxruntime-fp32", "n_networks": 12, "n_heldout": 0, "memory_mb": 30.0}
    rows = [{**row, "threads": 2, "energy_mj": 45.67}, {**row, "threads": 1, "energy_mj": None}]
    stream = io.StringIO()
    summary = {"profile": "edge", "device": "board", "energy_not_measured": None, "disturbed": 0, "deployments": rows}
    print_profile(summary, Console(file=stream, width=100))
    one, two = stream.getvalue().split("1 thread")[1].split("2 threads")
    assert "onnxruntime-fp32" in one
    assert "mJ" not in one
    assert "onnxruntime-fp32 45.7 mJ" in two
    assert max(map(len, stream.getvalue().splitlines())) <= 100
