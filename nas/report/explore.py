"""What a reader can ask the page of a search: another limit, some deployments alone, one candidate.

The page holds the answers: this module writes them beside the plot as JSON, and `explore.js` reads them there. Nothing
is fetched.
"""

import json
import math
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from nas.deployment import name_in
from nas.report.document import Document, metric, objective, percentile, validation_accuracy
from nas.report.markup import sentence
from nas.report.plot import candidate_rows, drawn_results, scale_of

if TYPE_CHECKING:
    import pandas as pd

LATENCY = "latency_ms"
"""The limit that a reader can change."""
_ORDERS = {
    "accuracy": "of the networks the most accurate wins, of equal ones the faster",
    "latency": "of the networks the one with the lowest latency wins",
    "throughput": "of the networks the one with the highest throughput wins",
    "pareto": "of the networks those win that no other beats in both latency and accuracy",
}


def explore_html(document: Document, candidates: "pd.DataFrame", *, logarithmic: bool) -> str:
    """Controls, answers and their data; `logarithmic`: the plot's axis of latency. Empty where no network has a latency
    and an accuracy or estimate."""
    data = explore_data(document, candidates) | {"log": logarithmic}
    if not data["candidates"] and not data["drawn"]:
        return ""
    files = [file for network in data["networks"] for file in network["files"]]
    rows = (*data["candidates"], *files, *data["baselines"])
    names = sorted({*(row["deployment"] for row in rows), *data["drawn"]})
    boxes = "".join(
        f'<label><input type="checkbox" value="{escape(name)}" checked> {escape(name)}</label>' for name in names
    )
    why_not = no_limit_reason(document)
    return f"""<section id="explore" hidden aria-label="Another limit, other deployments, one candidate">
<div class="controls">
<fieldset id="deployments"><legend>Deployments</legend>{boxes}</fieldset>
{f'<p class="soft" id="no-limit">{sentence(why_not)}</p>' if why_not else _limit_controls(document, data)}
</div>
{"" if why_not else _answers(document)}
<p><label for="candidate">Candidate</label> <select id="candidate"><option value="">none</option></select>
<small>Choose one here, or point at a dot of the plot.</small></p>
<p aria-live="polite"><b id="candidate-name"></b> <span id="candidate-facts" class="soft"></span>
<small id="candidate-choices"></small></p>
</section>
<script type="application/json" id="explore-data">{_inside_script(data)}</script>"""


def no_limit_reason(document: Document) -> str:
    """Why no other limit can be asked of this page; empty where it can."""
    if "baseline" in document:
        return (
            "With another limit a search from a trained network assembles another network: ask for it with "
            "`nas search --run`."
        )
    finalists = document.get("finalists")
    entries = [tried for trained in (*document["best"], *(finalists or ())) for tried in trained["deployments"]]
    known = all("judged_ms" in entry for entry in (*entries, *document["baselines"]))
    if finalists is None or not known:
        return "This result is of an earlier version and does not say what was judged of each file: no other limit."
    if not networks_of(document):
        return "No network was trained that another limit on latency would deliver."
    return ""


def explore_data(document: Document, candidates: "pd.DataFrame") -> dict[str, Any]:
    """What `explore.js` reads, latencies in ms.

    `candidates[]` are as they are drawn: a position in it is a point's `customdata`. `drawn[]` are the deployments of
    the trained networks that are drawn: the point of number 0 has -1. `networks[]` and `baselines[]` are what an answer
    is chosen from; without networks no limit can be asked for.
    """
    scale = scale_of(document)
    rows = candidate_rows(candidates, scale.column).to_dict("records")
    shown = [_candidate({str(name): value for name, value in row.items()}, scale.column) for row in rows]
    possible = not no_limit_reason(document)
    networks = networks_of(document) if possible else []
    baselines = _baselines(document) if possible else []
    limit_ms = document["limit_ms"]
    times = [c["predicted_ms"] for c in shown] + [b["judged_ms"] for b in baselines]
    times += [file["judged_ms"] for network in networks for file in network["files"]]
    times += [] if limit_ms is None else [limit_ms]
    return {
        "candidates": shown,
        "drawn": [name_in(result) for result in drawn_results(document)],
        "networks": networks,
        "baselines": baselines,
        "objective": objective(document),
        "judged": judged_text(document),
        "decisions": [[name, list(options)] for name, options in document.get("decisions", {}).items()],
        "is_accuracy": scale.axis == "y",
        "limit_ms": limit_ms,
        "lowest_ms": min(times, default=1.0) / 1.2,
        "highest_ms": max(times, default=1.0) * 1.2,
    }


