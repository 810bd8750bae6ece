"""Who is fastest where, on tables whose answers are known."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from experiments.fastest_where import Place, in_common, largest_turn, main, places_of, price_of_the_others_choice
from nas.errors import UserError
from nas.targets.registry import bundled_profiles
from tests.nas.fake_device import fake_profile


def place(label: str, **latency_ms: list[float]) -> Place:
    """A place whose networks are `a`, `b`, ..., by deployment."""
    rows = np.array(list(latency_ms.values()), float)
    return Place(label=label, deployments=tuple(latency_ms), keys=tuple("abcdef"[: rows.shape[1]]), latency_ms=rows)


def test_the_fastest_deployment_of_each_network_counts() -> None:
    here = place("here", fp32=[1.0, 4.0, 3.0], int8=[2.0, 1.0, 3.5])
    assert here.fastest == ["fp32", "int8", "fp32"]
    assert here.fastest_ms.tolist() == [1.0, 1.0, 3.0]


def test_networks_that_a_place_lacks_are_left_out() -> None:
    first = place("first", fp32=[1.0, 2.0, np.nan])
    second = place("second", fp32=[5.0, 6.0, 7.0]).of("ba")
    both = in_common([first, second])
    assert [p.keys for p in both] == [("a", "b"), ("a", "b")]
    assert both[1].latency_ms.tolist() == [[5.0, 6.0]]
    with pytest.raises(UserError, match="first; third"):
        in_common([first, place("third", fp32=[np.nan, np.nan, 1.0])])


def test_the_order_that_turns_round_most_clearly() -> None:
    there, here = place("there", fp32=[1.0, 2.0, 3.0, 3.3]), place("here", fp32=[4.0, 1.0, 3.0, 2.9])
    turn = largest_turn(there, here)
    assert turn is not None
    assert (turn.first, turn.second) == (0, 1)
    assert turn.by == pytest.approx(2.0), "twice as fast there, four times as slow here"
    assert largest_turn(there, there) is None


def test_the_price_of_a_choice_that_was_made_elsewhere() -> None:
    there = place("there", fp32=[1.0, 9.0, 9.0], int8=[2.0, 1.0, 9.0], bf16=[9.0, 9.0, 1.0])
    here = place("here", fp32=[3.0, 2.0, 2.0], int8=[1.5, 2.0, 2.0])
    price = price_of_the_others_choice(there, here)
    assert price[:2].tolist() == [2.0, 1.0]
    assert np.isnan(price[2]), "nothing computes in bf16 here"


def test_a_page_of_the_bundled_profiles_and_another(tmp_path: Path) -> None:
    """The other one is the first of them, on a device that takes twice as long with one of the deployments."""
    known, *_ = bundled_profiles()
    slower = [
        replace(t, timings=tuple(replace(x, latency_ms=2 * x.latency_ms) for x in t.timings)) if i % 2 else t
        for i, t in enumerate(known.tables)
    ]
    replace(known, name="mine", tables=tuple(slower)).save(tmp_path / "mine.json")
    out = tmp_path / "page.md"
    result = CliRunner().invoke(main, ["--out", str(out), "--profile", str(tmp_path / "mine.json")])
    assert result.exit_code == 0, result.output
    page = out.read_text()
    assert "`python -m experiments.fastest_where --profile mine.json`" in page
    assert page.count("\n| mine, 2 threads, continuous | epyc-zen4") == 1
    assert page.count("\n| xeon-spr, 2 threads, continuous | mine, 2 threads") == 1


def test_the_places_of_a_profile_are_its_threads_and_calls() -> None:
    (fast,) = places_of(fake_profile("mine", networks=6, spaces=("mixed",)))
    assert fast.label.startswith("mine, ")
    assert set(fast.fastest) == {"onnxruntime-int8"}
    assert places_of(fake_profile("mine", networks=6, spaces=("mixed",), batch=8)) == []
