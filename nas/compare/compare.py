"""`nas compare`: the document of a comparison, from the documents of two benches and a file of prices."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from nas import __version__
from nas.bench.document import Document
from nas.compare.roofline import roof_of
from nas.compare.sides import (
    Side,
    any_disturbed,
    in_both,
    joules_per_image,
    most_images_per_s,
    read_side,
    runs_on_cpu,
    single_calls,
)
from nas.deployment import name_in
from nas.errors import UserError
from nas.loadtest.prices import Price, break_even, cost_document, read_prices

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareConfig:
    """What is asked."""

    a: Path
    b: Path
    """Documents of `nas bench --json`; they may be the same file with two `deployments`."""
    deployments: tuple[str, str] | None = None
    """Names of the deployments of A and B that count; None: each network's fastest."""
    prices: Path | None = None
    machines: tuple[str, str] | None = None
    """Names of the prices of A and B; None: the only one is of both, of two the first is of A."""
    command: str = "nas compare"


def run_compare(config: CompareConfig) -> dict[str, Any]:
    """The document of a comparison; see docs/compare.md. Measures nothing.

    Raises:
        UserError: a file that is no bench, prices with a hole, names that are not there, or no network in both.
    """
    chosen = config.deployments or (None, None)
    a, b = read_side("A", config.a, chosen[0]), read_side("B", config.b, chosen[1])
    prices = None if config.prices is None else _prices(config.prices, config.machines)
    if prices is None and config.machines is not None:
        raise UserError("there are names of machines, and no prices", "give --prices FILE too")
    models, not_compared = in_both(a, b)
    return {
        "schema": SCHEMA,
        "nas_version": __version__,
        "command": config.command,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "a": _side_document(a),
        "b": _side_document(b),
        "networks": [_network(model, a, b, prices) for model in models],
        "not_compared": not_compared,
        "quoted": quoted_rows(),
    }


def quoted_rows() -> dict[str, Any]:
    """Results that others have published and nothing here has measured: `what`, `source`, and `rows[]` with `device`,
    `round`, `submitter`, `one_image_p90_ms`, `offline_per_s` and `server_per_s` (p99 within 15 ms), the latter two
    from the lowest to the highest; null where there is none."""
    text = files("nas.compare").joinpath("quoted.json").read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


def _prices(path: Path, machines: tuple[str, str] | None) -> tuple[Price, Price]:
    """The prices of A and B."""
    found = read_prices(path)
    if machines is None:
        if len(found) > 2:
            raise UserError(
                f"'{path}' has {len(found)} prices, and nothing says which are of A and B",
                f"give --machines {found[0].name!r} {found[1].name!r}",
            )
        return found[0], found[-1]
    known = {price.name: price for price in found}
    missing = next((name for name in machines if name not in known), None)
    if missing is not None:
        raise UserError(f"'{path}' has no price of {missing!r}", f"it has {', '.join(known)}")
    return known[machines[0]], known[machines[1]]


def _side_document(side: Side) -> dict[str, Any]:
    entry = side.document
    return {
        "file": str(side.path),
        "device": entry["device"],
        "gpu": entry.get("fingerprint", {}).get("gpu"),
        "threads": entry["threads"],
        "created": entry.get("created"),
        "sessions": entry.get("sessions"),
    }


def _network(model: str, a: Side, b: Side, prices: tuple[Price, Price] | None) -> dict[str, Any]:
    first, second = (_of_side(side, model, prices[i] if prices else None) for i, side in enumerate((a, b)))
    at = {row["batch"]: row for row in second["calls"]}
    return {
        "model": model,
        "input": a.models[model]["input"],
        "a": first,
        "b": second,
        "latency_ratio": {str(r["batch"]): _ratio(at[r["batch"]]["p50_ms"], r["p50_ms"])
                          for r in first["calls"] if r["batch"] in at},
        "throughput_ratio": _ratio(second["images_per_s"], first["images_per_s"]),
        "break_even": _break_even(first["cost"], second["cost"]),
    }  # fmt: skip


def _of_side(side: Side, model: str, price: Price | None) -> dict[str, Any]:
    cells = side.cells_of(model)
    single = single_calls(cells)
    best = most_images_per_s(cells)
    # The cores of a GPU's host say nothing of the GPU's rate.
    cores = int(best["threads"]) if runs_on_cpu(best) else price.cores if price else 1
    return {
        "deployment": name_in(best),
        "threads": best["threads"],
        "disturbed": any_disturbed(cells),
        "calls": [
            {
                "batch": batch,
                "p50_ms": cell["p50_ms"],
                "p99_ms": cell.get("p99_ms"),
                "images_per_s": cell["images_per_s"],
                "joules_per_image": joules_per_image(cell),
            }
            for batch, cell in sorted(single.items())
        ],
        "images_per_s": best["images_per_s"],
        "at": {"batch": best["batch"], "streams": best["streams"]},
        "joules_per_image": joules_per_image(best),
        "cost": None if price is None else cost_document(price, float(best["images_per_s"]), cores),
        "roofline": _roofline(side.document, model, single.get(1)),
    }


def _roofline(document: Document, model: str, cell: Document | None) -> dict[str, Any] | None:
    """None where the bench has no ceilings of that deployment, no products of the network, or no call of one image."""
    known: Mapping[str, Any] = document.get("roofline") or {"ceilings": [], "networks": []}
    products: Sequence[Mapping[str, Any]] = next((n["products"] for n in known["networks"] if n["model"] == model), [])
    if cell is None or not products:
        return None
    ceiling = next((c for c in known["ceilings"] if name_in(c) == name_in(cell)), None)
    if ceiling is None or ceiling["gmacs_per_s"] is None or ceiling["gb_per_s"] is None:
        return None
    roof = roof_of(products, cell["precision"], ceiling["gmacs_per_s"], ceiling["gb_per_s"], cell["p50_ms"])
    macs = sum(layer["macs"] for layer in products)
    return {**asdict(roof), "macs": macs, "reached_gmacs_per_s": macs / (cell["p50_ms"] * 1e6)}


def _break_even(a: Mapping[str, Any] | None, b: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """`below`: the side (`a` or `b`) that is cheaper up to `images_per_s`, `above`: the other one from there on (null:
    never); None without prices. Machines are whole."""
    if a is None or b is None:
        return None
    rates = {name: (float(c["images_per_s"]), float(c["price_per_hour"])) for name, c in (("a", a), ("b", b))}
    below, above = sorted(rates, key=lambda name: (rates[name][1], -rates[name][0]))
    found = break_even(rates[below], rates[above])
    return {"below": below, "above": None if found is None else above, "images_per_s": found}


def _ratio(second: float | None, first: float | None) -> float | None:
    """How many times the first the second is."""
    if second is None or first is None or not first or not math.isfinite(second / first):
        return None
    return second / first
