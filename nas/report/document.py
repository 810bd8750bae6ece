"""The result document of a run as text: one JSON, and one sentence for people.

The document is what a search returns, writes as `result.json` and prints with `--json`; its schema is described in
docs/result.md. This package only reads it.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

from nas.calls import CONTINUOUS, IDLE
from nas.deployment import CPU, PIPELINE
from nas.text import duration, milliseconds, percent, worth

SCHEMA = 1
"""The version of the document that this package reads."""
FEWEST_COMPARED = 3
"""Finalists without which no order is to be seen."""

_PROCESSED = "with pre- and post-processing"

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
    """The user's question, as a sentence."""
    where = f"for {document['data']['name']} on {document['target']} ({document['device']})"
    kept = limits_text(document)
    return f"Asked for: {_GOALS[objective(document)]} {where}{f', with {kept}' if kept else ''}."


_GOALS = {
    "accuracy": "the most accurate network",
    "latency": "the network with the lowest latency",
    "throughput": "the network with the highest throughput",
    "pareto": "a front of latency and accuracy",
}


def objective(document: Document) -> str:
    """The objective's name, a key of `_GOALS`."""
    return str(document["objective"])


def metric(document: Document) -> str:
    """The name of accuracies: `accuracy`, `mAP@50`."""
    return str(document["metric"])


def limits_text(document: Document) -> str:
    """The limits in words; empty where there were none."""
    return str(document["limits_text"])


def percentile(document: Document) -> int:
    """Percentile of a session's calls that has to keep a limit on latency; 50: the median."""
    return int(document["limits"].get("percentile") or 50)


def judged_ms(tried: Document) -> float | None:
    """What a limit on latency was compared with in a deployment that was tried; earlier results tell of medians
    alone."""
    found = tried.get("judged_ms", tried["worst_session_p50_ms"])
    return None if found is None else float(found)


def judged_heading(document: Document) -> str:
    """Heading of a column of `judged_ms`."""
    return "worst session ms" if percentile(document) == 50 else f"worst session p{percentile(document)} ms"


def limits_speed(document: Document) -> bool:
    """True if something is limited that is predicted of every network: not its accuracy alone, not nothing."""
    return not set(document["limits"]) <= {"min_accuracy", "percentile"}


def answer(document: Document) -> str:
    """The search's answer, as one or two sentences."""
    if not document["best"]:
        return _nothing(document)
    best = document["best"][0]
    latency_ms = p50_ms(best)
    if not best["measured"]:
        latency = f"predicted latency {milliseconds(latency_ms)} ms (not measured)"
    else:
        latency = f"measured p50 {milliseconds(latency_ms)} ms{in_parentheses(calls_text(best))}"
    speed = throughput(document, best)
    latency += f", {' '.join(speed)}" if speed else ""
    accuracy, judged_on = final_accuracy(document, best)
    found = (
        f"Found: a network for {best['runtime']} {best['precision']}{on_device(best)} at {best['input']} with an "
        f"{metric(document)} of {accuracy} ({judged_on}) and a {latency}"
    )
    if objective(document) == "pareto" and len(document["best"]) > 1:
        found = f"{found}; {len(document['best']) - 1} more of the front are faster and less accurate"
    if not limits_text(document):
        return f"{found}."
    verdict = "kept" if best["within_limit"] else "missed"
    several = len(document["limits"]) - ("percentile" in document["limits"]) > 1
    kept = f"{found}. {'All limits are' if several else 'The limit is'} {verdict}"
    if best["margin_pct"] is None:
        return f"{kept}."
    # Without a measurement it is the upper bound that is compared with the limit.
    bound = "" if best["measured"] else "according to the upper bound of the prediction, "
    return f"{kept}, {bound}{'the latency ' if several else ''}by {abs(best['margin_pct']):.0f} %."


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


def calls_text(entry: Document) -> str:
    """What a latency is of, and what else was measured: `continuous calls; at 20/s 0.61 ms; with pre- and
    post-processing 0.52 ms (0.31 + 0.01 around it)`. Empty where nothing was measured.
    """
    patterns = list((entry.get("latency_by_calls_ms") or {}).items())
    if not patterns:
        return ""
    (asked, _), *others = patterns
    more = [
        f"{_called(calls)} {f'{milliseconds(p50_ms)} ms' if p50_ms is not None else 'too slow'}"
        for calls, p50_ms in others
    ]
    pattern = f"{asked} calls" if asked == CONTINUOUS else f"calls {_called(asked)}"
    whole = entry.get("limit_on") == PIPELINE
    times: Mapping[str, float] = entry.get("pipeline") or {}
    if times:
        around = f"{milliseconds(times['preprocess'])} + {milliseconds(times['postprocess'])}"
        beside = ("the network", "network") if whole else (_PROCESSED, "total")
        more.append(f"{beside[0]} {milliseconds(times[beside[1]])} ms ({around} around it)")
    return "; ".join([f"{pattern} {_PROCESSED}" if whole else pattern, *more])


def _called(calls: str) -> str:
    return calls if calls in (CONTINUOUS, IDLE) else f"at {calls}"


def in_parentheses(text: str) -> str:
    """` (text)`; empty for an empty text."""
    return f" ({text})" if text else ""


def p50_ms(result: Document) -> float | None:
    """Median latency: measured where it was, else predicted (baselines have no prediction)."""
    measured = result["measured_latency_ms"]
    return float(measured["p50"]) if measured else result.get("predicted_latency_ms")


