"""Finalists of a search that never ran, with measurements that are told: enough for rules and documents."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from nas.controller.config import Objective
from nas.controller.finalists import seen_of, slack_of, usual
from nas.controller.results.outcome import Outcome
from nas.controller.runs.records import Trained
from nas.controller.values import Evaluated, Finalist
from nas.deploy.choosing import choose, without_defect
from nas.deploy.tried import Deployed, TriedDeployment
from nas.deployment import Deployment
from nas.limits import Limits, Observation
from nas.measure.job import SessionTiming
from nas.measure.measurement import Measurement, MeasureRequest, summarise
from nas.networks.description import NetworkDescription
from search_spaces import load_search_space
from tests.nas.executors.tasks import tiny_data

MAX_DROP = 0.05
SPACE = load_search_space("mobile").restrict("resolution", [32])
DATA = tiny_data()
DEPLOYMENTS = tuple(
    Deployment(runtime, precision, 2)
    for runtime, precision in (("openvino", "int8"), ("openvino", "fp32"), ("onnxruntime", "fp32"))
)


def session(p50_ms: float, tail: float = 1.5, attempts: Sequence[float] = ()) -> SessionTiming:
    """One session; `attempts`: medians of other attempts at it, all disturbed."""
    return SessionTiming(
        p50_ms=p50_ms, p90_ms=p50_ms * tail * 0.8, p99_ms=p50_ms * tail * 0.9, p90_upper_ms=p50_ms * tail * 0.9,
        p99_upper_ms=p50_ms * tail, calls=500, reference_p50_ms=1.0, load_ms=1.0, memory_bytes=1000, cpu_share=1.0,
        disturbance="something else ran" if attempts else None,
        attempts_ms=tuple((ms, ms * tail * 0.9, ms * tail) for ms in attempts),
    )  # fmt: skip


def tried(deployment: Deployment, sessions: Sequence[SessionTiming], accuracy: float, **more: Any) -> TriedDeployment:
    """A deployment that was measured."""
    path = Path(f"{deployment.name}.onnx")
    measured: Measurement = summarise(MeasureRequest(path, deployment), sessions, None, 1.0)
    known = {"size_bytes": 1_000_000, "path": path} | more
    return TriedDeployment(deployment=deployment, accuracy=accuracy, measurement=measured, **known)


def finalist(
    seed: int, files: Sequence[TriedDeployment], limits: Limits, objective: Objective = "accuracy"
) -> Finalist:
    """The `seed`-th network with these files, chosen as a search with these limits chooses."""
    arch = SPACE.architecture(SPACE.sample(1, np.random.default_rng(seed))[0])
    trained = max(t.accuracy or 0.0 for t in files)
    params = int(SPACE.costs(SPACE.choices([arch]), DATA.output_size)["params"][0])

    def seen(t: TriedDeployment) -> Observation:
        return seen_of(t, limits, params, None)

    chosen = choose(
        files, MAX_DROP, lambda t: "; ".join(v.reason for v in limits.violations(seen(t))),
        slack=slack_of(objective, DATA, trained),
    )  # fmt: skip
    description = NetworkDescription.of_architecture(SPACE, arch, DATA.output_size)
    deployed = Deployed(description=description, onnx=Path("model.onnx"), parity=None, tried=tuple(chosen))
    best = deployed.chosen
    found = seen(best) if best else Observation()
    sound = () if best else without_defect(chosen, MAX_DROP)
    missed = tuple(violation for t in sound for violation in limits.violations(seen(t)))
    return Finalist(
        evaluated=Evaluated(arch=arch, trial=seed, value=0.5, seconds=1.0),
        trained=Trained(accuracy=trained, epochs=3, seconds=1.0),
        deployed=deployed,
        violations=missed,
        call_ms=usual(found.latencies_ms),
        images_per_s=1e3 * found.batch / usual(found.medians_ms),
        test=None,
    )


def outcome(
    finalists: Sequence[Finalist], winners: Sequence[Finalist], limits: Limits, objective: Objective = "accuracy"
) -> Outcome:
    """What the documents of finalists are made from, and no more than that."""
    told = SimpleNamespace(
        config=SimpleNamespace(limits=limits, objective=objective, max_drop=MAX_DROP),
        target=SimpleNamespace(site="this host"),
        folder=SimpleNamespace(path=Path("run"), finalists=Path("run/finalists")),
        space=SPACE, data=DATA, floors=(), interrupted=False, finalists=tuple(finalists), winners=tuple(winners),
    )  # fmt: skip
    return cast(Outcome, told)
