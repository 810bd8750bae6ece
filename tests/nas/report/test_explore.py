"""What a reader asks the page of a search, in a browser: another limit, other deployments, one candidate."""

import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from nas.controller.config import Objective
from nas.controller.objective import winners
from nas.controller.results.judged import beaten_finalists, judged_finalist
from nas.controller.values import Finalist
from nas.deploy.answers import Answers
from nas.deploy.tried import TriedDeployment
from nas.deployment import Deployment
from nas.limits import Limits
from nas.report.explore import explore_data, judged_text, no_limit_reason
from nas.report.html import report_html, write_report
from nas.report.plot import accuracy_latency_figure
from tests.nas.controller.finals import DEPLOYMENTS, finalist, outcome, session, tried
from tests.nas.report import documents
from tests.nas.report.browsing import read

EXAMPLES = 200


def _written(folder: Path, **changes: Any) -> Path:
    page = folder / "report.html"
    write_report(documents.document(**changes), documents.candidates(), page)
    return page


def _two_winners() -> list[dict[str, Any]]:
    """The first has a file of one thread that was rejected for its latency alone."""
    first = documents.winner(1)
    variant = documents.tried(
        "openvino-int8 (1 thread)", 4.4, 0.83, accepted=False, latency_alone=True,
        reason="its slowest session took 4.40 ms",
    )  # fmt: skip
    first["deployments"].append(variant)
    second = documents.winner(2, judged_ms=0.9)
    second["deployments"] = [documents.tried("openvino-int8", 0.9, 0.78, chosen=True)]
    return [first, second]


def _finalists() -> list[dict[str, Any]]:
    beaten = documents.finalist("beaten", documents.tried("openvino-int8", 0.7, 0.77))
    late = documents.tried("openvino-fp32", 6.0, 0.85, accepted=False, latency_alone=True)
    lossy = documents.tried("openvino-int8", 0.5, 0.99, accepted=False)
    return [beaten, documents.finalist("missed", late, lossy)]


@pytest.mark.browser
@pytest.mark.slow
def test_a_reader_asks_for_another_limit(tmp_path: Path) -> None:
    page = _written(
        tmp_path, best=_two_winners(), finalists=_finalists(),
        baselines=[documents.baseline("resnet18", p50=2.5, deployed=0.952), documents.baseline("untrained", p50=0.1,
                   deployed=None), documents.baseline("large", p50=1.2, deployed=0.99) | {"missed": ["max_params"]}],
    )  # fmt: skip
    found = read(page, """
      wins("at-4"); say("baseline-at-4", of("best-baseline").textContent);
      limit("1"); wins("at-1"); say("baseline-at-1", of("best-baseline").textContent);
      say("drawn-limit", of("accuracy-latency").layout.shapes[1].x0);
      limit("0.75"); wins("at-0.75"); limit("0.6"); wins("at-0.6"); limit("5"); wins("at-5");
      of("limit").value = "1"; of("limit").dispatchEvent(new Event("input")); wins("at-most");
      say("boxes", [...document.querySelectorAll("#deployments input")].map((b) => b.value).join(" "));
      document.querySelector("#deployments input[value=openvino-fp32]").click(); wins("without-fp32");
      document.querySelector("#deployments input[value=openvino-int8]").click(); wins("without-int8");
      say("dots", of("accuracy-latency").data[0].x.filter((x) => x !== null).length);
    """)  # fmt: skip
    assert found["at-4"].startswith("Within 4 ms: winner 1 as openvino-int8, 79.0 % at 1.13 ms (median of the slowest")
    assert found["at-4"].endswith("3 of 4 trained networks keep it.")
    assert found["baseline-at-4"] == "The best baseline that keeps it: resnet18 as openvino-int8, 95.0 % at 2.55 ms."
    assert found["at-1"].startswith("Within 1 ms: winner 2 as openvino-int8, 78.0 % at 0.9 ms")
    assert found["baseline-at-1"] == "No trained baseline keeps it."
    assert found["drawn-limit"] == "1"
    assert found["at-0.75"].startswith("Within 0.75 ms: finalist 1 as openvino-int8, 77.0 % at 0.7 ms")
    assert found["at-0.75"].endswith("1 of 4 trained networks keeps it.")
    assert found["at-0.6"] == "Within 0.6 ms: none of the 4 trained networks; the fastest file takes 0.7 ms."
    assert found["at-5"].startswith("Within 5 ms: winner 1 as openvino-int8 (1 thread), 83.0 % at 4.4 ms")
    assert "finalist 2 as openvino-fp32, 85.0 % at 6 ms" in found["at-most"]
    assert found["boxes"] == "onnxruntime-fp32 openvino-fp32 openvino-int8", "variants belong to their deployment"
    assert "winner 1 as openvino-int8 (1 thread)" in found["without-fp32"]
    assert "winner 1 as onnxruntime-fp32, 79.4 % at 3.5 ms" in found["without-int8"]
    assert found["without-int8"].endswith("1 of 4 trained networks keeps it.")
    assert found["dots"] == "0", "all candidates are for openvino-int8"


