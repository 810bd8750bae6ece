"""Whether a limit is a contract: real searches under many limits, and each delivered file measured again.

`python -m experiments.limit_contract --searches 20 --budget 45s --out docs/limit-contract.md` runs `nas search`
commands over spaces, limits and seeds, one after the other, and measures every network that they deliver in three fresh
sessions of its own. A network is over its limit where the median of these sessions is. One more command asks one of the
runs for another limit. A search that is done has a line in WORK/searches.jsonl and is not repeated. Figures mean
something on a machine that has nothing else to do.
"""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click

from nas.calls import CONTINUOUS, interval_ms_of
from nas.cli.types import Calls, Seconds
from nas.deploy.tried import files_bytes
from nas.deployment import Deployment
from nas.limits import LEAST_CALLS, Limits
from nas.measure.host import fingerprint, usable_threads
from nas.measure.measurement import Measurement, MeasureRequest
from nas.measure.protocol import measure

SPACES = ("mobile", "dense", "mixed")
PLACES = (0.03, 0.1, 0.25, 0.5, 1.0)
"""Of a limit, from the tightest that can be kept (0) to what half of all networks keep (1), on a log scale."""
EXTRAS: tuple[Mapping[str, float], ...] = (
    {}, {"percentile": 90}, {}, {"max_size_mb": 2.0}, {"max_params": 1e6}, {"percentile": 90, "max_size_mb": 4.0}, {},
)  # fmt: skip
"""Taken in turn; three, five and seven share no factor, so that every extra meets every space and place."""
BASELINES_EVERY = 5
"""Every so many searches also train their baselines, within the same budget."""
SESSIONS = 3
OVERSHOOT_S, OVERSHOOT_SHARE = 20.0, 0.05
"""A budget may be exceeded by the larger of the two."""
LOOSER = 1.5
"""The other limit that a run is asked for, over the one it had."""
ANSWER_S = 30.0
"""Longest time for that answer."""
LIMIT_MISSED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One search of the bar."""

    number: int
    space: str
    latency_ms: float
    extra: Mapping[str, float]
    """More limits, by the names of `nas.limits.Limits`, and `percentile`."""
    budget_s: float
    baselines: bool
    calls: str = CONTINUOUS
    """Pattern of calls, see `nas.calls`."""

    @property
    def percentile(self) -> int:
        return int(self.extra.get("percentile", 50))

    def command(self, out: Path) -> list[str]:
        limits = [x for name, value in self.extra.items() for x in (f"--{name.replace('_', '-')}", f"{value:g}")]
        return [
            "search", "--target", "local", "--data", "digits", "--space", self.space, "--seed", str(self.number),
            "--latency-ms", f"{self.latency_ms:g}", *limits, "--calls", self.calls,
            "--budget", f"{self.budget_s:g}s", "--json", "--quiet",
            *(["--baselines"] if self.baselines else []), "--out", str(out),
        ]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """What measuring a delivered network again has shown."""

    deployment: str
    accuracy: float
    """Fraction of the validation split, as the search said."""
    told_ms: float
    """Median call of the search's own sessions."""
    again_ms: tuple[float, ...]
    """Each of the fresh sessions, at the percentile that is limited."""
    verdict: str
    violated: tuple[str, ...]
    """Names of the limits that the median of the sessions, or the files, did not keep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """How one search ended."""

    asked: Asked
    exit_code: int
    wall_s: float
    """Of the whole process."""
    said: str
    """The last words of a search that delivered nothing."""
    delivered: tuple[Delivered, ...]

    @property
    def overshoot_s(self) -> float:
        return self.wall_s - self.asked.budget_s

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "Answered":
        delivered = [
            Delivered(**{**d, "again_ms": tuple(d["again_ms"]), "violated": tuple(d["violated"])})
            for d in document["delivered"]
        ]
        return cls(**{**document, "asked": Asked(**document["asked"]), "delivered": tuple(delivered)})


def limit_at(place: float, tightest_ms: float, usual_ms: float) -> float:
    """A limit of three digits between the two, never below the tightest."""
    limit = tightest_ms * max(1.0, usual_ms / tightest_ms) ** place
    return float(f"{limit:.3g}")


def plan(
    searches: int, budget_s: float, ranges: Mapping[str, tuple[float, float]], calls: str = CONTINUOUS
) -> list[Asked]:
    """The searches to run, for `calls` in that pattern.

    `ranges`: of each space the tightest limit that can be kept, and the median latency, ms.
    """
    return [
        Asked(
            number=i,
            space=SPACES[i % len(SPACES)],
            latency_ms=limit_at(PLACES[i % len(PLACES)], *ranges[SPACES[i % len(SPACES)]]),
            extra=EXTRAS[i % len(EXTRAS)],
            budget_s=budget_s,
            baselines=i % BASELINES_EVERY == BASELINES_EVERY - 1,
            calls=calls,
        )
        for i in range(searches)
    ]


def violated_limits(asked: Asked, again_ms: Sequence[float], size_bytes: int, params: int) -> tuple[str, ...]:
    """Names of the limits that are not kept: latency by the median of the sessions, the others exactly."""
    seen = {"latency_ms": median(again_ms), "max_size_mb": size_bytes / 1e6, "max_params": float(params)}
    limits = {"latency_ms": asked.latency_ms, **{k: v for k, v in asked.extra.items() if k != "percentile"}}
    return tuple(name for name, limit in limits.items() if seen[name] > limit)


def upper_rate(events: int, trials: int) -> float:
    """Upper end of the one-sided 95 % interval of a rate (Clopper and Pearson 1934); 1 without trials."""
    from scipy.stats import beta

    return 1.0 if events >= trials else float(beta.ppf(0.95, events + 1, trials - events))


def summarise(answers: Sequence[Answered], again_s: float | None) -> dict[str, Any]:
    """The bar's figures; a pure function of what happened. `again_s`: time of the answer to another limit."""
    networks = [(a.asked, d) for a in answers for d in a.delivered]
    over = [a.overshoot_s for a in answers]
    allowed = [max(OVERSHOOT_S, OVERSHOOT_SHARE * a.asked.budget_s) for a in answers]
    missed = sum(bool(d.violated) for _, d in networks)
    return {
        "searches": len(answers),
        "delivered": len(networks),
        "over_limit": missed,
        "over_limit_rate_95": upper_rate(missed, len(networks)),
        "a_session_over_limit": sum(max(d.again_ms) > asked.latency_ms for asked, d in networks),
        "disturbed": sum(d.verdict != "quiet" for _, d in networks),
        "refused": sum(a.exit_code == LIMIT_MISSED for a in answers),
        "failed": sum(a.exit_code not in (0, LIMIT_MISSED) for a in answers),
        "overshoot_s": {"median": median(over), "max": max(over)} if over else None,
        "overshoot_pct": (
            {
                "median": median(100 * a.overshoot_s / a.asked.budget_s for a in answers),
                "max": max(100 * a.overshoot_s / a.asked.budget_s for a in answers),
            }
            if over
            else None
        ),
        "over_budget": sum(s > most for s, most in zip(over, allowed, strict=True)),
        "another_limit_s": again_s,
        "another_limit_in_time": None if again_s is None else again_s <= ANSWER_S,
    }


