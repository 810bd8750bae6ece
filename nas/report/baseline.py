"""What a document says of the network that a run began from: in words, and unit by unit."""

from typing import Any

from nas.report.document import Document, metric
from nas.report.markup import sentence, table
from nas.text import count, milliseconds, percent

KEPT = "keep"
"""What a unit became that is still itself."""
HEADINGS = ("unit", "shape", "MACs", "ms", "became", "ms then", "loss in its place")


def summary(document: Document) -> str:
    """How much faster than the baseline the winner is, and what was lost; empty without either."""
    if not document.get("baseline") or not document["best"]:
        return ""
    best, baseline = document["best"][0], document["baseline"]
    name, own = best_of(baseline)
    loss = best["loss"]["validation"]
    low, high = (100 * end for end in loss["interval"])
    text = (
        f"Of the baseline {baseline['reference']} ({percent(baseline['accuracy']['torch'])} {metric(document)} in "
        f"fp32, {milliseconds(own)} ms in {name}): {best['speedup']:.1f} times as fast, "
        f"{_points(loss['mean'])} on {loss['examples']:,} validation examples ({loss['worse']} lost, {loss['better']} "
        f"won; 90 % interval of the loss {low:.1f} to {high:.1f} points): {loss['verdict']}."
    )
    text += _smaller_images(document)
    test = best["loss"]["test"]
    if test is not None:
        text += (
            f" On {test['examples']:,} test examples, deployed against deployed: {_points(test['mean'])} "
            f"({test['worse']} lost, {test['better']} won)."
        )
    epochs = sum(baseline.get("teacher_epochs", {}).values())
    if epochs:
        text += f" All that was taught cost as much as {epochs:.1f} epochs of the baseline's own training."
    return text


def _points(loss: float) -> str:
    if loss == 0:
        return "nothing lost"
    return f"{abs(100 * loss):.1f} points {'lost' if loss > 0 else 'gained'}"


def best_of(baseline: Document) -> tuple[str, float]:
    """Name and median latency of the baseline's fastest deployment that may be used."""
    usable = [d for d in baseline["deployments"] if d["accepted"]]
    fastest = min(usable, key=lambda d: float(d["p50_ms"]))
    return str(fastest["name"]), float(fastest["p50_ms"])


def unit_rows(document: Document) -> list[tuple[str, ...]]:
    """One row for each unit of the baseline, by `HEADINGS`; times are those of the delivered deployment."""
    best, baseline = document["best"][0], document["baseline"]
    deployment = f"{best['runtime']}-{best['precision']}"
    rows: list[tuple[str, ...]] = []
    for unit in baseline["units"]:
        options = {(option["option"], *_form(option)): option for option in unit["options"]}
        own = next((_form(option) for option in unit["options"]), (1.0, None))
        became = options.get((unit["became"], *_form(baseline)))
        changed = is_changed(unit, baseline)
        told = changed or _form(baseline) != own
        rows.append(
            (
                unit["name"],
                _shape(unit),
                count(unit["macs"]),
                _ms(options.get((KEPT, *own)), deployment),
                unit["became"] if unit["became"] != KEPT else "narrower" if changed else "kept",
                _ms(became, deployment) if told else "",
                f"{became['loss']:.2g}" if became and changed else "",
            )
        )
    return rows


def _form(document: Document) -> tuple[float, str | None]:
    """Share of the baseline's channels, and the images: of an option, or of the winner."""
    return float(document.get("width", 1.0)), document.get("input")


def width_of(baseline: Document) -> float:
    """Share of the baseline's channels that the winner has."""
    return float(baseline.get("width", 1.0))


def is_changed(unit: Document, baseline: Document) -> bool:
    """True if the winner has something else in the unit's place."""
    return unit["became"] != KEPT or width_of(baseline) != 1


def _smaller_images(document: Document) -> str:
    """A sentence about the winner's images where they are smaller than the baseline's; empty where they are not."""
    rows = [row["input"] for row in document["baselines"] if row["kind"] == "untouched"]
    own = document["best"][0]["input"]
    if not rows or own == rows[0]:
        return ""
    return f" It takes images of {own}, the baseline {rows[0]}."


def units_html(document: Document) -> str:
    """The section of a page; empty where there is no baseline, or it is as it was."""
    text = summary(document)
    if not text:
        return ""
    head = f"<h2>Against the baseline</h2>\n<p>{sentence(text)}</p>"
    if not any(unit["options"] for unit in document["baseline"]["units"]):
        return head
    baseline = document["baseline"]
    changed = [i for i, unit in enumerate(baseline["units"]) if is_changed(unit, baseline)]
    width = width_of(baseline)
    narrower = (
        ""
        if width == 1
        else f" All of it has {percent(width)} of the baseline's channels, and each loss a part of what that costs."
    )
    return f"""{head}
<h2>What became of each unit</h2>
<p class="soft">Times are those of the unit and of what replaced it, by the runtime's profiler. The loss is how far
answers of the whole network move from the baseline's where this unit alone is replaced, before the whole is
trained.{narrower}</p>
{table(HEADINGS, unit_rows(document), numeric=(2, 3, 5, 6), marked=changed)}"""


def _shape(unit: Document) -> str:
    before, after = (" x ".join(map(str, unit[key])) for key in ("input", "output"))
    return before if before == after else f"{before} to {after}"


def _ms(option: dict[str, Any] | None, deployment: str) -> str:
    found = None if option is None else option["ms"].get(deployment)
    return "-" if found is None else milliseconds(found)
