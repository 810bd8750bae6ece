"""What was judged of every file that a search tried: from it the page of a result answers other limits on latency."""

from collections.abc import Sequence
from typing import Any

from nas.controller.finalists import seen_of, slack_of, usual
from nas.controller.results.candidates import costs_of
from nas.controller.results.outcome import Outcome
from nas.controller.runs.run_folder import network_name
from nas.controller.undelivered import beats
from nas.controller.values import Finalist
from nas.deploy.choosing import choose, tie_of
from nas.deploy.tried import TriedDeployment
from nas.limits import LatencyLimit, Limits, Observation
from nas.tasks import task_of


def beaten_finalists(o: Outcome) -> list[dict[str, Any]]:
    """The networks that were trained fully and are no winners, in the order they were trained."""
    won = {winner.evaluated.arch.key for winner in o.winners}
    beaten = {f.evaluated.arch.key: f for f in o.finalists if f.evaluated.arch.key not in won}
    return [
        {
            "key": key,
            "folder": str((o.folder.finalists / network_name(key)).relative_to(o.folder.path)),
            "input": task_of(o.data).input_label(f.deployed.description.signature.input),
            "epochs": f.trained.epochs,
            "within_limit": f.within_limit,
            "accuracy": {"trained": f.trained.accuracy, "deployed": f.deployed_accuracy if f.within_limit else None},
            "params": _params(o, f),
            **judged_finalist(o, f),
        }
        for key, f in beaten.items()
    ]


def judged_finalist(o: Outcome, f: Finalist) -> dict[str, Any]:
    """What of a network's files could be delivered under which limit: `slack` and `deployments`."""
    key = f.evaluated.arch.key
    f = next((known for known in o.finalists if known.evaluated.arch.key == key), f)  # a winner has its own file alone
    limits, params = o.config.limits, _params(o, f)
    slack = slack_of(o.config.objective, o.data, f.trained.accuracy)
    others = Limits(tuple(limit for limit in limits if limit.name != LatencyLimit.name))

    def upper_ms(t: TriedDeployment) -> float | None:
        return None if o.target.site else o.scorer.predicted(f.evaluated.arch, t.deployment).upper_ms

    def seen(t: TriedDeployment) -> Observation:
        return seen_of(t, limits, params, upper_ms(t))

    def rejection(t: TriedDeployment) -> str:
        return "; ".join(violation.reason for violation in others.violations(seen(t)))

    at_any_latency = choose(f.deployed.tried, o.config.max_drop, rejection, parity=f.deployed.parity, slack=slack)
    rows = []
    for t, free in zip(f.deployed.tried, at_any_latency, strict=True):
        found = seen(t)
        rows.append(
            {
                **t.to_json(),
                "judged_ms": max(found.latencies_ms, default=None),
                "call_ms": usual(found.latencies_ms) if found.latencies_ms else None,
                "images_per_s": 1e3 * found.batch / usual(found.medians_ms) if found.medians_ms else None,
                "latency_alone": free.accepted and not t.accepted,
                "worth_it": t.accuracy is not None and (o.interrupted or beats(t.accuracy, o.floors, o.data)),
                "ties": {} if slack is None else _ties(t, f.deployed.tried, slack),
            }
        )
    return {"slack": slack, "deployments": rows}


def _ties(t: TriedDeployment, tried: Sequence[TriedDeployment], slack: float) -> dict[str, float]:
    """By how much `t` may be below each more accurate file and be level with it."""
    if t.accuracy is None:
        return {}
    more = [other for other in tried if other.accuracy is not None and other.accuracy > t.accuracy]
    return {other.name: tie_of(other, t, slack) for other in more}


def _params(o: Outcome, f: Finalist) -> int:
    return int(costs_of(o.space, o.space.choices([f.evaluated.arch]), o.data.output_size)[0]["params"])
