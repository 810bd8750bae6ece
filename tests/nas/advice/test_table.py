"""Shares, excess, ceiling and bound of blocks."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nas.advice.ceiling import joined
from nas.advice.comparing import compared, parse_deployment
from nas.advice.parts import Part, parts_of
from nas.advice.placing import Operator, placed
from nas.advice.table import BlockTable, Ceiling, block_table, bound_of
from nas.errors import UserError
from tests.nas.advice.graphs import CEILING, node, nodes_of, plain

MS = st.floats(1e-4, 1e3)


def table_of(ms: list[float], p50_ms: float = 1.0, unplaced_ms: float = 0.0) -> BlockTable:
    """Of blocks without layers that took so long."""
    parts = [Part(f"block{place}", "basic", ()) for place in range(len(ms))]
    ran = [
        Operator(p.name, "Conv", "fp32", m, None, at, False) for at, (p, m) in enumerate(zip(parts, ms, strict=True))
    ]
    ran += [Operator("lost", "Conv", "fp32", unplaced_ms, None, None, False)] if unplaced_ms else []
    return block_table(ran, parts, CEILING, p50_ms, "fp32")


def test_a_block_is_described(tmp_path: Path) -> None:
    graph = plain().graph(tmp_path)
    parts = parts_of(graph)
    ran = [node("first", 1.0), node("second", 2.0, precision="int8"), node("r", 1.0, "Reorder"), node("third", 4.0)]
    table = block_table(placed(ran, graph, parts), parts, CEILING, 10.0, "fp32", profiler_ms=2.0)
    first, second, third = table.rows
    assert (first.share, second.share, third.share) == (1 / 8, 2 / 8, 5 / 8)
    assert (first.macs, first.share_macs) == (256 * 16 * 27, first.macs / graph.macs)
    assert first.excess == pytest.approx(first.share / first.share_macs)
    assert first.gmacs_per_s == pytest.approx(first.macs / 1e6)
    assert first.ceiling_share == pytest.approx(first.macs / 1e6 / 100)
    assert second.ceiling_share == pytest.approx(second.macs / 2e6 / 400), "the ceiling of what it ran in"
    assert (first.precision, second.precision, third.operators) == ("fp32", "int8", 2)
    assert second.bytes == 256 * (16 + 32) + 9 * 16 * 32
    assert (table.blocks_ms, table.sum_over_p50, table.profiler_overhead_pct) == (8.0, 0.8, 20.0)
    around = block_table(placed(ran, graph, parts), parts, replace(CEILING, outside_ms=1.0), 10.0, "fp32")
    assert (around.blocks_ms, around.sum_over_p50) == (8.0, 0.9)


@given(st.lists(MS, min_size=1, max_size=12), MS)
def test_shares_are_of_the_sum(ms: list[float], unplaced_ms: float) -> None:
    table = table_of(ms, unplaced_ms=unplaced_ms)
    assert sum(row.share for row in table.rows) == pytest.approx(1)
    assert table.blocks_ms == pytest.approx(sum(ms))
    assert table.unassigned_ms == unplaced_ms


@pytest.mark.parametrize(
    ("product_ms", "traffic_ms", "bound"),
    [(0.9, 0.1, "compute"), (0.1, 0.9, "memory"), (0.1, 0.2, "overhead"), (math.nan, 0.5, "unknown")],
)
def test_a_block_is_bound_by_what_it_needs_most(product_ms: float, traffic_ms: float, bound: str) -> None:
    assert bound_of(1.0, product_ms, traffic_ms) == bound


def test_what_is_not_known_is_null(tmp_path: Path) -> None:
    graph = plain().graph(tmp_path)
    parts = parts_of(graph)
    table = block_table(placed(nodes_of(graph), graph, parts), parts, Ceiling.unknown(), 3.0, "fp32")
    documents = [row.to_json() for row in table.rows]
    assert {(d["bound"], d["ceiling_share"]) for d in documents} == {("unknown", None)}


def test_ceilings_are_joined_by_precision() -> None:
    own = Ceiling({"int8": 4.0}, math.nan, profiler_ms=0.2, outside_ms=0.3)
    both = joined([own, Ceiling({"bf16": 2.0, "int8": 3.0}, 7.0, profiler_ms=0.1, outside_ms=0.1)])
    assert both == Ceiling({"int8": 4.0, "bf16": 2.0}, 7.0, 0.2, 0.3), "the profiler's time is that of the first"


def test_blocks_that_change_places_are_marked() -> None:
    rows = compared(table_of([3.0, 1.0, 2.0]), table_of([1.0, 3.0, 2.1]))
    assert [(row.rank, row.against_rank, row.flips) for row in rows] == [(1, 3, True), (3, 1, True), (2, 2, True)]


@given(st.lists(MS, min_size=1, max_size=8), st.floats(0.5, 2.0))
def test_the_same_order_has_no_flips(ms: list[float], factor: float) -> None:
    assert not any(row.flips for row in compared(table_of(ms), table_of([factor * m for m in ms])))


def test_a_little_noise_is_no_flip() -> None:
    assert not any(row.flips for row in compared(table_of([1.0, 1.1]), table_of([1.1, 1.0])))


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("openvino-int8", ("openvino", "int8", "cpu")),
        ("onnxruntime-int8-dynamic", ("onnxruntime", "int8-dynamic", "cpu")),
        ("torch-fp16@cuda:0", ("torch", "fp16", "cuda:0")),
    ],
)
def test_deployments_are_named(text: str, parsed: tuple[str, str, str]) -> None:
    assert parse_deployment(text) == parsed


@pytest.mark.parametrize("text", ["", "int8", "openvino", "openvino int8", "h200"])
def test_another_name_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="is no deployment"):
        parse_deployment(text)