def page(answers: Sequence[Answered], summary: Mapping[str, Any], arguments: str, host: str) -> str:
    """The figures as Markdown: what the bar asks for, and a row for each search. `host` is the machine in words."""
    over, percent = summary["overshoot_s"], summary["overshoot_pct"]
    again = summary["another_limit_s"]
    rows = [
        f"| {a.asked.number} | {a.asked.space} | {a.asked.latency_ms:g} ({_tail(a.asked)}) | {_more(a.asked)} | "
        f"{_outcome(a)} | {a.wall_s:.1f} | {a.overshoot_s:+.1f} |"
        for a in answers
    ]
    return "\n".join(
        [
            "# Is a limit a contract?",
            "",
            f"Real searches on one machine ({host}), one after the other, over spaces, limits and seeds, for networks "
            f"that are called {_called(answers)}; each delivered file was measured again in the same pattern, in "
            f"{SESSIONS} fresh sessions after the search. It is over its limit where the median of these is.",
            "",
            "```sh",
            f"python -m experiments.limit_contract {arguments}",
            "```",
            "",
            "| figure | value |",
            "|---|---|",
            f"| searches | {summary['searches']} |",
            f"| delivered networks | {summary['delivered']} |",
            f"| of these over a limit when measured again | {summary['over_limit']} |",
            f"| so, with 95 % confidence, at most this share is over its limit | {summary['over_limit_rate_95']:.0%} |",
            f"| with a single session over the latency | {summary['a_session_over_limit']} |",
            f"| measured again on a disturbed machine | {summary['disturbed']} |",
            f"| limits refused or missed (exit code 3) | {summary['refused']} |",
            f"| other failures | {summary['failed']} |",
            f"| wall clock over the budget, median | {over['median']:+.1f} s ({percent['median']:+.0f} %) |",
            f"| wall clock over the budget, largest | {over['max']:+.1f} s ({percent['max']:+.0f} %) |",
            f"| searches over their budget by more than {100 * OVERSHOOT_SHARE:g} % or {OVERSHOOT_S:g} s, whichever is "
            f"larger | {summary['over_budget']} |",
            f"| answer to another limit on one of the runs | {'-' if again is None else f'{again:.1f} s'} |",
            "",
            "| # | space | ms | more limits | delivered, measured again (ms) | wall s | over budget s |",
            "|---|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _called(answers: Sequence[Answered]) -> str:
    patterns = {a.asked.calls for a in answers} or {CONTINUOUS}
    return " or ".join("without a pause" if calls == CONTINUOUS else calls for calls in sorted(patterns))


def _tail(asked: Asked) -> str:
    return f"p{asked.percentile}"


def _more(asked: Asked) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in asked.extra.items() if name != "percentile") or "-"


def _outcome(a: Answered) -> str:
    if not a.delivered:
        return f"exit code {a.exit_code}"
    return "; ".join(
        f"{d.deployment} {' '.join(f'{ms:.3g}' for ms in d.again_ms)}"
        f"{', OVER: ' + ', '.join(d.violated) if d.violated else ''}, accuracy {d.accuracy:.1%}"
        for d in a.delivered
    )


# -- doing it --------------------------------------------------------------------------------------


def ranges_here(calls: str = CONTINUOUS) -> dict[str, tuple[float, float]]:
    """Of each space on this host: the tightest latency that can be kept, and the median of the fastest deployment."""
    from nas.controller.config import SearchConfig
    from nas.controller.inputs import load_inputs
    from nas.controller.planning.budget import Budget
    from nas.progress import SilentProgress

    found = {}
    for space in SPACES:
        config = SearchConfig(limits=Limits.of(latency_ms=1e6), space=space, calls=calls)
        ranges = load_inputs(config, Budget(600.0), SilentProgress(), Path("no-such-run")).ranges
        found[space] = (min(r.min_ms for r in ranges), min(r.median_ms for r in ranges))
    return found


def nas(arguments: Sequence[str]) -> tuple["subprocess.CompletedProcess[str]", float]:
    """Run a command in a process of its own; with the seconds it took."""
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-m", "nas", *arguments], capture_output=True, text=True, check=False)
    return done, time.monotonic() - began


def ask(asked: Asked, out: Path) -> Answered:
    """Run one search and measure what it delivers."""
    shutil.rmtree(out, ignore_errors=True)  # of a search that was cut short, the time would not be known
    done, wall_s = nas(asked.command(out))
    document: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {"best": []}
    said = " ".join(line for line in done.stderr.splitlines() if line.startswith("Error: ")) or done.stderr[-200:]
    return Answered(
        asked=asked,
        exit_code=done.returncode,
        wall_s=wall_s,
        said=said if done.returncode else "",
        delivered=tuple(measured_again(asked, out, best) for best in document["best"]),
    )


def measured_again(asked: Asked, out: Path, best: Mapping[str, Any]) -> Delivered:
    """A delivered file in fresh sessions, apart from everything else."""
    path = out / best["model"]
    interval_ms = interval_ms_of(asked.calls)
    deployment = Deployment(best["runtime"], best["precision"], best["threads"], interval_ms=interval_ms)
    least_calls = LEAST_CALLS[asked.percentile]
    (found,) = measure([MeasureRequest(path, deployment)], sessions=SESSIONS, least_calls=least_calls)
    again_ms = sessions_ms(found, asked.percentile)
    return Delivered(
        deployment=deployment.name,
        accuracy=best["accuracy"]["deployed"],
        told_ms=best["measured_latency_ms"]["p50"],
        again_ms=again_ms,
        verdict=found.verdict,
        violated=violated_limits(asked, again_ms, files_bytes(path), best["params"]),
    )


def sessions_ms(found: Measurement, percentile: int) -> tuple[float, ...]:
    if found.failed is not None:
        return (float("inf"),)
    return tuple(float(getattr(session, f"p{percentile}_ms")) for session in found.sessions)


def ask_again(answers: Sequence[Answered], work: Path) -> float | None:
    """Seconds in which a run that delivered answers to a looser limit, for which nothing has to be trained."""
    delivered = [a for a in answers if a.delivered]
    if not delivered:
        return None
    run = folder_of(delivered[0].asked, work)
    shutil.rmtree(run / "limits", ignore_errors=True)
    limit = f"{LOOSER * delivered[0].asked.latency_ms:g}"
    done, seconds = nas(["search", "--run", str(run), "--latency-ms", limit, "--json", "--quiet"])
    if done.returncode != 0 or "nothing was trained" not in done.stdout:
        raise click.ClickException(f"{run} asked for {limit} ms: exit code {done.returncode}; {done.stderr[-300:]}")
    return seconds


def folder_of(asked: Asked, work: Path) -> Path:
    return work / f"search-{asked.number:02d}"


@click.command()
@click.option("--searches", default=20, show_default=True)
@click.option("--budget", "budget_s", type=Seconds(), default="45s", show_default=True, help="Of each search.")
@click.option("--calls", type=Calls(), default=CONTINUOUS, show_default=True, help="Pattern of calls.")
@click.option("--work", type=click.Path(path_type=Path), default="runs/limit-contract", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="Write a page with the figures here.")
@click.option("--json", "as_json", is_flag=True)
def main(searches: int, budget_s: float, calls: str, work: Path, out: Path | None, as_json: bool) -> None:
    """Search under many limits, and measure what was delivered again."""
    work.mkdir(parents=True, exist_ok=True)
    ranges, lines = work / "ranges.json", work / "searches.jsonl"
    if not ranges.exists():
        ranges.write_text(json.dumps(ranges_here(calls)))
    known = [Answered.from_json(json.loads(line)) for line in lines.read_text().splitlines()] if lines.exists() else []
    answers = {a.asked.number: a for a in known}
    for asked in plan(searches, budget_s, {k: (v[0], v[1]) for k, v in json.loads(ranges.read_text()).items()}, calls):
        if asked.number in answers and answers[asked.number].asked == asked:
            continue
        answers[asked.number] = answer = ask(asked, folder_of(asked, work))
        with lines.open("a") as file:
            file.write(json.dumps(answer.to_json()) + "\n")
        if not as_json:
            click.echo(f"{asked.number}: exit {answer.exit_code} after {answer.wall_s:.1f} s, {answer.delivered}")
    done = [answers[i] for i in sorted(answers) if i < searches]
    summary = summarise(done, ask_again(done, work))
    if out is not None:
        host = f"{fingerprint().cpu_model}, {usable_threads()} threads"
        out.write_text(page(done, summary, " ".join(sys.argv[1:]), host), encoding="utf-8")
    click.echo(json.dumps(summary, indent=None if as_json else 2))


if __name__ == "__main__":
    main()
