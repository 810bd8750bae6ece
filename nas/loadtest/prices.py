"""What a million images cost, from prices that the user gives: no price is built in, since all of them change."""

import datetime
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from nas.errors import UserError

LIGHT_LOAD = 0.3
"""Part of the rate at the limit that a service is often used at; the machine costs the same."""
_MOST_MACHINES = 10_000
_LEAST_STRETCH = 1e-9
"""A machine that is cheaper for a smaller share of a rate than this is not called so: no rate is known better."""
_FORM = "a list of entries with name, price_per_hour, currency, date, source and cores"

_Name = Annotated[str, Field(min_length=1)]
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Price(BaseModel):
    """A machine that can be rented."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: _Name
    price_per_hour: _Positive
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")]
    """ISO 4217: EUR, USD."""
    date: datetime.date
    """When it was looked up."""
    source: _Name
    """Where it was looked up."""
    cores: Annotated[int, Field(ge=1)]


def read_prices(path: Path) -> list[Price]:
    """The prices in a YAML file.

    Raises:
        UserError: no such file, no YAML, or an entry with a hole in it.
    """
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read the prices '{path}': {error.strerror}", f"write {_FORM}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        problem = str(error).replace("\n", " ")
        raise UserError(f"'{path}' is no YAML: {problem}", f"write {_FORM}") from error
    try:
        prices = TypeAdapter(list[Price]).validate_python(document)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise UserError(f"'{path}': {place}: {first['msg']}", f"write {_FORM}") from error
    if not prices:
        raise UserError(f"'{path}' holds no price", f"write {_FORM}")
    if len({price.currency for price in prices}) > 1:
        raise UserError(f"'{path}' has prices in several currencies", "give all of them in one")
    return prices


def cost_document(price: Price, images_per_s: float, cores: int) -> dict[str, Any]:
    """What one machine costs per million images.

    Args:
        price: of the machine.
        images_per_s: rate that was measured here.
        cores: that the rate was measured on; for a machine with another number the rate is taken to be proportional.
    """
    rate = images_per_s * price.cores / cores
    per_million = price.price_per_hour / 3600 / rate * 1e6
    return {
        **price.model_dump(mode="json"),
        "images_per_s": rate,
        "scaled_from_cores": cores if cores != price.cores else None,
        "per_million": per_million,
        "per_million_at_30_pct": per_million / LIGHT_LOAD,
    }


def machines_needed(images_per_s: float, rate_of_one: float) -> int:
    """Machines that answer a demanded rate, each at most `rate_of_one`."""
    return max(1, math.ceil(images_per_s / rate_of_one))


def break_even(first: tuple[float, float], second: tuple[float, float]) -> float | None:
    """The demanded rate beyond which the second kind of machine is the cheaper one for the first time.

    Args:
        first, second: (images per second, price per hour) of one machine of each kind.

    Returns:
        images per second; 0 where the second is never dearer, None where it never becomes cheaper (up to 10,000
        machines of the first kind). Machines are whole, so it need not stay the cheaper one at every higher rate.
    """
    (rate, price), (other_rate, other_price) = first, second
    if other_price <= price and other_rate >= rate:
        return 0.0
    for full in range(_MOST_MACHINES):
        demanded = full * rate  # a little more than this takes one more machine of the first kind
        others = machines_needed(demanded * (1 + _LEAST_STRETCH), other_rate)
        if (full + 1) * price > others * other_price:
            return demanded
    return None


def break_evens(costs: Sequence[tuple[str, float, float]]) -> list[dict[str, Any]]:
    """Every pair of (name, images per second, price per hour) in which the dearer machine pays from some rate on."""
    found = []
    for cheap in costs:
        for dear in costs:
            if cheap[2] < dear[2] and (rate := break_even(cheap[1:], dear[1:])) is not None:
                found.append({"below": cheap[0], "above": dear[0], "images_per_s": rate})
    return found
