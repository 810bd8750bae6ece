"""What a reader can ask the page of a search: another limit, some deployments alone, one candidate.

The page holds the answers: this module writes them beside the plot as JSON, and `explore.js` reads them there. Nothing
is fetched.
"""

import json
import math
from html import escape
from typing import TYPE_CHECKING, Any

from nas.deployment import name_in
from nas.report.document import Document, p50_ms, validation_accuracy
from nas.report.plot import candidate_rows, drawn_results, scale_of

if TYPE_CHECKING:
    import pandas as pd


def explore_html(document: Document, candidates: "pd.DataFrame", *, logarithmic: bool) -> str:
    """Controls, answers and their data; `logarithmic`: the plot's axis of latency. Empty where no network has a latency
    and an accuracy or estimate."""
    data = explore_data(document, candidates) | {"log": logarithmic}
    if not data["candidates"] and not data["files"]:
        return ""
    names = sorted({entry["deployment"] for entry in (*data["candidates"], *data["files"])})
    boxes = "".join(
        f'<label><input type="checkbox" value="{escape(name)}" checked> {escape(name)}</label>' for name in names
    )
    lowest, highest = data["lowest_ms"], data["highest_ms"]
    return f"""<section id="explore" hidden aria-label="Another limit, other deployments">
<div class="controls">
<fieldset id="deployments"><legend>Deployments</legend>{boxes}</fieldset>
<fieldset><legend>Limit</legend>
<input id="limit" type="range" min="0" max="1" step="0.005" aria-label="Limit, from {lowest:.3g} to {highest:.3g} ms">
<label><input id="limit-ms" type="number" min="0" step="any" aria-label="Limit in milliseconds"> ms</label>
</fieldset>
</div>
<p id="who-wins" aria-live="polite"></p>
<p id="who-else" class="soft" aria-live="polite"></p>
<p><b id="candidate-name">Candidate</b> <span id="candidate-facts" class="soft">Point at a dot of the plot.</span>
<small id="candidate-choices"></small></p>
</section>
<script type="application/json" id="explore-data">{_inside_script(data)}</script>"""


def explore_data(document: Document, candidates: "pd.DataFrame") -> dict[str, Any]:
    """What `explore.js` reads, latencies in ms.

    `candidates[]` are as they are drawn: a position in it is a point's `customdata`. `files[]` are trained networks in
    each deployment that they were accepted for; those that are drawn come first, and the point of file 0 is -1.
    `sampling` is the variance of a metric that is a count, over p (1 - p); 0 where the metric is none.
    """
    scale = scale_of(document)
    rows = candidate_rows(candidates, scale.column).to_dict("records")
    drawn = [_candidate({str(name): value for name, value in row.items()}, scale.column) for row in rows]
    files = [_file(result) for result in drawn_results(document)]
    for best in document["best"]:
        files += [
            {
                "network": _name(best),
                "deployment": tried["name"],
                "slowest_ms": tried["worst_session_p50_ms"],
                "accuracy": tried["accuracy"],
                "measured": True,
            }
            for tried in best["deployments"]
            if tried["accepted"] and not tried["chosen"] and _known(tried["worst_session_p50_ms"], tried["accuracy"])
        ]
    limit_ms = document["limit_ms"]
    times = [c["predicted_ms"] for c in drawn] + [f["slowest_ms"] for f in files] + ([limit_ms] if limit_ms else [])
    return {
        "candidates": drawn,
        "files": files,
        "decisions": [[name, list(options)] for name, options in document.get("decisions", {}).items()],
        "is_accuracy": scale.axis == "y",
        "sampling": 1 / document["data"]["val"]
        if document["metric"] == "accuracy" and document["data"]["val"]
        else 0.0,
        "limit_ms": limit_ms,
        "lowest_ms": min(times, default=1.0) / 1.2,
        "highest_ms": max(times, default=1.0) * 1.2,
    }


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


def _file(result: Document) -> dict[str, Any]:
    """A trained network in the deployment that was chosen for it."""
    sessions = [s for s in result.get("session_p50_ms") or () if s is not None]
    return {
        "network": _name(result),
        "deployment": name_in(result),
        "slowest_ms": max(sessions, default=p50_ms(result)),
        "accuracy": validation_accuracy(result),
        "measured": bool(result["measured_latency_ms"]),
    }


def _name(result: Document) -> str:
    return str(result.get("name") or f"winner {result['rank']}")


def _known(*values: float | None) -> bool:
    return all(_number(value) is not None for value in values)


def _number(value: Any) -> float | None:
    """None for what is no finite number."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _inside_script(data: dict[str, Any]) -> str:
    """JSON that no text in it can end the script element of."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