@pytest.mark.browser
@pytest.mark.slow
def test_no_wrong_number_takes_the_place_of_the_limit_and_cells_without_a_number_come_last(tmp_path: Path) -> None:
    page = _written(tmp_path)
    found = read(page, """
      limit("1.5"); for (const wrong of ["0", "-3", ""]) { limit(wrong); say(`after-${wrong}`, of("limit-ms").value); }
      say("slider", of("limit").getAttribute("aria-valuetext"));
      const table = [...document.querySelectorAll("table")].find((t) => t.textContent.includes("mobilenet_v3_large"));
      const button = (name) => [...table.querySelectorAll(".sort")].find((b) => b.textContent === name);
      const names = () => [...table.tBodies[0].rows].map((row) => row.cells[0].textContent).join();
      button("p50 ms").focus(); button("p50 ms").click(); say("fastest", names());
      button("p50 ms").click(); say("slowest", names()); say("sorted", button("p50 ms").parentElement.ariaSort);
      button("deployed %").click(); say("least", names()); button("deployed %").click(); say("most", names());
      const cells = [...table.tBodies[0].rows].map((row) => row.cells[3]);
      ["± 0.5", "-", "± 0.07", "~0.3", "-0.2 %"].forEach((text, i) => { cells[i].textContent = text; });
      const head = table.querySelectorAll(".sort")[3], texts = () =>
        [...table.tBodies[0].rows].map((row) => row.cells[3].textContent).join();
      head.click(); say("up", texts()); head.click(); say("down", texts());
    """)  # fmt: skip
    assert (found["after-0"], found["after--3"], found["after-"]) == ("1.5", "1.5", "1.5")
    assert found["slider"] == "1.5 milliseconds"
    by_speed = "resnet10,resnet18,mobilenet_v3_large,random search (best of 24),resnet50"
    assert found["fastest"] == by_speed
    assert found["slowest"] == ",".join(reversed(by_speed.split(",")))
    assert found["sorted"] == "descending"
    by_accuracy = ["mobilenet_v3_large", "resnet18", "resnet10", "random search (best of 24)"]
    assert found["least"] == ",".join([*by_accuracy, "resnet50"]), "a dash is no number"
    assert found["most"] == ",".join([*reversed(by_accuracy), "resnet50"])
    assert found["up"] == "-0.2 %,± 0.07,~0.3,± 0.5,-"
    assert found["down"] == "± 0.5,~0.3,± 0.07,-0.2 %,-"


