"""One self-contained page with the evidence of a run; it opens offline and asks the network for nothing."""

import json
import shlex
from base64 import b64encode
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from nas.deployment import name_in
from nas.files.writing import write_whole
from nas.report.baseline import units_html
from nas.report.document import (
    Document,
    agreement_text,
    answer,
    calls_text,
    estimate_text,
    estimator_text,
    examples,
    final_accuracy,
    judged_heading,
    judged_ms,
    limits_text,
    metric,
    objective,
    p50_ms,
    percentile,
    placed,
    postprocess_text,
    question,
    test_figures,
    throughput,
)
from nas.report.explore import explore_html
from nas.report.markup import sentence, table
from nas.report.plot import MAX_POINTS, PLOT_HEIGHT, accuracy_latency_figure, scale_of, visible_candidates
from nas.text import count, duration, milliseconds, percent, points

if TYPE_CHECKING:
    import pandas as pd

# The browser itself refuses every request, whatever a script on the page might try.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


def write_report(document: Document, candidates: "pd.DataFrame", path: Path) -> None:
    """Write the page (about 5 MB: the plotting library is inside) to `path`, in one step.

    Args:
        document: the result of a search (`result.json`).
        candidates: the table `candidates.parquet` of the same run.
        path: the file to write or replace.

    Raises:
        OSError: `path` cannot be written.
    """
    write_whole(path, report_html(document, candidates, path.parent).encode())


