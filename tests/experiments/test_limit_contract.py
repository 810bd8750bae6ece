"""The pure parts of the limit bar: which searches there are, and how they are judged."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from experiments.limit_contract import (
    EXTRAS,
    PLACES,
    SPACES,
    Answered,
    Asked,
    Delivered,
    main,
    page,
    plan,
    summarise,
    upper_rate,
    violated_limits,
)

RANGES = dict.fromkeys(SPACES, (0.5, 4.0))
ASKED = Asked(number=0, space="mobile", latency_ms=2.0, extra={"max_size_mb": 1.0}, budget_s=45.0, baselines=False)
KEPT = Delivered(
    deployment="onnxruntime-int8", accuracy=0.9, told_ms=1.8, again_ms=(1.7, 1.9, 2.1), verdict="quiet", violated=()
)


def test_twenty_searches_cover_the_limits() -> None:
    asked = plan(20, 45.0, RANGES)
    assert {a.space for a in asked} == set(SPACES)
    assert {tuple(a.extra.items()) for a in asked} == {tuple(e.items()) for e in EXTRAS}
    assert len({(a.space, a.latency_ms) for a in asked}) == len(SPACES) * len(PLACES)
    assert all(0.5 <= a.latency_ms <= 4.0 for a in asked)
    assert sum(a.baselines for a in asked) == 4
    assert "--percentile" in asked[1].command(Path("out"))
    spaced = plan(1, 45.0, RANGES, calls="20/s")[0].command(Path("out"))
    assert spaced[spaced.index("--calls") + 1] == "20/s"


def test_a_median_over_a_limit_breaks_it() -> None:
    assert violated_limits(ASKED, (1.7, 1.9, 2.1), 900_000, 1) == ()
    assert violated_limits(ASKED, (1.7, 2.01, 2.1), 1_000_001, 1) == ("latency_ms", "max_size_mb")


def test_the_figures_of_the_bar() -> None:
    good = Answered(asked=ASKED, exit_code=0, wall_s=50.0, said="", delivered=(KEPT,))
    bad = replace(good, wall_s=70.0, delivered=(replace(KEPT, again_ms=(2.1, 2.2, 2.3), violated=("latency_ms",)),))
    refused = replace(good, exit_code=3, wall_s=9.0, delivered=())
    failed = replace(refused, exit_code=1)
    answers = [good, bad, refused, failed]
    summary = summarise(answers, 12.0)
    counts = {k: summary[k] for k in ("searches", "delivered", "over_limit", "a_session_over_limit", "refused")}
    assert counts == {"searches": 4, "delivered": 2, "over_limit": 1, "a_session_over_limit": 2, "refused": 1}
    assert (summary["failed"], summary["over_budget"], summary["another_limit_in_time"]) == (1, 1, True)
    assert summary["overshoot_s"] == {"median": -15.5, "max": 25.0}
    text = page(answers, summary, "--searches 4", "a processor, 2 threads")
    assert "on one machine (a processor, 2 threads), one after the other" in text
    assert "| of these over a limit when measured again | 1 |" in text
    assert "OVER: latency_ms" in text
    assert "| searches over their budget by more than 5 % or 20 s, whichever is larger | 1 |" in text
    hours = [replace(good, asked=replace(ASKED, budget_s=1000.0), wall_s=wall_s) for wall_s in (1049.0, 1051.0)]
    assert summarise(hours, None)["over_budget"] == 1
    assert [Answered.from_json(json.loads(json.dumps(a.to_json()))) for a in answers] == answers
    assert summarise([], None)["overshoot_s"] is None
    assert "that are called without a pause" in text
    cameras = [replace(a, asked=replace(a.asked, calls="20/s")) for a in answers]
    assert "that are called 20/s" in page(cameras, summary, "", "a processor")


def test_none_of_few_is_no_proof() -> None:
    """The rule of three, and its exact form."""
    assert upper_rate(0, 12) == pytest.approx(1 - 0.05 ** (1 / 12))
    assert upper_rate(0, 300) == pytest.approx(3 / 300, rel=0.01)
    assert upper_rate(2, 12) > upper_rate(0, 12)
    assert upper_rate(0, 0) == upper_rate(3, 3) == 1.0


def test_usage() -> None:
    assert "--searches" in CliRunner().invoke(main, ["--help"]).output
