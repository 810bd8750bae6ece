"""The pure part of the experiment on slow calls."""

import json
from dataclasses import asdict

from experiments.tail_check import Verdict, figures, page, read


def verdict(judged_ms: float, *p99_ms: float) -> Verdict:
    return Verdict(
        network="resnet18 at 64 px", deployment="onnxruntime-fp32", limit_ms=10.0, judged_ms=judged_ms, p99_ms=p99_ms,
        p50_ms=8.0, calls=5001, disturbed=False,
    )  # fmt: skip


FOUND = [
    verdict(9.0, 8.0, 9.0, 10.0),  # kept, rightly: a limit is kept by what equals it
    verdict(11.0, 11.0, 12.0, 13.0),  # missed, rightly
    verdict(9.5, 10.1, 12.0, 11.0),  # a promise broken
    verdict(12.0, 8.0, 9.0, 9.5),  # refused what keeps it
    verdict(9.0, 9.0, 10.5, 9.0),  # the long sessions disagree
]


def test_figures() -> None:
    assert figures(FOUND) == {
        "networks": 5, "kept": 3, "right": 2, "undecided": 1, "promises_broken": 1, "refused_though_kept": 1,
        "disturbed": 0,
    }  # fmt: skip


def test_page() -> None:
    text = page(FOUND, "", "a processor, 2 threads")
    assert "| limits called kept, of all | 3 of 5 |" in text
    assert (
        "| resnet18 at 64 px | onnxruntime-fp32 | 8 | 10 | 9.5 | 10.1 12 11 | kept: wrong: a promise broken |" in text
    )
    assert read(json.loads(json.dumps([asdict(v) for v in FOUND]))) == FOUND