def throughput(document: Document, result: Document) -> tuple[str, str] | None:
    """Images per second of a winner, and in calls of how many; None where nobody asked for it."""
    asked = objective(document) == "throughput" or "throughput" in document["limits"]
    if not asked or not result.get("images_per_s"):
        return None
    batch, rate = result.get("batch", 1), result["images_per_s"]
    number = f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
    least = "" if result["measured"] else "at least "
    return f"{least}{number} images/s", f"in calls of {batch} image{'' if batch == 1 else 's'}"


def examples(document: Document) -> str:
    """What the examples of the data of a result or a receipt are called: `images`."""
    return str(document["data"]["examples"])


def final_accuracy(document: Document, result: Document) -> tuple[str, str]:
    """The most telling accuracy there is, and the examples it was measured on."""
    accuracy = result["accuracy"] or {}
    if accuracy.get("test") is not None:
        return percent(accuracy["test"]), f"on the test {examples(document)}"
    validation = validation_accuracy(result)
    return percent(validation), "not measured" if validation is None else f"on the validation {examples(document)}"


def test_figures(document: Document) -> list[tuple[str, dict[str, float]]]:
    """Name of each network that has several figures on the test examples, and its figures by name.

    A single figure is in the tables anyway, and two that read the same are one."""
    named = [(f"winner {best['rank']}", best) for best in document["best"]]
    named += [(str(b["name"]), b) for b in document["baselines"]]
    found = [(name, dict(network.get("test_figures") or {})) for name, network in named]
    return [
        (name, figures)
        for name, figures in found
        if len(figures) > 2 or len({percent(value) for value in figures.values()}) > 1
    ]


def validation_accuracy(result: Document) -> float | None:
    """Accuracy on the validation split: of the deployed file, else of the trained network."""
    accuracy = result["accuracy"] or {}
    deployed = accuracy.get("deployed")
    found = deployed if deployed is not None else accuracy.get("trained")
    return None if found is None else float(found)


def postprocess_text(result: Document) -> str | None:
    """Cost of using a winner's output on top of its latency; None where there is nothing to do."""
    spent_ms = result.get("postprocess_ms")
    return None if spent_ms is None else f"decoding and suppressing double boxes take {milliseconds(spent_ms)} ms more"


def estimator_text(document: Document) -> str:
    """The estimator of the candidates, why it was chosen, and its price."""
    estimator = document["estimator"]
    groups = [
        f"{_candidates(group['candidates'])} by {_ESTIMATORS.get(group['estimator'], group['estimator'])} "
        f"(median {price(group['median_s'])} each)"
        for group in estimator["evaluated_by"]
    ]
    before = f", after {duration(estimator['prepared_s'])} of preparation" if estimator["prepared_s"] else ""
    how = estimator["name"] if estimator["asked"] == estimator["name"] else f"{estimator['name']}, chosen because"
    why = "" if estimator["asked"] == estimator["name"] else f" {estimator['why']}"
    return f"Estimator: {how}{why}. Evaluated: {' and '.join(groups) or 'nothing'}{before}."


def _candidates(number: int) -> str:
    return f"{number} candidate" if number == 1 else f"{number} candidates"


_ESTIMATORS = {
    "short": "a short training",
    "zero-cost": "zero-cost scores",
    "supernet": "a path through the supernet",
    "predictor": "a prediction",
}


def price(seconds: float) -> str:
    """Seconds that may be very few: `2.4 s`, `12 ms`."""
    return duration(seconds) if seconds >= 0.1 else f"{1000 * seconds:.2g} ms"


def estimate_text(result: Document) -> str:
    """A winner's estimate before its full training: `estimated 91.2 % by ... (90 % interval 88.0 to 93.5, 17 s)`."""
    estimate = result["estimate"]
    within = "no interval is known"
    if estimate["interval"] is not None:
        low, high = (worth(end, estimate["unit"]).removesuffix(" %") for end in estimate["interval"])
        within = f"90 % interval {low} to {high}"
    by = _ESTIMATORS.get(estimate["estimator"], estimate["estimator"])
    return f"estimated {worth(estimate['value'], estimate['unit'])} by {by} ({within}, {price(estimate['seconds'])})"


def agreement_text(document: Document) -> str | None:
    """Agreement of the estimates with the accuracies of the networks that were then trained; None where none was."""
    found = document["agreement"]
    if not found or not found["n"]:
        return None
    if found["n"] < FEWEST_COMPARED:
        return f"Agreement of estimates with trained accuracies: too few finalists ({found['n']}) to say."
    tau, versus = (
        "undefined" if value is None else f"{value:.2f}"
        for value in (found["kendall_tau"], found["params_kendall_tau"])
    )
    return (
        f"Agreement of estimates with trained accuracies: Kendall tau {tau} over {found['n']} finalists; "
        f"parameters alone {versus}."
    )


def on_device(entry: Document) -> str:
    """` on cuda:0`, where a deployment's entry says so; nothing for the CPU."""
    device = entry.get("runs_on") or CPU
    return "" if device == CPU else f" on {device}"


def placed(entry: Document) -> str:
    """Place where a deployment runs, for people: `2 threads`, or the name of a GPU."""
    return f"{entry['threads']} threads" if not on_device(entry) else str(entry["runs_on"])
