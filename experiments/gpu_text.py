"""The figures of `experiments.gpu_page` as a section of a Markdown page. Pure."""

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from statistics import median
from typing import Any

from experiments.operator_tables import MOST, WHY

SPREAD_PCT, SPEED_UP, UNEXPLAINED = 3.0, 1.5, 0.2
"""At most: of three sessions' call time; at least: fp16 graph over fp32 graph; at most: of a call beside device time
and copies, over the call."""
Document = Mapping[str, Any]


def markdown(page: Document) -> str:
    """Everything that is in the page's document, and of what is not, why."""
    lines = [f"## {page['gpu']}", ""]
    lines += [f"Host: {page['device']}; {', '.join(f'{name} {v}' for name, v in page['versions'].items())}. "
              f"Measured in {page['seconds']:.0f} s; quoted figures are marked.", ""]  # fmt: skip
    if page["ceilings"]:
        lines += ["| ceiling | TFLOP/s | copy GB/s |", "|---|---|---|"]
        lines += [f"| {name} | {2 * c['gmacs_per_s'] / 1e3:.3g} | {c['gb_per_s']:.4g} |"
                  for name, c in page["ceilings"].items()]  # fmt: skip
        lines.append("")
    lines += [
        "| network | how | batch | call p50 ms | call p99 ms | device ms | copies ms | every 10 ms p50 | images/s | "
        "J/image | idle W | clock MHz | limit W | held down |",
        "|" + "---|" * 14,
    ]
    lines += [_row(figure) for figure in page["figures"]]
    lines += ["", *(f"- {line}" for line in verdicts(page)), ""]
    lines += [*_quoted(), ""]
    if page["operators"]:
        lines += [WHY, "", "| network (p50 ms) | operator | n | device ms | share % |", "|---|---|---|---|---|"]
        for table in page["operators"]:
            first = f"{table['network']} ({table['p50_ms']:.3g})"
            for o in table["operators"][:MOST]:
                lines.append(f"| {first} | {o['kind']} | {o['calls']} | {o['ms']:.3g} | {100 * o['share']:.1f} |")
                first = ""
        lines.append("")
    lines += [f"Left out: {why}." for why in page["left_out"]]
    return "\n".join(lines).rstrip() + "\n"


def verdicts(page: Document) -> list[str]:
    """What the figures have to keep, each with its figure; only of those that were measured."""
    found = []
    first = page["figures"][0]["network"] if page["figures"] else ""
    at_one = {f["how"]: f for f in page["figures"] if f["network"] == first and f["batch"] == 1}
    sessions: Sequence[float] = page["sessions_ms"]
    if len(sessions) > 1:
        spread = 100 * (max(sessions) - min(sessions)) / median(sessions)
        found.append(f"{_kept(spread <= SPREAD_PCT)}: {len(sessions)} sessions within {spread:.1f} % "
                     f"(at most {SPREAD_PCT:g})")  # fmt: skip
    if {"graph fp16", "graph fp32"} <= at_one.keys():
        times = at_one["graph fp32"]["call_p50_ms"] / at_one["graph fp16"]["call_p50_ms"]
        found.append(f"{_kept(times >= SPEED_UP)}: the fp16 graph is {times:.2f} times as fast as the fp32 graph "
                     f"(at least {SPEED_UP:g})")  # fmt: skip
    for figure in page["figures"]:
        if figure["device_ms"] is None or figure["copies_ms"] is None:
            continue
        rest = abs(figure["call_p50_ms"] - figure["device_ms"] - figure["copies_ms"]) / figure["call_p50_ms"]
        found.append(f"{_kept(rest <= UNEXPLAINED)}: {figure['network']}, {figure['how']}, batch {figure['batch']}: "
                     f"{100 * rest:.0f} % of the call is neither device time nor copies (at most "
                     f"{100 * UNEXPLAINED:.0f})")  # fmt: skip
    return found


def _kept(kept: bool) -> str:
    return "kept" if kept else "MISSED"


def _row(figure: Document) -> str:
    state = figure["state"] or {}
    numbers = [figure[k] for k in ("call_p50_ms", "call_p99_ms", "device_ms", "copies_ms", "paced_p50_ms",
                                   "images_per_s", "joules_per_image", "idle_w")]  # fmt: skip
    numbers += [state.get("clock_mhz"), state.get("power_limit_w")]
    cells = ["-" if n is None else f"{n:.4g}" for n in numbers]
    held = state.get("slowdown") or ("-" if not state else "no")
    return f"| {figure['network']} | {figure['how']} | {figure['batch']} | {' | '.join(cells)} | {held} |"


def _quoted() -> list[str]:
    """Single images of ResNet-50 that others have published."""
    document = json.loads(files("nas.compare").joinpath("quoted.json").read_text(encoding="utf-8"))
    rows = [row for row in document["rows"] if row["one_image_p90_ms"] is not None]
    return [
        f"Quoted, not measured here: {document['what']} ({document['source']}).",
        "",
        "| device | round | submitter | one image p90 ms |",
        "|---|---|---|---|",
        *(f"| {r['device']} | {r['round']} | {r['submitter']} | {r['one_image_p90_ms']} |" for r in rows),
    ]