def networks_of(document: Document) -> list[dict[str, Any]]:
    """The trained networks, each with the files that keep everything but, perhaps, the limit on latency."""
    trained = [(f"winner {best['rank']}", best) for best in document["best"]]
    trained += [(f"finalist {n}", entry) for n, entry in enumerate(document.get("finalists") or (), start=1)]
    networks = []
    for name, entry in trained:
        files = [_file(tried) for tried in entry["deployments"] if _is_offered(tried)]
        if files:
            networks.append({"name": name, "slack": entry["slack"], "files": files})
    return networks


def judged_text(document: Document) -> str:
    """What a limit on latency is compared with, for people: `median of the slowest session`."""
    if not all(best["measured"] for best in document["best"]):
        return "upper bound of the prediction"
    if percentile(document) == 50:
        return "median of the slowest session"
    return f"p{percentile(document)} of the slowest session, at the upper end of what its calls allow"


def _is_offered(tried: Document) -> bool:
    """A file that was accepted, or rejected for its latency alone."""
    possible = tried["accepted"] or tried.get("latency_alone", False)
    return possible and all(_number(tried.get(key)) is not None for key in ("judged_ms", "call_ms", "accuracy"))


def _file(tried: Document) -> dict[str, Any]:
    return {
        "name": tried["name"],
        # a file with fewer threads or mirrored views is a variant of its deployment
        "deployment": tried["name"].partition(" (")[0],
        "judged_ms": tried["judged_ms"],
        "speed_ms": tried["judged_ms"] if tried["p50_ms"] is None else tried["p50_ms"],
        "call_ms": tried["call_ms"],
        "images_per_s": tried["images_per_s"],
        "accuracy": tried["accuracy"],
        "worth_it": tried["worth_it"],
        "ties": tried.get("ties", {}),
    }


def _baselines(document: Document) -> list[dict[str, Any]]:
    """Trained baselines, as they were deployed, that keep every limit but, perhaps, that on latency."""
    return [
        {
            "name": baseline["name"],
            "deployment": name_in(baseline),
            "judged_ms": baseline["judged_ms"],
            "accuracy": validation_accuracy(baseline),
        }
        for baseline in document["baselines"]
        if baseline["judged_ms"] is not None
        and validation_accuracy(baseline) is not None
        and set(baseline["missed"]) <= {LATENCY}
    ]


def _limit_controls(document: Document, data: Mapping[str, Any]) -> str:
    unit = f"ms (p{percentile(document)})" if percentile(document) != 50 else "ms"
    return f"""<fieldset><legend>Limit</legend>
<input id="limit" type="range" min="0" max="1" step="0.005"
 aria-label="Limit, from {data["lowest_ms"]:.3g} to {data["highest_ms"]:.3g} ms">
<label><input id="limit-ms" type="number" min="0" step="any" aria-label="Limit in milliseconds"> {unit}</label>
</fieldset>"""


def _answers(document: Document) -> str:
    """Where the answers go, and the rule they follow."""
    slack = objective(document) == "accuracy" and any(network["slack"] for network in networks_of(document))
    fastest = "its fastest file"
    if slack:
        fastest += " that is level with its most accurate one (within one standard error of the difference)"
    others = sorted(set(document["limits"]) - {LATENCY, "percentile"})
    kept = " Whatever is named keeps the other limits of this search as well." if others else ""
    rule = (
        f"The rule is the search's: each network is delivered as {fastest}; {_ORDERS[objective(document)]}.{kept} "
        "Only networks that this run trained can be named: `nas search --run` with another limit may train better ones."
    )
    return f"""<p id="who-wins" aria-live="polite"></p>
<p id="best-baseline" class="soft" aria-live="polite"></p>
<p id="who-else" class="soft" aria-live="polite"></p>
<details><summary>How the answer is chosen</summary><p class="soft">{sentence(rule)} Per cent are
{escape(metric(document))} on the validation images.</p></details>"""


def _candidate(row: dict[str, Any], column: str) -> dict[str, Any]:
    key = str(row["key"])
    choices = key.rpartition(":")[2].split("-")
    trained = _number(row.get("accuracy_trained"))
    became = {"evaluated": "evaluated", "scored": "scored by the predictors alone"}.get(row["state"], row["state"])
    if trained is not None:
        became = f"trained fully, {100 * trained:.1f} %"
    return {
        "key": key,
        "choices": [int(c) for c in choices] if all(c.isdigit() for c in choices) else [],
        "deployment": row["deployment"],
        "input": row["input"],
        "predicted_ms": float(row["predicted_latency_ms"]),
        "std_ms": _number(row.get("predicted_std_ms")) or 0.0,
        "estimate": _number(row[column]),
        "became": f"{became}: {row['reason']}" if row.get("reason") else became,
    }


def _number(value: Any) -> float | None:
    """None for what is no finite number."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _inside_script(data: dict[str, Any]) -> str:
    """JSON that no text in it can end the script element of."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