def report_html(document: Document, candidates: "pd.DataFrame", folder: Path | None = None) -> str:
    """The page's source; `folder` has the pictures that the document names."""
    from plotly.offline import get_plotlyjs

    style, script = (files("nas.report").joinpath(name).read_text("utf-8") for name in ("report.css", "explore.js"))
    title = f"{document['target']}, {limits_text(document) or objective(document)}"
    sections = (
        _headline(document),
        units_html(document),
        _plot(document, candidates),
        _winners(document),
        _pictures(document, folder),
        _baselines(document),
        _figures(document),
        _feasibility(document),
        _agreement(document),
        _time(document),
        _notes(document),
        _origin(document),
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{escape(title)}</title>
<style>{style}</style>
<script>{get_plotlyjs()}</script>
</head>
<body>
<main>
{"".join(sections)}
</main>
<script>{script}</script>
</body>
</html>
"""


def _headline(document: Document) -> str:
    kept = bool(document["best"]) and document["best"][0]["within_limit"]
    parts = [f'<p class="soft">{sentence(question(document))}</p>', f"<h1>{sentence(answer(document))}</h1>"]
    if document["best"]:
        best = document["best"][0]
        measured = best["measured_latency_ms"]
        spread = (
            f"p90 {milliseconds(measured['p90'])}, p99 {milliseconds(measured['p99'])}; {calls_text(best)}".strip("; ")
            if measured
            else "predicted"
        )
        speed = throughput(document, best)
        figures = (
            (metric(document), *final_accuracy(document, best)),
            ("latency (median)", f"{milliseconds(p50_ms(best))} ms", spread),
            *((("throughput", *speed),) if speed else ()),
            ("limits", limits_text(document) or "none", _margin(best, kept)),
            ("deployment", f"{best['runtime']} {best['precision']}", placed(best)),
            ("size", f"{count(best['params'])} params", f"{count(best['macs'])} MACs at {best['input']}"),
        )
        cells = (
            f"<div><dt>{escape(t)}</dt><dd>{escape(v)}<small>{escape(n)}</small></dd></div>" for t, v, n in figures
        )
        parts.append(f'<dl class="figures">{"".join(cells)}</dl>')
    return "\n".join(parts)


def _heading(document: Document) -> str:
    """The metric's name at the beginning of a sentence: `mAP@50` stays as it is."""
    name = metric(document)
    return name.capitalize() if name.islower() else name


def _margin(best: Document, kept: bool) -> str:
    word = "kept" if kept else "missed"
    return word if best["margin_pct"] is None else f"{word} by {abs(best['margin_pct']):.0f} %"


def _plot(document: Document, candidates: "pd.DataFrame") -> str:
    drawing = accuracy_latency_figure(document, candidates)
    figure = drawing.to_html(
        full_html=False,
        include_plotlyjs=False,
        div_id="accuracy-latency",
        config={"responsive": True, "displaylogo": False, "modeBarButtonsToRemove": ["select2d", "lasso2d"]},
        default_height=f"{PLOT_HEIGHT}px",
    )
    column = scale_of(document).column
    drawn, all_scored = len(visible_candidates(candidates, column)), int(candidates[column].notna().sum())
    thinned = f" Of {all_scored:,} candidates {drawn:,} are drawn." if all_scored > max(drawn, MAX_POINTS) else ""
    tinted = ""
    if document["limit_ms"] is not None:
        tinted = "The tinted side keeps the limit."
        if percentile(document) != 50:
            tinted = f"The limit is on the p{percentile(document)} of a call; all are drawn at their medians."
    measured = all(best["measured"] for best in document["best"])
    latency = "measured latency" if measured else "latency, which was predicted, not measured"
    title = _heading(document)
    return f"""<h2>{title} against latency</h2>
<figure>
<div class="plot" role="group"
 aria-label="{title} against latency of all candidates; the tables below hold the figures">{figure}</div>
<figcaption>{_dots(document)}; all at their predicted latency. Stars and diamonds are trained networks: the
{metric(document)} of the deployed file on the validation {examples(document)} at its
{latency}{_full(document)}. {tinted}{thinned}
</figcaption>
</figure>
{explore_html(document, candidates, logarithmic=drawing.layout.xaxis.type == "log")}"""


def _dots(document: Document) -> str:
    """Meaning of the dots of the plot."""
    name = document["estimator"]["name"]
    if name == "zero-cost":
        return "Dots are candidates by their zero-cost score, which is no accuracy and has the axis on the right"
    if name == "assembled":
        return (
            "Dots are networks of taught parts before any training as a whole, by their accuracy on some validation "
            f"{examples(document)}"
        )
    if name == "supernet":
        return (
            "Large dots are candidates by the accuracy of their path through the supernet, which is below that of a "
            "network trained alone, small ones what the learned predictor expects of that"
        )
    predicted = " or a prediction from those" if name == "predictor" else ""
    return (
        f"Large dots are candidates after a short training of about {document['recipe']['short_s']:.0f} s{predicted}, "
        "small ones what the learned predictor expects of one"
    )


def _full(document: Document) -> str:
    return f", after {document['recipe']['final_epochs']} epochs on {document['data']['train']:,} {examples(document)}"


_NUMBERS = ("p50 ms", "p99 ms", "limit", "estimate %", "trained %", "deployed %", "test %", "MACs", "params")


def _numbers(result: Document) -> tuple[str, ...]:
    accuracy = result["accuracy"] or {}
    measured = result["measured_latency_ms"]
    p50 = milliseconds(p50_ms(result))
    return (
        p50 if measured or p50 == "-" else f"~{p50}",
        milliseconds(measured["p99"]) if measured else "-",
        "kept" if result["within_limit"] else "missed",
        points(_estimated(result)),
        *(points(accuracy.get(stage)) for stage in ("trained", "deployed", "test")),
        count(result["macs"]),
        count(result["params"]),
    )


def _estimated(result: Document) -> float | None:
    """Accuracy that the predictor expected; where it had seen nothing, the estimate that chose the network."""
    expected = (result["accuracy"] or {}).get("estimate")
    own = result.get("estimate") or {"unit": ""}  # well-known networks have none
    return own["value"] if expected is None and own["unit"] == "accuracy" else expected


def _winners(document: Document) -> str:
    if not document["best"]:
        return ""
    rows = [(f"winner {best['rank']}", _deployment(best), best["input"], *_numbers(best)) for best in document["best"]]
    headings = ("network", "deployment", "input", *_NUMBERS)
    figures = table(headings, rows, numeric=range(2, len(headings)))
    return f"""<h2>Winners</h2>
<p class="soft">{_heading(document)} in per cent; estimate, trained and deployed on the validation {examples(document)},
test on {examples(document)} that no decision has seen. A latency with ~ is predicted.</p>
{figures}
{"".join(_winner(document, best) for best in document["best"])}"""


def _winner(document: Document, best: Document) -> str:
    rows = [
        (
            tried["name"],
            milliseconds(tried["p50_ms"]),
            milliseconds(judged_ms(tried)),
            points(tried["accuracy"]),
            "chosen" if tried["chosen"] else ("accepted" if tried["accepted"] else "refused"),
            tried["reason"] or "",
        )
        for tried in best["deployments"]
    ]
    headings = ("deployment", "p50 ms", judged_heading(document), "validation %", "decision", "reason")
    marked = [i for i, tried in enumerate(best["deployments"]) if tried["chosen"]]
    sessions = ", ".join(milliseconds(value) for value in best["session_p50_ms"] or ())
    measured = (
        f"Medians of the freshly loaded sessions: {sessions} ms (machine {best['verdict']}). " if sessions else ""
    )
    more = postprocess_text(best)
    measured += f"{more.capitalize()}, in numpy on one thread. " if more else ""
    named = ((label, best[key]) for label, key in (("ONNX", "onnx"), ("deployed", "model"), ("receipt", "receipt")))
    paths = ", ".join(f"{label} <code>{escape(path)}</code>" for label, path in named if path)
    return f"""<h3>Winner {best["rank"]}: why {escape(_deployment(best))}</h3>
{table(headings, rows, numeric=(1, 2, 3), marked=marked)}
<p>{escape(measured)}Files: {paths}</p>
<details><summary>Architecture <code>{escape(best["key"])}</code></summary>
<pre>{escape(json.dumps(best["architecture"], indent=1))}</pre></details>"""


def _pictures(document: Document, folder: Path | None) -> str:
    """Pictures of the run, inside the page; a picture that was removed is left out."""
    if folder is None:
        return ""
    shown = []
    for picture in document.get("pictures", ()):
        file = folder / Path(picture["file"]).name
        if file.is_file():
            data, caption = b64encode(file.read_bytes()).decode("ascii"), escape(picture["caption"])
            shown.append(
                f'<figure><img src="data:image/png;base64,{data}" alt="{caption}" style="width:100%">'
                f"<figcaption>{caption}</figcaption></figure>"
            )
    return f"<h2>Validation images</h2>{''.join(shown)}" if shown else ""


def _baselines(document: Document) -> str:
    if not document["baselines"]:
        return ""
    rows = [(b["name"], _deployment(b), b["input"], *_numbers(b)) for b in document["baselines"]]
    headings: tuple[str, ...] = ("network", "deployment", "input", *_NUMBERS)
    # A baseline has no estimate: nobody proposed it.
    drop = headings.index("estimate %")
    headings = headings[:drop] + headings[drop + 1 :]
    rows = [row[:drop] + row[drop + 1 :] for row in rows]
    remarks = "".join(
        f'<p class="soft">{escape(b["name"])}: {escape(b["note"])}</p>' for b in document["baselines"] if b["note"]
    )
    return f"""<h2>Baselines</h2>
<p class="soft">The same data, training recipe and measurement.</p>
{table(headings, rows, numeric=range(2, len(headings)))}{remarks}"""


def _figures(document: Document) -> str:
    figures = test_figures(document)
    if not figures:
        return ""
    names = dict.fromkeys(name for _, found in figures for name in found)  # one row each: there may be many classes
    rows = [(name, *(points(found.get(name)) for _, found in figures)) for name in names]
    return f"""<h2>On the test {examples(document)}</h2>
<p class="soft">All figures of the deployed files, in per cent.</p>
{table(("figure", *(network for network, _ in figures)), rows, numeric=range(1, 1 + len(figures)))}"""


def _feasibility(document: Document) -> str:
    rows = [
        (
            row["deployment"],
            *(milliseconds(row[key]) for key in ("min_ms", "median_ms", "max_ms")),
            "yes" if row["satisfiable"] else "no",
        )
        for row in document["feasibility"]
    ]
    headings = ("deployment", "fastest ms", "median ms", "slowest ms", "can keep the limit")
    return f"""<h2>What the space offers on this target</h2>
<p class="soft">Predicted before any training, over space {escape(document["space"])}
({count(document["space_size"])} networks).</p>
{table(headings, rows, numeric=(1, 2, 3))}"""


def _agreement(document: Document) -> str:
    rows = [
        (
            row["deployment"],
            f"{row['n_networks']} / {row['n_heldout']}",
            percent(row["mape"]),
            percent(row["within_10pct"]),
            _signed_percent(row["corrected_by"]),
        )
        for row in document["predictor"]
    ]
    headings = ("deployment", "measured / held out", "mean error", "within 10 %", "corrected for today by")
    parts = ["<h2>How far to trust the predictions</h2>"]
    if rows:
        parts.append(table(headings, rows, numeric=(1, 2, 3, 4)))
    for best in document["best"]:
        accuracy = best["accuracy"] or {}
        measured = best["measured_latency_ms"]
        predicted = f"{milliseconds(best['predicted_latency_ms'])} ± {best['predicted_std_ms']:.2g} ms"
        parts.append(
            f"<p>Winner {best['rank']}: latency {predicted} predicted, "
            f"{milliseconds(measured['p50']) + ' ms measured' if measured else 'not measured'}; {metric(document)} "
            f"{escape(estimate_text(best))}, {percent(accuracy.get('trained'))} after "
            "training.</p>"
        )
    sentences = (estimator_text(document), agreement_text(document))
    parts += [f"<p>{escape(sentence)}</p>" for sentence in sentences if sentence]
    return "\n".join(parts)


def _signed_percent(factor: float | None) -> str:
    return "-" if factor is None else f"{100 * (factor - 1):+.1f} %"


def _time(document: Document) -> str:
    seconds = {stage: value for stage, value in document["seconds"].items() if stage != "total"}
    total = document["seconds"].get("total") or sum(seconds.values())
    planned = document.get("estimate_s") or {}
    rows = "".join(
        f'<tr><th scope="row">{escape(stage.replace("_", " "))}</th><td class="n">{duration(value)}</td>'
        f'<td class="n">{duration(planned[stage]) if stage in planned else "-"}</td>'
        f'<td class="wide"><span class="bar" style="width:{100 * value / (total or 1):.1f}%"></span></td></tr>'
        for stage, value in seconds.items()
    )
    return f"""<h2>Where the time went</h2>
<p class="soft">{duration(total)} in all, of a budget of {_budget(document)}{_cost(document)}; beside each stage
what was expected before the start. {count(document["candidates_scored"])} candidates scored,
{document["candidates_evaluated"]} evaluated.</p>
<div class="scroll"><table><tbody>{rows}</tbody></table></div>"""


def _budget(document: Document) -> str:
    if document["budget_s"] is not None:
        return duration(document["budget_s"])
    return f"{document['max_trials']} trials"


def _cost(document: Document) -> str:
    cost = document.get("cost_usd")
    return "" if cost is None else f", {cost:.2f} USD"


def _notes(document: Document) -> str:
    if not document["notes"]:
        return ""
    items = "".join(f"<li>{sentence(note)}</li>" for note in document["notes"])
    return f"<h2>Notes</h2><ul>{items}</ul>"


def _origin(document: Document) -> str:
    data = document["data"]
    return f"""<h2>Do it again</h2>
<pre>{escape(document["command"])}</pre>
<pre>nas report {escape(shlex.quote(str(document["run_dir"])))}</pre>
<footer>Data {escape(str(data["name"]))}: {data["classes"]} classes, {data["train"]:,} training, {data["val"]:,}
validation and {data["test"]:,} test {examples(document)}. Seed {document["seed"]}. Written by nas
{escape(document["nas_version"])}, run of {escape(document["created"])}.</footer>"""


def _deployment(result: Document) -> str:
    return name_in(result)
