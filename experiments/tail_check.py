"""Are verdicts on slow calls right? The product's three sessions against 5,000 calls of the same file.

`python -m experiments.tail_check --out docs/tail-check.md` takes twenty well-known networks of about 0.2 to 30 ms,
asks whether the 99th percentile of each keeps a limit that lies near it, as a search does (three fresh sessions of at
least 300 calls: kept where the upper confidence bounds of all are below the limit, missed where the lower ones of all
are above it, and otherwise not told), and then times 5,000 calls in three fresh sessions.
The median of their 99th percentiles is the truth; where the limit lies between them, the machine itself does not quite
know, which is counted beside. Figures mean something on a machine that has nothing else to do.
"""

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np

from nas.bench.models import read_model
from nas.bench.preparing import ModelFiles
from nas.deployment import Deployment
from nas.files.writing import write_json
from nas.limits import LEAST_CALLS, Limits, least_latency_ms
from nas.limits.latency import LatencyLimit
from nas.measure.host import fingerprint, usable_threads
from nas.measure.measurement import MeasureRequest
from nas.measure.protocol import measure

NETWORKS: tuple[tuple[str, int], ...] = (
    ("mobilenet_v3_small", 32), ("shufflenet_v2_x0_5", 64), ("mobilenet_v3_small", 96), ("squeezenet1_1", 64),
    ("mobilenet_v3_small", 160), ("resnet18", 64), ("mobilenet_v3_large", 160), ("mobilenet_v2", 160), ("resnet18", 96),
    ("resnet18", 128), ("efficientnet_b0", 160), ("resnet34", 128), ("resnet50", 128), ("regnet_y_800mf", 224),
    ("densenet121", 128), ("resnet50", 192), ("efficientnet_b2", 224), ("resnet34", 160), ("regnet_y_400mf", 160),
    ("mnasnet1_0", 192),
)  # fmt: skip
"""Name in torchvision and pixels."""
RUNTIMES = ("onnxruntime", "openvino")
"""Taken in turn."""
PERCENTILE = 99
SESSIONS, CALLS = 3, 5000
NEAR = 0.2
"""Limits are drawn within this share below and above the percentile of a first session."""
SEED = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One network under one limit; times in ms."""

    network: str
    deployment: str
    limit_ms: float
    judged_ms: float
    """Upper bound of the 99th percentile in the slowest of the product's sessions: what has to keep the limit."""
    least_ms: float | None
    """Lower bound of the 99th percentile in the fastest of them: above the limit it is missed."""
    p99_ms: tuple[float, ...]
    """Of the long sessions."""
    p50_ms: float
    """Median of the long sessions."""
    calls: int
    """Of all long sessions together."""
    disturbed: bool
    """True if a session of either kind stayed disturbed."""

    @property
    def kept(self) -> bool | None:
        """What the product says; None where its calls do not tell."""
        if self.judged_ms <= self.limit_ms:
            return True
        return None if self.least_ms is not None and self.least_ms <= self.limit_ms else False

    @property
    def truth(self) -> bool:
        """What the middle one of the long sessions says."""
        return median(self.p99_ms) <= self.limit_ms

    @property
    def is_close(self) -> bool:
        """True if the long sessions disagree."""
        return len({ms <= self.limit_ms for ms in self.p99_ms}) > 1

    @property
    def verdict(self) -> str:
        return "not told" if self.kept is None else "kept" if self.kept else "missed"

    @property
    def outcome(self) -> str:
        if self.kept is None:
            return "it keeps it" if self.truth else "it misses it"
        if self.kept == self.truth:
            return "right"
        return "wrong: a promise broken" if self.kept else "wrong: refused what keeps it"


def figures(verdicts: Sequence[Verdict]) -> dict[str, int]:
    """How many verdicts ended how."""
    outcomes = [v.outcome for v in verdicts]
    return {
        "networks": len(verdicts),
        "kept": sum(v.kept is True for v in verdicts),
        "missed": sum(v.kept is False for v in verdicts),
        "not_told": sum(v.kept is None for v in verdicts),
        "right": outcomes.count("right"),
        "promises_broken": outcomes.count("wrong: a promise broken"),
        "refused_though_kept": outcomes.count("wrong: refused what keeps it"),
        "wrong_and_close": sum(v.is_close and v.outcome.startswith("wrong") for v in verdicts),
        "close": sum(v.is_close for v in verdicts),
        "disturbed": sum(v.disturbed for v in verdicts),
    }


