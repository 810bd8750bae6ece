import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nas.cli.durations import parse_duration
from nas.errors import UserError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("30m", 1800), ("4h", 14400), ("1h30m", 5400), ("0.5h", 1800), (" 2M ", 120)],
)
def test_reads(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "90", "s", "-5m", "0s", "0h0m", "5 m", "4d", "1h30", "nan", "inf", "5mm", "٣s"])
def test_refuses(text: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_duration(text)
    assert repr(text) in str(caught.value)
    assert caught.value.hint


@given(st.text(alphabet="0123456789.smh -e", max_size=12))
def test_gives_a_positive_number_or_a_user_error(text: str) -> None:
    with contextlib.suppress(UserError):
        assert parse_duration(text) > 0