@pytest.mark.browser
@pytest.mark.slow
def test_a_candidate_is_looked_at_with_the_keyboard_and_with_the_pointer(tmp_path: Path) -> None:
    page = _written(tmp_path, decisions={"stem.width": [f"of {i}" for i in range(400)]})
    found = read(page, """
      const select = of("candidate");
      say("offered", select.options.length - 1);
      say("drawn", JSON.parse(of("explore-data").textContent).candidates.length);
      const facts = () => `${of("candidate-name").textContent}|${of("candidate-facts").textContent}|` +
        of("candidate-choices").textContent;
      select.selectedIndex = 1; select.dispatchEvent(new Event("change"));
      say("chosen", facts()); say("option", select.options[1].text);
      of("accuracy-latency").emit("plotly_hover", { points: [{ customdata: 0 }] });
      say("pointed", facts()); say("same", select.value);
      select.selectedIndex = 0; select.dispatchEvent(new Event("change")); say("none", facts());
      say("live", of("candidate-facts").closest("[aria-live=polite]") !== null);
      say("inside-images", document.querySelectorAll("[role=img] :is(input, select, button, fieldset)").length);
    """)  # fmt: skip
    assert found["offered"] == found["drawn"] == "392"
    key = found["option"].rpartition(": ")[2]
    chosen = rf"{key}\|openvino-int8, 96 px: predicted [\d.]+ ± [\d.]+ ms, estimated [\d.]+ %; .*\|stem\.width of \d+"
    assert re.fullmatch(chosen, found["chosen"])
    assert found["pointed"].partition("|")[0] != key
    assert (found["same"], found["none"], found["live"], found["inside-images"]) == ("0", "||", "true", "0")


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize("objective", ["accuracy", "latency", "throughput", "pareto"])
@pytest.mark.parametrize("percentile", [50, 99])
def test_the_page_answers_as_a_search_with_that_limit_would(objective: str, percentile: int, tmp_path: Path) -> None:
    """Random networks, some of their sessions disturbed and some files too large: the answers are those of the search's
    own rules."""
    goal, rng = cast(Objective, objective), random.Random(percentile)
    limits = Limits.of(latency_ms=2.0, percentile=percentile, max_size_mb=5.0)
    drawn = [_files(rng) for _ in range(8)]
    finalists = [finalist(seed, files, limits, goal) for seed, files in enumerate(drawn)]
    best = winners(goal, finalists, 2)
    told = outcome(finalists, best, limits, goal)
    rows = [documents.winner(rank) | judged_finalist(told, f) for rank, f in enumerate(best, start=1)]
    names = {f.evaluated.arch.key: f"winner {rank}" for rank, f in enumerate(best, start=1)}
    others = beaten_finalists(told)
    names |= {row["key"]: f"finalist {n}" for n, row in enumerate(others, start=1)}
    page = _written(
        tmp_path, best=rows, finalists=others, objective=objective, baselines=[],
        limits=limits.to_json(), limits_text=limits.text,
    )  # fmt: skip
    asked = [0.3, 0.8, 1.2, 2.0, 3.1, 4.5, 20.0]
    found = read(page, "".join(f'limit("{ms}"); wins("at-{ms}");' for ms in asked))
    answers = set()
    for ms in asked:
        there = limits.changed(latency_ms=ms)
        again = [finalist(seed, files, there, goal) for seed, files in enumerate(drawn)]
        expected = winners(goal, again, len(again) if objective == "pareto" else 1)
        said = re.findall(r"(winner \d|finalist \d) as (\S+),", found[f"at-{ms}"])
        assert said == [(names[f.evaluated.arch.key], _chosen(f).name) for f in expected], f"within {ms} ms"
        answers.add(tuple(said))
    assert len(answers) > (2 if objective in ("accuracy", "pareto") else 1), "limits that change nothing show nothing"


def _chosen(f: Finalist) -> TriedDeployment:
    assert f.deployed.chosen is not None
    return f.deployed.chosen


def _files(rng: random.Random) -> list[TriedDeployment]:
    base_ms, accuracy = rng.uniform(0.4, 4.0), rng.uniform(0.6, 0.95)
    return [_file(rng, deployment, base_ms, accuracy) for deployment in DEPLOYMENTS]


