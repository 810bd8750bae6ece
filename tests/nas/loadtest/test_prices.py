"""Prices and what follows from them."""

import math
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nas.errors import UserError
from nas.loadtest.prices import Price, break_even, break_evens, cost_document, machines_needed, read_prices

ENTRY = "{name: small, price_per_hour: 0.36, currency: EUR, date: 2026-11-01, source: a price list, cores: 2}"


def written(folder: Path, text: str) -> Path:
    path = folder / "prices.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_million_images_cost_the_hours_they_take(tmp_path: Path) -> None:
    (price,) = read_prices(written(tmp_path, f"- {ENTRY}"))
    cost = cost_document(price, images_per_s=100.0, cores=2)
    assert cost["per_million"] == pytest.approx(1e6 / 100 / 3600 * 0.36)
    assert cost["per_million_at_30_pct"] == pytest.approx(cost["per_million"] / 0.3)
    assert (cost["scaled_from_cores"], cost["date"], cost["images_per_s"]) == (None, "2026-11-01", 100.0)
    scaled = cost_document(price, images_per_s=100.0, cores=1)
    assert (scaled["scaled_from_cores"], scaled["images_per_s"]) == (1, 200.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the whole: Input should be a valid list"),
        ("[]", "holds no price"),
        ("a: [", "is no YAML"),
        ("- 3", "0: Input should be a valid dictionary"),
        (f"- {ENTRY.replace(', cores: 2', '')}", "0.cores: Field required"),
        (f"- {ENTRY.replace('0.36', '0')}", "0.price_per_hour: Input should be greater than 0"),
        (f"- {ENTRY.replace('0.36', '.inf')}", "0.price_per_hour: Input should be a finite number"),
        (f"- {ENTRY.replace('EUR', 'euros')}", "0.currency"),
        (f"- {ENTRY.replace('2026-11-01', 'lately')}", "0.date"),
        (f"- {ENTRY.replace('cores: 2', 'cores: 2, vat: 19')}", "0.vat: Extra inputs are not permitted"),
        (f"- {ENTRY}\n- {ENTRY.replace('EUR', 'USD')}", "several currencies"),
        ("- !!python/object/apply:os.system [ls]", "is no YAML"),
    ],
)
def test_a_hole_in_the_file_is_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        read_prices(written(tmp_path, text))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "prices.yaml" in str(refused.value)


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read the prices"):
        read_prices(tmp_path / "none.yaml")


RATES = st.floats(1, 1000)
PRICES = st.floats(0.01, 10)


@given(first=st.tuples(RATES, PRICES), second=st.tuples(RATES, PRICES))
@example(first=(1.0, 0.75), second=(math.nextafter(1.0, math.inf), 1.0))  # cheaper for less than any number between
def test_before_the_break_even_the_first_machine_is_not_dearer_and_after_it_it_is(
    first: tuple[float, float], second: tuple[float, float]
) -> None:
    def price(kind: tuple[float, float], demanded: float) -> float:
        return machines_needed(demanded, kind[0]) * kind[1]

    found = break_even(first, second)
    if found is None:
        assert price(first, 500 * first[0]) <= price(second, 500 * first[0]) * (1 + 1e-9)
        return
    if found > 0:
        for share in (0.1, 0.5, 1.0):
            demanded = share * found * (1 - 1e-9)
            assert price(first, demanded) <= price(second, demanded) * (1 + 1e-9)
        after = math.nextafter(found, math.inf) * (1 + 1e-12)
        assert price(first, after) > price(second, after)


def test_pairs_in_which_the_dearer_machine_pays() -> None:
    pairs = break_evens([("small", 100.0, 1.0), ("large", 400.0, 2.5), ("slow and dear", 50.0, 3.0)])
    assert pairs == [{"below": "small", "above": "large", "images_per_s": 200.0}]


def test_a_price_cannot_be_changed(tmp_path: Path) -> None:
    (price,) = read_prices(written(tmp_path, f"- {ENTRY}"))
    assert isinstance(price, Price)
    with pytest.raises(ValueError, match="frozen"):
        price.cores = 4  # type: ignore[misc]
