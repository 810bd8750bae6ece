"""The pure part of the experiment on slow calls."""

import json
from dataclasses import asdict

from experiments.tail_check import Verdict, figures, page, read


def verdict(judged_ms: float, *p99_ms: float, least_ms: float | None = None) -> Verdict:
    return Verdict(
        network="resnet18 at 64 px", deployment="onnxruntime-fp32", limit_ms=10.0, judged_ms=judged_ms,
        least_ms=judged_ms - 0.5 if least_ms is None else least_ms, p99_ms=p99_ms, p50_ms=8.0, calls=5001,
        disturbed=False,
    )  # fmt: skip


FOUND = [
    verdict(9.0, 8.0, 9.0, 10.0),  # kept, rightly: a limit is kept by what equals it
    verdict(11.0, 11.0, 12.0, 13.0),  # missed, rightly
    verdict(9.5, 10.1, 12.0, 11.0),  # a promise broken
    verdict(12.0, 8.0, 9.0, 9.5),  # refused what keeps it
    verdict(9.0, 9.0, 10.5, 9.0),  # kept, as the middle one of the long sessions says
    verdict(9.0, 11.0, 9.0, 10.5),  # a promise broken, as the middle one says
    verdict(12.0, 8.0, 9.0, 10.5, least_ms=10.0),  # not told: some of what was seen is within the limit
]


def test_figures() -> None:
    assert figures(FOUND) == {
        "networks": 7, "kept": 4, "missed": 2, "not_told": 1, "right": 3, "promises_broken": 2,
        "refused_though_kept": 1, "wrong_and_close": 1, "close": 3, "disturbed": 0,
    }  # fmt: skip


def test_page() -> None:
    text = page(FOUND, "", "a processor, 2 threads")
    assert "| limits called kept, missed, not told | 4, 2, 1 |" in text
    assert (
        "| resnet18 at 64 px | onnxruntime-fp32 | 8 | 10 | 9 to 9.5 | 10.1 12 11 | kept: wrong: a promise broken |"
        in text
    )
    assert "| 10 to 12 | 8 9 10.5 | not told: it keeps it, close |" in text
    assert read(json.loads(json.dumps([asdict(v) for v in FOUND]))) == FOUND
