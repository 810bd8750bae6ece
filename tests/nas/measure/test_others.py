"""Processor time that others take, from the kernel's totals."""

import pytest

from nas.measure.others import ProcessorTimes, is_crowded, others_cores, parse_busy_ticks, processor_times

STAT = """cpu  100 20 30 4000 500 6 7 8 9 9
cpu0 50 10 15 2000 250 3 3 4 4 4
intr 12345
"""


def test_idle_and_waiting_for_a_disk_are_not_busy_and_guests_are_counted_once() -> None:
    assert parse_busy_ticks(STAT) == 100 + 20 + 30 + 6 + 7 + 8
    assert parse_busy_ticks("") == 0


def test_others_took_what_was_not_ours() -> None:
    before = ProcessorTimes(wall_s=10.0, busy_s=1000.0, own_s=5.0)
    after = ProcessorTimes(wall_s=14.0, busy_s=1008.0, own_s=7.0)
    assert others_cores(before, after) == pytest.approx(1.5)
    assert others_cores(before, ProcessorTimes(14.0, 1001.0, 7.0)) == 0.0, "ticks are coarser than our own time"


@pytest.mark.parametrize(
    ("others", "threads", "cores", "crowded"),
    [(0.2, 2, 2, False), (0.3, 2, 2, True), (1.2, 2, 4, False), (1.9, 2, 4, False), (2.3, 2, 4, True)],
)
def test_a_machine_is_crowded_where_our_threads_have_no_core_each(
    others: float, threads: int, cores: int, crowded: bool
) -> None:
    assert is_crowded(others, threads, cores) is crowded


def test_totals_of_this_machine_grow() -> None:
    before = processor_times()
    sum(range(2_000_000))
    after = processor_times()
    assert after.own_s > before.own_s
    assert after.busy_s >= before.busy_s
