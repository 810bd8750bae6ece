import pytest

from nas.text import count, duration, milliseconds, percent, points


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.6, "1 min"),
        (125, "2 min 5 s"),
        (3599.7, "1 h"),
        (5400, "1 h 30 min"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.01234, "0.0123"),
        (0.5, "0.500"),
        (1.1, "1.10"),
        (62.53, "62.5"),
        (1234.6, "1235"),
        (0, "0"),
        (None, "-"),
        (float("nan"), "-"),
    ],
)
def test_milliseconds(value: float | None, text: str) -> None:
    assert milliseconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(950, "950"), (12_340, "12.3 k"), (4.5e6, "4.5 M"), (1.2e9, "1.2 G"), (46_580_000_000_000, "4.7e13"), (None, "-")],
)
def test_count(value: float | None, text: str) -> None:
    assert count(value) == text


def test_percent() -> None:
    assert percent(0.805) == "80.5 %"
    assert percent(None) == percent(float("nan")) == "-"
    assert points(0.805) == "80.5"
