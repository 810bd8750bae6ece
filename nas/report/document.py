"""The result document of a run as text: one JSON, and one sentence for people.

The document is what a search returns, writes as `result.json` and prints with `--json`; its schema is described in
docs/result.md. This package only reads it.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

from nas.text import milliseconds, percent

SCHEMA = 1
"""The version of the document that this package reads."""

Document = Mapping[str, Any]


def to_json(document: Document) -> str:
    """The document as JSON; a number that is not finite becomes null, which JSON lacks a word for."""
    return json.dumps(_finite(document), indent=2, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def question(document: Document) -> str:
    """What was asked, as a sentence."""
    return (
        f"Asked for: the most accurate network for {document['data']['name']} that takes at most "
        f"{milliseconds(document['limit_ms'])} ms per image on {document['target']} ({document['device']})."
    )


def answer(document: Document) -> str:
    """What was found, as one or two sentences."""
    if not document["best"]:
        return _nothing(document)
    best = document["best"][0]
    latency_ms = p50_ms(best)
    if not best["measured_here"]:
        latency = f"predicted latency {milliseconds(latency_ms)} ms (not measured here)"
    else:
        latency = f"measured p50 {milliseconds(latency_ms)} ms"
    accuracy, images = final_accuracy(best)
    found = (
        f"Found: a network for {best['runtime']} {best['precision']} at {best['resolution']} px with an accuracy of "
        f"{accuracy} ({images}) and a {latency}"
    )
    verdict = "kept" if best["within_limit"] else "missed"
    # Without a measurement it is the upper bound that is compared with the limit.
    bound = "" if best["measured_here"] else "according to the upper bound of the prediction, "
    return f"{found}. The limit is {verdict}, {bound}by {abs(best['margin_pct']):.0f} %."


def _nothing(document: Document) -> str:
    if not document["feasible"]:
        nearest = min(document["feasibility"], key=lambda row: row["min_ms"], default=None)
        if nearest is None:
            return "Found: nothing. No deployment of the target could be scored."
        return (
            f"Found: nothing. The fastest network of space {document['space']} takes "
            f"{milliseconds(nearest['min_ms'])} ms ({nearest['deployment']})."
        )
    return "Found: nothing that keeps the limit."


def p50_ms(result: Document) -> float | None:
    """Median latency: measured where it was, else predicted (baselines have no prediction)."""
    measured = result["measured_latency_ms"]
    return float(measured["p50"]) if measured else result.get("predicted_latency_ms")


def final_accuracy(result: Document) -> tuple[str, str]:
    """The most telling accuracy there is, and the images it was measured on."""
    accuracy = result["accuracy"] or {}
    if accuracy.get("test") is not None:
        return percent(accuracy["test"]), "on the test images"
    validation = validation_accuracy(result)
    return percent(validation), "not measured" if validation is None else "on the validation images"


def validation_accuracy(result: Document) -> float | None:
    """Accuracy on the validation split: of the deployed file, else of the trained network."""
    accuracy = result["accuracy"] or {}
    deployed = accuracy.get("deployed")
    found = deployed if deployed is not None else accuracy.get("trained")
    return None if found is None else float(found)
