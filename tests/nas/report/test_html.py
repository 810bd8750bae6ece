"""The report: everything is said, everything is escaped, nothing is fetched; and it looks like a page in a browser."""

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from nas.report.html import report_html, write_report
from nas.report.markup import sentence, table
from nas.report.plot import MAX_POINTS, accuracy_latency_figure, visible_candidates
from tests.nas.report import documents
from tests.nas.report.browsing import browsed

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>&\"'"


class Tags(HTMLParser):
    """Collects tags, what they refer to, and the text of all scripts."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.references: list[str] = []
        self.handlers: list[str] = []
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.references += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]


def plain(page: str) -> str:
    """With ordinary spaces."""
    return page.replace("\N{NO-BREAK SPACE}", " ")


@pytest.fixture(scope="module")
def page() -> str:
    return report_html(documents.document(best=[documents.winner(1), documents.winner(2)]), documents.candidates())


def test_says_what_was_asked_found_and_kept(page: str) -> None:
    page = plain(page)
    assert "on test-device (Invented processor (2 threads)), with at most 4 ms." in page
    assert "a measured p50 1.11 ms. The limit is kept, by 72 %." in page
    assert "nas search --target test-device --latency-ms 4 --data &#x27;test photos&#x27;" in page


def test_says_how_many_images_per_second_where_that_was_asked() -> None:
    fast = documents.winner(images_per_s=3603.6, batch=4)
    for asked in ({"objective": "throughput"}, {"limits": {"throughput": 3000.0}, "limits_text": "many"}):
        page = plain(report_html(documents.document(best=[fast], **asked), documents.candidates(8)))
        assert "a measured p50 1.11 ms, 3,604 images/s in calls of 4 images." in page
        assert "<dt>throughput</dt><dd>3,604 images/s<small>in calls of 4 images</small>" in page
    elsewhere = documents.winner(images_per_s=81.24, measured=False, measured_latency_ms=None)
    page = plain(report_html(documents.document(best=[elsewhere], objective="throughput"), documents.candidates(8)))
    assert "predicted latency 1.20 ms (not measured), at least 81.2 images/s in calls of 1 image." in page
    assert "images/s" not in report_html(documents.document(best=[fast]), documents.candidates(8))


def test_holds_every_row(page: str) -> None:
    document = documents.document()
    named = [row["deployment"] for row in document["feasibility"]]
    named += [b["name"] for b in document["baselines"]] + [d["name"] for d in document["best"][0]["deployments"]]
    named += [d["reason"] for d in document["best"][0]["deployments"]] + document["notes"]
    named += [stage.replace("_", " ") for stage in document["seconds"] if stage != "total"]
    assert [name for name in named if name not in page] == []


def test_refers_to_nothing_outside(page: str) -> None:
    tags = Tags(page)
    assert tags.references == []
    assert not {"link", "iframe", "img", "object"} & set(tags.tags)
    assert "url(" not in page[page.index("<style>") : page.index("</style>")]
    assert "default-src 'none'" in page[: page.index("<style>")]


def test_escapes_every_text() -> None:
    document = documents.document(
        target=EVIL, device=EVIL, space=EVIL, command=EVIL, run_dir=EVIL, notes=[EVIL], created=EVIL,
        data={"name": EVIL, "classes": 2, "examples": "images", "train": 1, "val": 1, "test": 1},
        baselines=[documents.baseline(EVIL) | {"note": EVIL}],
        best=[documents.winner(key=EVIL, architecture={EVIL: EVIL}, runtime=EVIL, onnx=EVIL, verdict=EVIL)],
    )  # fmt: skip
    for row in (*document["feasibility"], *document["predictor"]):
        row["deployment"] = EVIL
    for row in document["best"][0]["deployments"]:
        row["name"] = row["reason"] = EVIL
    document["seconds"][EVIL] = 1.0
    page = report_html(document, documents.candidates(8).assign(deployment=EVIL, key=EVIL))
    tags = Tags(page)
    assert tags.tags.count("script") == Tags(report_html(documents.document(), documents.candidates(8))).tags.count(
        "script"
    )
    assert "img" not in tags.tags
    assert tags.handlers == []


def test_result_without_winner_baselines_or_measurements() -> None:
    nothing = documents.document(
        best=[], baselines=[], feasible=False, candidates_evaluated=0, agreement=None, predictor=[], notes=[]
    )
    page = plain(report_html(nothing, documents.candidates(0)))
    assert "The fastest network of space mixed takes 0.310 ms (openvino-int8)" in page
    elsewhere = documents.winner(
        measured_latency_ms=None, measured=False, session_p50_ms=None, onnx=None, model=None, receipt=None,
        deployments=[],
        accuracy={"estimate": 0.7, "estimate_std": 0.03, "trained": 0.7, "deployed": None, "test": None},
    )  # fmt: skip
    page = plain(report_html(documents.document(best=[elsewhere]), documents.candidates()))
    assert "predicted latency 1.20 ms (not measured)" in page
    assert "kept, according to the upper bound of the prediction, by 72 %" in page
    assert "which was predicted, not measured" in page
    assert "~1.20" in page


def test_units_stay_with_their_numbers_and_code_is_code() -> None:
    assert sentence("85 % in 3.2 ms of `nas x`, 5 minutes") == (
        "85\N{NO-BREAK SPACE}% in 3.2\N{NO-BREAK SPACE}ms of <code>nas x</code>, 5 minutes"
    )
    assert sentence("`<b>`") == "<code>&lt;b&gt;</code>"


def test_long_names_may_be_broken() -> None:
    assert '<th scope="row">a_<wbr>b</th><td class="n">c_d</td>' in table(("x", "y"), [("a_b", "c_d")], numeric=(1,))


def test_what_a_detector_costs_on_top_and_what_chose_it() -> None:
    unseen = documents.accuracy(0.79) | {"estimate": None}
    chosen = documents.estimate() | {"value": 0.553, "unit": "accuracy"}
    found = documents.winner(postprocess_ms=0.47, accuracy=unseen, estimate=chosen)
    page = report_html(documents.document(best=[found]), documents.candidates())
    assert "Decoding and suppressing double boxes take 0.470 ms more, in numpy on one thread." in page
    assert '<td class="n">55.3</td>' in page
    assert "suppressing" not in report_html(documents.document(), documents.candidates())


def test_a_front_of_one_is_no_line() -> None:
    candidates = documents.candidates()
    alone = candidates[candidates["pareto"] & candidates["accuracy_estimate"].notna()].head(1)
    names = {trace.name for trace in accuracy_latency_figure(documents.document(), alone).data}
    assert "Pareto front of the estimates" not in names


def test_infeasible_and_missing_numbers_never_show_nan() -> None:
    document = documents.document()
    document["predictor"][0] |= {"mape": None, "within_10pct": float("nan"), "corrected_by": None}
    document["agreement"] = {"kendall_tau": None, "params_kendall_tau": None, "n": 1}
    body = re.sub(r"<script.*?</script>", "", report_html(document, documents.candidates()), flags=re.DOTALL)
    assert not re.search(r"\bnan\b|\bNone\b", body)


def test_many_candidates_are_thinned_but_important_ones_kept() -> None:
    candidates = documents.candidates(20_000)
    shown = visible_candidates(candidates)
    important = candidates[(candidates["pareto"] | (candidates["state"] == "evaluated"))]
    important = important[important["accuracy_estimate"].notna()]
    assert set(important["key"]) <= set(shown["key"])
    assert len(shown) <= MAX_POINTS + len(important)
    assert shown["predicted_latency_ms"].max() > np.percentile(candidates["predicted_latency_ms"], 99)


def test_figure_shows_the_limit_front_winner_and_baselines() -> None:
    figure = accuracy_latency_figure(documents.document(), documents.candidates())
    traces = {trace.name: trace for trace in figure.data}
    assert list(traces["winners, trained and measured"].x) == [1.11]
    assert list(traces["winners, trained and measured"].y) == pytest.approx([79.0])
    # resnet50 was not trained: it has a latency but no place in this plot
    assert len(traces["baselines, trained and measured"].x) == 4
    front = traces["Pareto front of the estimates"]
    assert (np.diff(front.x) > 0).all()
    assert (np.diff(front.y) >= 0).all()
    assert any(shape.x0 == shape.x1 == 4.0 for shape in figure.layout.shapes)


def test_failed_write_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        write_report(documents.document(), documents.candidates(), tmp_path / "missing" / "report.html")


def test_the_page_is_written_under_a_name_that_no_other_writer_uses(tmp_path: Path) -> None:
    (tmp_path / "report.html.part").mkdir()
    write_report(documents.document(), documents.candidates(8), tmp_path / "report.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.html.part"]


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize("width", [500, 1200])
def test_renders_in_a_browser(width: int, tmp_path: Path) -> None:
    write_report(documents.document(), documents.candidates(), tmp_path / "report.html")
    picture = tmp_path / "page.png"
    browsed(tmp_path / "report.html", f"--screenshot={picture}", f"--window-size={width},1600")
    pixels = np.asarray(Image.open(picture).convert("RGB")).astype(int)
    assert pixels.shape[1] == width
    # The plot's own colours are on the picture: the winner's star, the front's line.
    for colour in ((0xD5, 0x5E, 0x00), (0x00, 0x9E, 0x73)):
        assert (np.abs(pixels - np.array(colour)).max(axis=2) < 12).sum() > 100


def test_test_document_matches_its_candidates() -> None:
    assert isinstance(documents.candidates(), pd.DataFrame)
    assert documents.candidates()["pareto"].any()


def test_scores_that_are_no_accuracies_have_an_axis_of_their_own() -> None:
    about = documents.estimator(name="zero-cost", unit="standard deviations")
    table = documents.candidates()
    figure = accuracy_latency_figure(documents.document(estimator=about), table)
    axes = {trace.name: trace.yaxis for trace in figure.data}
    assert axes["proposed by the search"] == "y2"
    assert axes["winners, trained and measured"] in (None, "y")
    assert figure.layout.yaxis2.title.text == "zero-cost score, standard deviations"
    page = report_html(documents.document(estimator=about), table)
    assert "which is no accuracy and has the axis on the right" in page
    accuracies = documents.document(), table.drop(columns="estimate")
    assert "yaxis2" not in accuracy_latency_figure(*accuracies).to_dict()["layout"]


def test_says_who_estimated_and_how_right_that_was(page: str) -> None:
    assert "Estimator: short, chosen because 240 s for estimates on 2 threads pay for 12 short trainings." in page
    assert "estimated 78.0 % by a short training (90 % interval 75.0 to 81.0, 17 s)" in page
    assert "Kendall tau 0.50 over 4 finalists; parameters alone 0.10" in page


def test_pictures_of_the_run_are_inside_the_page(tmp_path: Path) -> None:
    named = documents.document(pictures=[{"file": "../detections.png", "caption": "Images & boxes"}])
    (tmp_path / "detections.png").write_bytes(b"picture")
    page = report_html(named, documents.candidates(), tmp_path)
    assert 'src="data:image/png;base64,cGljdHVyZQ=="' in page
    assert "<figcaption>Images &amp; boxes</figcaption>" in page
    (tmp_path / "detections.png").unlink()
    assert "Validation images" not in report_html(named, documents.candidates(), tmp_path)
