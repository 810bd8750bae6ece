"""Times of options: the line from units to calls, and real measurements of a small network."""

import json
import math
from pathlib import Path

import pytest

from nas.baseline.library import Library
from nas.baseline.times import (
    Timed,
    UnitTimes,
    mean_error,
    measure_options,
    most_different,
    time_networks,
    worthwhile,
)
from nas.data.images import image_input
from nas.deployment import Deployment
from nas.errors import UserError
from nas.networks.derive import units_for
from nas.networks.derived import Form
from nas.networks.description import NetworkDescription
from nas.networks.options import DROP, KEEP

ORT = Deployment("onnxruntime", "fp32", threads=1)
ROWS = ({KEEP: 4.0, "conv3": 2.0}, {KEEP: 2.0, DROP: 0.0, "conv3": 1.9})
SMALL, WHOLE = ("conv3", DROP), (KEEP, KEEP)


def table(*timed: Timed) -> UnitTimes:
    return UnitTimes(ORT, ROWS, timed)


def test_sums_map_to_calls_by_what_was_measured() -> None:
    exact = table(Timed(WHOLE, 1 + 0.5 * 6), Timed(SMALL, 1 + 0.5 * 2))
    assert exact.line == pytest.approx((1.0, 0.5))
    assert exact.predicted_ms((KEEP, DROP)) == pytest.approx(3.0)
    assert exact.fastest == SMALL
    assert math.isnan(mean_error([exact]))


def test_no_call_takes_less_than_nothing() -> None:
    """A line below zero would promise calls for free."""
    offset, factor = table(Timed(WHOLE, 6.0), Timed(SMALL, 1.0)).line
    assert offset == 0
    assert 0.5 < factor < 1.0
    assert table(Timed(WHOLE, 3.0)).line == pytest.approx((0.0, 0.5))
    assert table().line == (0.0, 1.0)
    falling = table(Timed(WHOLE, 1.0), Timed(SMALL, 3.0))
    assert falling.line[1] > 0


def test_networks_of_different_options_correct_the_line() -> None:
    exact = table(Timed(WHOLE, 6.0), Timed(SMALL, 2.0))
    slower = [Timed(("conv3", KEEP), 6.0), Timed((KEEP, DROP), 6.0), Timed(("conv3", "conv3"), 5.85)]
    mixed = exact.with_mixed(slower)
    for t in slower:
        before, after = (abs(known.predicted_ms(t.options) / t.p50_ms - 1) for known in (exact, mixed))
        assert after < 0.05 < before
    assert mixed.predicted_ms(WHOLE) == pytest.approx(9.0, rel=0.1), "all of them were half slower"
    assert mean_error([mixed]) < 0.1
    again = mixed.with_mixed([Timed((KEEP, DROP), 4.0)])
    assert len(again.mixed) == 3
    assert mean_error([again]) > mean_error([mixed])


def test_what_was_not_measured_is_never_predicted() -> None:
    unknown = UnitTimes(ORT, ({KEEP: 4.0, "conv3": math.inf}, ROWS[1]), (Timed(WHOLE, 6.0),), (Timed(WHOLE, 5.0),))
    assert unknown.predicted_ms(("conv3", KEEP)) == math.inf
    assert unknown.predicted_ms(WHOLE) == pytest.approx(5.0, rel=0.05)
    assert unknown.fastest == (KEEP, DROP)


def test_a_table_is_read_back() -> None:
    made = UnitTimes(
        ORT.called(50.0),
        ({KEEP: 1.0, "conv3": math.inf},),
        (Timed((KEEP,), 1.5),),
        (Timed(("conv3",), 1.0),),
        Form(0.5, 24),
    )
    assert UnitTimes.from_json(json.loads(json.dumps(made.to_json()))) == made


def test_options_that_were_not_measured_with_smaller_images_save_what_their_unit_saves() -> None:
    whole = table(Timed(WHOLE, 6.0), Timed(SMALL, 2.0))
    small = UnitTimes(
        ORT, ({KEEP: 2.0, "conv3": math.inf}, {KEEP: 1.5, DROP: 0.0, "conv3": math.inf}), (Timed(WHOLE, 3.5),),
        form=Form(1.0, 24),
    )  # fmt: skip
    found = small.completed(whole)
    assert found.unit_ms[0] == pytest.approx({KEEP: 2.0, "conv3": 1.0})
    assert found.unit_ms[1] == pytest.approx({KEEP: 1.5, DROP: 0.0, "conv3": 1.9 * 0.75})
    assert (found.form, found.timed) == (small.form, small.timed)
    assert most_different([whole]) == "conv3", "2 and 1.9 are less than 4 and nothing"


def test_only_clearly_faster_options_are_worth_teaching() -> None:
    other = UnitTimes(ORT, ({KEEP: 4.0, "conv3": 3.9}, {KEEP: 2.0, DROP: 0.0, "conv3": 1.7}), ())
    assert worthwhile([table()]) == (("conv3",), (DROP,))
    assert worthwhile([table(), other]) == (("conv3",), (DROP, "conv3"))


@pytest.fixture(scope="module")
def library() -> Library:
    description = NetworkDescription.of_baseline("resnet10_w50", (10,), image_input(32))
    units = units_for(description.build(), description.signature.input)
    return Library(units, [[], ["bottleneck"], *[[]] * (len(units) - 2)])


def test_options_are_measured_in_their_places(library: Library, tmp_path: Path) -> None:
    made: list[str] = []
    (found,) = measure_options(
        library,
        image_input(32),
        [ORT],
        tmp_path,
        prepare=lambda folder: (folder / "seen").touch(),
        on_network=made.append,
    )
    assert made == [KEEP, "bottleneck"]
    assert (tmp_path / KEEP / "seen").exists()
    assert [set(named) for named in found.unit_ms] == [set(names) for names in library.offered]
    assert all(math.isfinite(ms) and ms > 0 for named in found.unit_ms for ms in named.values())
    assert {t.options.count("bottleneck") for t in found.timed} == {0, 1}
    options = (KEEP, "bottleneck", *[KEEP] * (len(library.units) - 2))
    times = time_networks([(options, library.network(options).eval())], image_input(32), [ORT], tmp_path / "again")
    assert [t.options for t in times[ORT]] == [options]


def test_networks_with_smaller_images_are_measured_in_their_own_form(library: Library, tmp_path: Path) -> None:
    (whole,) = measure_options(library, image_input(32), [ORT], tmp_path / "whole")
    form = Form(1.0, 16)
    (small,) = measure_options(library, image_input(16), [ORT], tmp_path / "small", form=form, only=(KEEP,))
    assert small.form == form
    assert not math.isfinite(small.unit_ms[1]["bottleneck"])
    assert all(math.isfinite(ms) for named in small.completed(whole).unit_ms for ms in named.values())
    # A quarter of the places: nothing that a busy machine could turn around.
    assert sum(named[KEEP] for named in small.unit_ms) < 0.7 * sum(named[KEEP] for named in whole.unit_ms)


def test_calls_with_a_pause_are_timed_as_such(library: Library, tmp_path: Path) -> None:
    """Operators are timed without one all the same."""
    slow = ORT.called(20.0)
    (found,) = measure_options(library, image_input(32), [slow], tmp_path)
    assert found.deployment == slow
    assert all(math.isfinite(ms) for named in found.unit_ms for ms in named.values())
    assert len(found.timed) == 2


def test_a_runtime_that_times_no_operators_is_refused(library: Library, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="times of units could not be measured in torch-fp32"):
        measure_options(library, image_input(32), [Deployment("torch", "fp32", threads=1)], tmp_path)