def page(verdicts: Sequence[Verdict], arguments: str, host: str) -> str:
    """The figures as Markdown. `host` is the machine in words."""
    found = figures(verdicts)
    return "\n".join(
        [
            "# Verdicts on slow calls",
            "",
            f"{found['networks']} well-known networks with random weights on one machine ({host}), called without a "
            f"pause. Each has a limit within {NEAR:.0%} of its 99th percentile. The verdict is the product's: "
            f"{SESSIONS} fresh sessions of at least {LEAST_CALLS[PERCENTILE]} calls: kept where the upper confidence "
            "bounds of all are below the limit, missed where the lower ones of all are above it, and otherwise not "
            "told, which a search treats as missed. The truth is the median of the 99th percentiles of "
            f"{SESSIONS} more sessions with {CALLS:,} calls together.",
            "",
            "```sh",
            f"python -m experiments.tail_check {arguments}",
            "```",
            "",
            "| figure | value |",
            "|---|---|",
            f"| limits called kept, missed, not told | {found['kept']}, {found['missed']}, {found['not_told']} |",
            f"| verdicts that are right | {found['right']} |",
            f"| wrong: called kept, and the 99th percentile is above the limit | {found['promises_broken']} |",
            f"| wrong: called missed, and the 99th percentile keeps the limit | {found['refused_though_kept']} |",
            f"| the long sessions disagree about the limit: of all, of the wrong verdicts | {found['close']}, "
            f"{found['wrong_and_close']} |",
            f"| a session stayed disturbed | {found['disturbed']} |",
            "",
            "| network | deployment | p50 ms | limit ms | bounds ms | 99th percentile of the long sessions, ms | "
            "verdict |",
            "|---|---|---|---|---|---|---|",
            *(
                f"| {v.network} | {v.deployment} | {v.p50_ms:.3g} | {v.limit_ms:.3g} | {_ms(v.least_ms)} to "
                f"{v.judged_ms:.3g} | "
                f"{' '.join(f'{ms:.3g}' for ms in v.p99_ms)} | {v.verdict}: {v.outcome}"
                f"{', close' if v.is_close else ''} |"
                for v in verdicts
            ),
            "",
        ]
    )


def _ms(value: float | None) -> str:
    return "?" if value is None else f"{value:.3g}"


# -- doing it --------------------------------------------------------------------------------------


def judged_here(known: Sequence[Verdict]) -> Iterator[Verdict]:
    """Judge the networks that are not `known` yet."""
    limits = np.random.default_rng(SEED).uniform(-NEAR, NEAR, len(NETWORKS))
    for number in range(len(known), len(NETWORKS)):
        name, pixels = NETWORKS[number]
        with tempfile.TemporaryDirectory(prefix="nas-tails-") as folder:
            deployment = Deployment(RUNTIMES[number % len(RUNTIMES)], "fp32", usable_threads())
            files = ModelFiles(read_model(f"torchvision:{name}", pixels), Path(folder) / "files")
            request = MeasureRequest(files.path(deployment), deployment)
            (pilot,) = measure([request], sessions=1, least_calls=LEAST_CALLS[PERCENTILE])
            limit = LatencyLimit(float(f"{pilot.p99_ms * (1 + limits[number]):.3g}"), percentile=PERCENTILE)
            (short,) = measure([request], sessions=SESSIONS, least_calls=LEAST_CALLS[PERCENTILE])
            (long,) = measure([request], sessions=SESSIONS, least_calls=-(-CALLS // SESSIONS), timeout_s=300.0)
        yield Verdict(
            network=f"{name} at {pixels} px",
            deployment=deployment.name,
            limit_ms=limit.value,
            judged_ms=float("inf") if short.failed is not None else Limits((limit,)).worst_ms(short),
            least_ms=least_latency_ms(short, PERCENTILE),
            p99_ms=tuple(s.p99_ms for s in long.sessions),
            p50_ms=long.p50_ms,
            calls=sum(s.calls for s in long.sessions),
            disturbed=any(s.disturbance is not None for m in (short, long) for s in m.sessions),
        )


def read(document: Sequence[Mapping[str, Any]]) -> list[Verdict]:
    """Inverse of `asdict`."""
    return [Verdict(**{**entry, "p99_ms": tuple(entry["p99_ms"])}) for entry in document]


@click.command()
@click.option("--work", type=click.Path(path_type=Path), default="runs/tail-check.json", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="Write a page with the figures here.")
def main(work: Path, out: Path | None) -> None:
    """Judge twenty limits on slow calls, and see who was right; what WORK holds is not measured again."""
    work.parent.mkdir(parents=True, exist_ok=True)
    verdicts = read(json.loads(work.read_text())) if work.exists() else []
    for verdict in judged_here(verdicts):
        verdicts.append(verdict)
        write_json(work, [asdict(v) for v in verdicts])
        click.echo(f"{verdict.network}: {verdict.verdict}, {verdict.outcome}", err=True)
    if out is not None:
        host = f"{fingerprint().cpu_model}, {usable_threads()} threads"
        out.write_text(page(verdicts, " ".join(sys.argv[1:]), host), encoding="utf-8")
    click.echo(json.dumps(figures(verdicts), indent=2))


if __name__ == "__main__":
    main()