def _file(rng: random.Random, deployment: Deployment, base_ms: float, accuracy: float) -> TriedDeployment:
    ms = base_ms * rng.uniform(0.5, 2.0)
    sessions = [session(ms * rng.uniform(0.95, 1.05), tail=rng.uniform(1.1, 2.5)) for _ in range(3)]
    if rng.random() < 0.3:
        sessions[1] = replace(session(ms, attempts=[1.4 * ms]))
    size_bytes = 6_000_000 if rng.random() < 0.2 else 1_000_000
    right = sum(rng.random() < accuracy - rng.uniform(0, 0.06) for _ in range(EXAMPLES)) / EXAMPLES
    # The first ones are right, so that answers of two files differ no more than their accuracies, or random ones.
    order = list(range(EXAMPLES)) if rng.random() < 0.7 else rng.sample(range(EXAMPLES), EXAMPLES)
    hits = np.array(order) < round(right * EXAMPLES)
    answers = Answers.of(hits) if rng.random() < 0.8 else None
    return tried(deployment, sessions, right, size_bytes=size_bytes, answers=answers)


def test_the_data_of_the_page_are_of_what_is_drawn() -> None:
    document, table = documents.document(best=_two_winners(), finalists=_finalists()), documents.candidates()
    data = explore_data(document, table)
    figure = accuracy_latency_figure(document, table)
    assert len(data["candidates"]) == sum(
        len(t.customdata) for t in figure.data if t.customdata and t.customdata[0] >= 0
    )
    for trace in figure.data:
        for x, at in zip(trace.x, trace.customdata or (), strict=False):
            drawn = data["candidates"][at]["predicted_ms"] if at >= 0 else None
            assert drawn is None or drawn == pytest.approx(x)
    assert sorted(-1 - at for t in figure.data for at in t.customdata or () if at < 0) == list(range(6))
    assert data["drawn"] == ["openvino-int8"] * 6
    assert [network["name"] for network in data["networks"]] == ["winner 1", "winner 2", "finalist 1", "finalist 2"]
    assert [file["name"] for file in data["networks"][0]["files"]] == [
        "openvino-int8", "onnxruntime-fp32", "openvino-int8 (1 thread)"
    ]  # fmt: skip
    assert data["lowest_ms"] < 0.7 < 6.0 < data["highest_ms"]


def test_what_is_judged_is_said() -> None:
    tail = documents.document(limits={"latency_ms": 4.0, "percentile": 99, "max_params": 2e6})
    assert judged_text(tail).startswith("p99 of the slowest session")
    page = report_html(tail, documents.candidates(8))
    assert "The limit is on the p99 of a call; all are drawn at their medians." in page
    assert "The tinted side keeps the limit" not in page
    assert "Whatever is named keeps the other limits of this search as well." in page
    assert "worst session p99 ms" in page
    predicted = documents.document(best=[documents.winner(measured=False)])
    assert judged_text(predicted) == "upper bound of the prediction"


def test_where_no_other_limit_can_be_asked_the_page_says_why() -> None:
    assert no_limit_reason(documents.document()) == ""
    earlier = documents.document()
    del earlier["finalists"]
    untold = documents.document()
    del untold["best"][0]["deployments"][1]["judged_ms"]
    assembled = documents.document() | {"baseline": None}
    for document, reason in (
        (earlier, "This result is of an earlier version"),
        (untold, "This result is of an earlier version"),
        (documents.document(best=[]), "No network was trained"),
        (assembled, "With another limit a search from a trained network assembles another network"),
    ):
        assert no_limit_reason(document).startswith(reason)
        assert explore_data(document, documents.candidates(8))["networks"] == []
        if document is not assembled:
            page = report_html(document, documents.candidates(8))
            assert reason in page
            assert 'id="limit"' not in page
            assert '<select id="candidate">' in page
