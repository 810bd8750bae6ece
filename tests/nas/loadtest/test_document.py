"""The document, its tables and its chart."""

import io
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from nas.loadtest.document import Made, scaling_document, subject_document
from nas.loadtest.figure import lines_of, load_figure
from nas.loadtest.images import Picture, Pictures
from nas.loadtest.outcome import Trial
from nas.loadtest.plan import ClosedLoop, Load, OpenLoop
from nas.loadtest.png import draw
from nas.loadtest.rate_trials import RateFound
from nas.loadtest.records import OK, Records
from nas.loadtest.subjects import Subject, _running_already
from nas.loadtest.tables import print_load_test
from nas.measure.statistics import Activity
from nas.report.document import to_json
from nas.serving.settings import ServingSettings

PICTURES = Pictures("photos", [Picture("a", b"12"), Picture("b", b"1234")])


def trial(load: Load, rate: float, *, wrong: bool = False) -> Trial:
    due_s = np.linspace(0, load.seconds, round(rate * load.seconds), endpoint=False)
    code = np.full(len(due_s), OK, np.int16)
    code[:1] = 1 if wrong else OK
    records = Records(
        due_s=due_s, sent_s=due_s, done_s=due_s + 5e-3, code=code, image=np.zeros(len(due_s), np.int32)
    )  # fmt: skip
    return Trial(load=load, slo_ms=10.0, records=records, activity=Activity(wall_s=5.0, cpu_s=0.5))


def closed(rate: float, run: int = 0, clients: int = 4, *, wrong: bool = False) -> Made:
    return Made(purpose="clients", run=run, trial=trial(ClosedLoop(clients=clients, seconds=4.0), rate, wrong=wrong))


def server(made: list[Made], found: RateFound | None = None, replicas: int = 1) -> dict[str, Any]:
    settings = ServingSettings(replicas=replicas)
    subject = Subject(name="net", start=_running_already("http://x"), settings=settings)
    return {**subject_document(subject, "POST /predict", PICTURES, made, found, 10.0, None), "cost": []}


def whole(servers: list[dict[str, Any]]) -> dict[str, Any]:
    document = {
        "device": "a processor", "runs": 3, "seconds_per_trial": 4.0, "slo_ms": 10.0, "servers": servers,
        "scaling": scaling_document(servers), "break_even": [],
    }  # fmt: skip
    plain: dict[str, Any] = json.loads(to_json(document))
    return plain


def test_runs_of_one_load_are_one_row_with_their_median() -> None:
    (row,) = server([closed(100.0, 0), closed(120.0, 1), closed(110.0, 2)])["closed"]
    assert (row["images_per_s"], row["runs"], row["n"], row["clients"]) == (110.0, 3, 1320, 4)
    assert row["cv_runs"] == pytest.approx(10 / 110)
    assert row["valid"]


def test_one_invalid_run_makes_the_row_invalid_with_its_reason() -> None:
    (row,) = server([closed(100.0, 0), closed(100.0, 1, wrong=True)])["closed"]
    assert not row["valid"]
    assert row["why_invalid"] == ["1 of 400 answers were wrong"]
    assert row["failures"] == {"wrong answer": 1}


def test_a_server_is_worth_its_rate_at_the_limit_if_there_is_one() -> None:
    load = OpenLoop(rate_per_s=80.0, seconds=4.0)
    confirmed = RateFound(rate_per_s=80.0, searched=(), confirmed=(trial(load, 80.0),))
    assert server([closed(100.0)], confirmed)["images_per_s"] == 80.0
    missed = server([closed(100.0)], RateFound(rate_per_s=None, searched=(), confirmed=()))
    assert (missed["images_per_s"], missed["at_slo"]["trial"]) == (None, None)


def test_a_rate_that_was_not_confirmed_counts_for_nothing() -> None:
    """As where the fresh server that was to confirm it did not start."""
    found = server([closed(100.0)], RateFound(rate_per_s=80.0, searched=(), confirmed=()))
    assert (found["images_per_s"], found["at_slo"]["images_per_s"], found["at_slo"]["trial"]) == (None, None, None)
    file = io.StringIO()
    print_load_test(whole([found]), Console(file=file))
    assert "none" in file.getvalue()


def test_efficiency_is_against_one_replica() -> None:
    rows = scaling_document([server([closed(100.0)]), server([closed(150.0)], replicas=2)])
    assert [(row["replicas"], row["efficiency"]) for row in rows] == [(1, 1.0), (2, 0.75)]
    assert scaling_document([server([closed(100.0)])]) == []
    assert scaling_document([server([closed(100.0)], replicas=2), server([closed(90.0)], replicas=4)]) == []


def test_tables_say_what_must_be_known() -> None:
    bad, lost = server([closed(100.0, wrong=True)]), {**server([]), "server": "lost"}
    lost["not_measured"] = "nothing answers"
    file = io.StringIO()
    print_load_test(whole([bad, server([closed(150.0)], replicas=2), lost]), Console(file=file))
    said = file.getvalue()
    assert "Scaling over replicas" in said
    assert "lost (1 x 1, batch 1): nothing answers" in said
    assert "! net (1 x 1, batch 1): not to be relied on: 1 of 400 answers were wrong" in said
    assert "same image" not in said


def test_the_chart_draws_each_server_in_its_colour_and_leaves_out_what_failed() -> None:
    opened = Made(purpose="rate", run=0, trial=trial(OpenLoop(rate_per_s=50.0, seconds=4.0), 50.0))
    lost = replace(opened.trial, records=replace(opened.trial.records, code=np.full(200, 503, np.int16)))
    document = whole(
        [server([closed(100.0), opened, Made(purpose="rate", run=1, trial=lost)]), server([closed(180.0)], replicas=2)]
    )
    lines = lines_of(document)
    assert [(line.open_loop, len(line.points)) for line in lines] == [(True, 1), (False, 1), (False, 1)]
    figure = load_figure(lines, 10.0, "a <processor>")
    colours = [trace.line.color for trace in figure.data if trace.mode == "lines+markers"]
    assert colours[0] == colours[1] != colours[2]
    assert "&lt;processor&gt;" in figure.layout.title.text
    assert draw(lines, 10.0, "a processor").size[1] > 700
