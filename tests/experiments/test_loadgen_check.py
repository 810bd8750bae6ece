"""What the comparison with MLPerf's load generator reads and judges."""

import numpy as np
import pytest

from experiments.loadgen_check import Check, waits_s
from experiments.mlperf_server import Found, parse_summary

SUMMARY = """
Scheduled samples per second : 123.90
Completed samples per second    : 123.45
50.00 percentile latency (ns)   : 5000000
99.00 percentile latency (ns)   : 16400000
99.90 percentile latency (ns)   : 20000000
"""


def test_a_summary_is_read() -> None:
    assert parse_summary(SUMMARY) == Found(123.9, 123.45, 16.4)
    with pytest.raises(ValueError, match="no rate or percentile"):
        parse_summary("Result is : INVALID")


def test_a_figure_is_kept_within_what_is_allowed() -> None:
    assert Check("p99", 944.0, 900.0, 0.05, "ms").kept
    assert not Check("p99", 946.0, 900.0, 0.05, "ms").kept
    assert Check("lag", 0.9, 1.0, 0.0, "ms").kept
    assert not Check("lag", 1.1, 1.0, 0.0, "ms").kept
    assert "| NO |" in Check("lag", 1.1, 1.0, 0.0, "ms").row()


def test_who_comes_while_the_server_works_waits_for_its_end() -> None:
    assert waits_s(np.array([0.0, 0.5, 0.6, 5.0]), 1.0) == pytest.approx([0.0, 0.5, 1.4, 0.0])
