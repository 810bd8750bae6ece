"""The document of a load test, from its trials; described in docs/load-tests.md. Pure functions."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from nas.loadtest.images import Pictures
from nas.loadtest.outcome import Trial, trial_document, variation
from nas.loadtest.plan import ClosedLoop
from nas.loadtest.rate_trials import RateFound
from nas.loadtest.subjects import Subject, settings_text

SCHEMA = 1

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A trial, and what it was made for."""

    purpose: str
    """`clients`, `rate`, `search` or `confirm`."""
    run: int
    """Number of the fresh server, or of the repetition."""
    trial: Trial


def subject_document(
    subject: Subject,
    speaks: str,
    pictures: Pictures,
    made: Sequence[Made],
    found: RateFound | None,
    slo_ms: float | None,
    not_measured: str | None,
) -> dict[str, Any]:
    """One server's part. `images_per_s` is what it is worth: the rate at the limit, or the best closed loop's without a
    limit; None where there is neither."""
    closed = [_summary(trials) for trials in _grouped(made, "clients")]
    opened = [_summary(trials) for trials in _grouped(made, "rate")]
    at_slo = _at_slo(found, slo_ms) if slo_ms is not None else None
    best = max((row["images_per_s"] for row in closed), default=None)
    return {
        "server": subject.name,
        "settings": subject.settings.to_json() if subject.settings is not None else None,
        "speaks": speaks,
        "answers_checked_against": "the bundle's predictions" if subject.bundle is not None else "its own, asked alone",
        "images": {
            "source": pictures.source,
            "count": len(pictures.pictures),
            "median_bytes": pictures.median_bytes,
        },
        "closed": closed,
        "open": opened,
        "at_slo": at_slo,
        "images_per_s": at_slo["images_per_s"] if at_slo is not None else best,
        "trials": [{"purpose": m.purpose, "run": m.run, **trial_document(m.trial)} for m in made],
        "not_measured": not_measured or (None if made else "no trial was made"),
    }


def server_text(server: Document) -> str:
    """A server's name, with the settings that distinguish it from others of that name."""
    settings = server["settings"]
    return str(server["server"]) if settings is None else f"{server['server']} ({settings_text(settings)})"


def scaling_document(servers: Sequence[Document]) -> list[dict[str, Any]]:
    """How the best closed loop's rate of each bundle grows with its replicas, where one was measured too."""
    rows = []
    for server in servers:
        ones = [other for other in servers if _same_but_replicas(server, other) and other["settings"]["replicas"] == 1]
        rate, single = _best_closed(server), _best_closed(ones[0]) if ones else None
        if server["settings"] is None or not rate or not single or len(servers) == 1:
            continue
        replicas = server["settings"]["replicas"]
        rows.append(
            {
                "server": server["server"],
                "replicas": replicas,
                "threads": server["settings"]["threads"],
                "batch": server["settings"]["batch"],
                "images_per_s": rate,
                "efficiency": rate / (replicas * single),
            }
        )
    return rows


def _grouped(made: Sequence[Made], purpose: str) -> list[list[Trial]]:
    """Trials of the same load, one for each run."""
    groups: dict[float, list[Trial]] = {}
    for entry in made:
        if entry.purpose == purpose:
            load = entry.trial.load
            groups.setdefault(load.clients if isinstance(load, ClosedLoop) else load.rate_per_s, []).append(entry.trial)
    return list(groups.values())


def _summary(trials: Sequence[Trial]) -> dict[str, Any]:
    """Medians over the runs of one load; failures and requests are summed."""
    documents = [trial_document(trial) for trial in trials]
    rates = [document["images_per_s"] for document in documents]
    failures = sum((Counter(document["failures"]) for document in documents), Counter[str]())
    variations = [document["cv_1s"] for document in documents if document["cv_1s"] is not None]
    first = documents[0]
    return {
        "scenario": first["scenario"],
        "clients": first["clients"],
        "rate": first["rate"],
        "runs": len(trials),
        "n": sum(document["n"] for document in documents),
        "images_per_s": median(rates),
        "latency_ms": {
            name: median(document["latency_ms"][name] for document in documents) for name in first["latency_ms"]
        },
        "phases_ms": {
            name: median(document["phases_ms"].get(name, math.nan) for document in documents)
            for name in first["phases_ms"]
        },
        "keeps_slo": None if first["keeps_slo"] is None else all(document["keeps_slo"] for document in documents),
        "failures": dict(failures),
        "cv_1s": median(variations) if variations else None,
        "cv_runs": variation(rates),
        "valid": all(document["valid"] for document in documents),
        "why_invalid": list(dict.fromkeys(reason for document in documents for reason in document["why_invalid"])),
    }


def _at_slo(found: RateFound | None, slo_ms: float) -> dict[str, Any]:
    """The largest rate that keeps the limit; `images_per_s` is None where none was found, or confirmed."""
    if found is None or found.rate_per_s is None or not found.confirmed:
        return {"slo_ms": slo_ms, "images_per_s": None, "confirmed_by": 0, "trial": None}
    return {
        "slo_ms": slo_ms,
        "images_per_s": found.rate_per_s,
        "confirmed_by": len(found.confirmed),
        "trial": _summary(found.confirmed),
    }


def _best_closed(server: Document) -> float | None:
    return max((row["images_per_s"] for row in server["closed"]), default=None)


def _same_but_replicas(one: Document, other: Document) -> bool:
    if one["settings"] is None or other["settings"] is None or one["server"] != other["server"]:
        return False
    return {**one["settings"], "replicas": 0} == {**other["settings"], "replicas": 0}
