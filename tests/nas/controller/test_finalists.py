"""Finalists: whether a candidate is worth a training, how long that may take, and what its files come near to."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nas.controller.finalists as finalists
import nas.controller.runs.records as records
from nas.controller.finalists import CLEAR, FinalRound
from nas.controller.planning.plan import FEWEST_S
from nas.controller.prediction.scoring import CandidateScorer
from nas.controller.runs.records import Trained
from nas.controller.runs.run_folder import network_name
from nas.controller.runs.short_weights import ShortWeights
from nas.controller.trials import SHORT
from nas.controller.values import Evaluated, Finalist
from nas.deploy.tried import Deployed
from nas.deployment import Deployment
from nas.limits import Limits
from nas.measure.job import SessionTiming
from nas.measure.measurement import Measurement, MeasureRequest, summarise
from nas.measure.site import this_host
from nas.networks.description import NetworkDescription
from nas.networks.weights import weights_of
from nas.progress import SilentProgress, Stage
from nas.targets.latency import LatencyModel
from nas.tasks import TASKS
from nas.training.result import TrainResult
from search_spaces import load_search_space
from tests.nas.controller.finals import finalist, session, tried
from tests.nas.executors.tasks import tiny_data
from tests.nas.fake_device import FP32, INT8, fake_profile

LIMIT_MS = 0.6
DONE = TrainResult(accuracy=0.5, curve=(), seconds=1.0, stopped="time limit", precision="fp32", details={})


def timing(ms: float) -> SessionTiming:
    return SessionTiming(
        p50_ms=ms, p90_ms=ms, p99_ms=ms, calls=500, reference_p50_ms=1.0, load_ms=1.0, memory_bytes=1, cpu_share=1.0,
        disturbance=None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("one_ms", "three_ms", "sessions", "promising"),
    [
        (0.9 * LIMIT_MS / CLEAR, None, [1], True),
        (1.1 * LIMIT_MS * CLEAR, None, [1], False),
        (0.99 * LIMIT_MS, 0.98 * LIMIT_MS, [1, 3], True),
        (0.99 * LIMIT_MS, 1.01 * LIMIT_MS, [1, 3], False),
        (1.02 * LIMIT_MS, 0.99 * LIMIT_MS, [1, 3], True),
    ],
)
def test_one_session_decides_where_it_is_clear(
    tmp_path: Path, one_ms: float, three_ms: float | None, sessions: list[int], promising: bool
) -> None:
    asked: list[int] = []

    def measure(requests: Sequence[MeasureRequest], *, sessions: int = 3, **options: Any) -> list[Measurement]:
        asked.append(sessions)
        ms = one_ms if sessions == 1 else three_ms
        assert ms is not None
        return [summarise(r, [timing(ms)] * sessions, None, 1.0) for r in requests]

    data, space = tiny_data(), load_search_space("mobile").restrict("resolution", [32])
    limits = Limits.of(latency_ms=LIMIT_MS)
    scorer = CandidateScorer(space, LatencyModel(fake_profile(), [FP32]), limits, data.output_size)
    choices = space.sample(500, np.random.default_rng(0))
    near = int(np.abs(scorer.worst_ratio(choices) - 1.0).argmin())
    final = FinalRound(
        space=space, data=data, scorer=scorer, deployments=(FP32,), recipe=TASKS["classification"].recipe(), size=1,
        objective="accuracy", limits=limits, max_drop=0.01, site=replace(this_host(), measure=measure), folder=tmp_path,
    )  # fmt: skip
    candidate = Evaluated(arch=space.architecture(choices[near]), trial=0, value=0.5, seconds=1.0)
    assert final.is_promising(candidate) is promising
    assert asked == sessions
    measured_ms = [] if promising else [three_ms or one_ms]
    assert [(v.name, v.value) for v in final.missed] == [("latency_ms", ms) for ms in measured_ms]


def test_the_last_round_is_planned_by_a_candidate_that_is_measured_to_keep_the_limit(tmp_path: Path) -> None:
    """The three largest of five are predicted to be near the limit and measured beyond it."""
    asked: list[MeasureRequest] = []
    data, space = tiny_data(), load_search_space("mobile").restrict("resolution", [32])
    limits = Limits.of(latency_ms=LIMIT_MS)
    scorer = CandidateScorer(space, LatencyModel(fake_profile(), [FP32]), limits, data.output_size)
    choices = space.sample(500, np.random.default_rng(0))
    ratios = scorer.worst_ratio(choices)
    near = choices[np.argsort(np.where(ratios > 1.0, ratios, np.inf))[:5]]  # just beyond it: all are measured
    near = near[np.argsort(-space.costs(near, data.output_size)["macs"])]
    slow = 3

    def measure(requests: Sequence[MeasureRequest], *, sessions: int = 3, **options: Any) -> list[Measurement]:
        ms = LIMIT_MS * (2.0 if len(asked) < slow else 0.5)
        asked.extend(requests)
        return [summarise(r, [timing(ms)] * sessions, None, 1.0) for r in requests]

    final = FinalRound(
        space=space, data=data, scorer=scorer, deployments=(FP32,), recipe=TASKS["classification"].recipe(), size=1,
        objective="accuracy", limits=limits, max_drop=0.01, site=replace(this_host(), measure=measure), folder=tmp_path,
    )  # fmt: skip
    candidates = [
        Evaluated(arch=space.architecture(row), trial=i, value=0.5, seconds=1.0) for i, row in enumerate(near)
    ]
    assert final.without_hopeless(candidates, 1.0, lambda: True) == candidates[slow:]
    assert len(asked) == slow + 1
    assert [final.is_promising(c) for c in candidates[: slow + 1]] == [False] * slow + [True]
    assert len(asked) == slow + 1, "nothing is measured twice"
    elsewhere = replace(final, site=None)
    assert elsewhere.without_hopeless(candidates, 1.0, lambda: True) == candidates
    assert replace(final, promising={}).without_hopeless(candidates, 1.0, lambda: False) == candidates, "no time"
    hopeless = replace(final, promising={(c.arch.key, (FP32,)): False for c in candidates})
    assert hopeless.without_hopeless(candidates, 1.0, lambda: True) == candidates[-1:]


def test_the_last_round_trains_the_candidate_that_it_was_planned_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training ends before the round does, for the deployments: by its time the slower candidate would come last."""
    data, space = tiny_data(), load_search_space("mobile").restrict("resolution", [32])
    limits = Limits.of(latency_ms=1e3)
    scorer = CandidateScorer(space, LatencyModel(fake_profile(), [FP32]), limits, data.output_size)
    choices = space.sample(20, np.random.default_rng(0))
    macs = space.costs(choices, data.output_size)["macs"]
    archs = [space.architecture(choices[i]) for i in (int(macs.argmax()), int(macs.argmin()))]
    large, small = (
        Evaluated(arch=arch, trial=i, value=0.5, seconds=1.0, seconds_per_image=s, estimator=SHORT)
        for i, (arch, s) in enumerate(zip(archs, (1.0, 1e-3), strict=True))
    )
    recipe = TASKS["classification"].recipe().changed(time_limit_s=1e-3 * len(data.train))
    final = FinalRound(
        space=space, data=data, scorer=scorer, deployments=(FP32,), recipe=recipe, size=1, objective="accuracy",
        limits=limits, max_drop=0.01, site=None, folder=tmp_path,
    )  # fmt: skip
    trained: list[Evaluated] = []

    def begun(self: FinalRound, candidate: Evaluated, bar: Stage) -> Finalist:
        trained.append(candidate)
        return finalist(0, [tried(FP32, [session(0.1)], 0.9)], limits)

    monkeypatch.setattr(FinalRound, "finalist", begun)
    for full_image_s in (20.0, 1e-3):
        with SilentProgress().stage("finalists") as bar:
            list(replace(final, full_image_s=full_image_s).run([small, large], bar))
    assert trained == [large, small]


def test_a_file_that_lost_too_much_accuracy_is_no_near_miss(tmp_path: Path) -> None:
    data, space = tiny_data(), load_search_space("mobile").restrict("resolution", [32])
    limits = Limits.of(latency_ms=LIMIT_MS)
    scorer = CandidateScorer(space, LatencyModel(fake_profile(), [FP32]), limits, data.output_size)
    final = FinalRound(
        space=space, data=data, scorer=scorer, deployments=(FP32,), recipe=TASKS["classification"].recipe(), size=1,
        objective="accuracy", limits=limits, max_drop=0.01, site=this_host(), folder=tmp_path,
    )  # fmt: skip
    arch = space.architecture(space.sample(1, np.random.default_rng(0))[0])
    candidate = Evaluated(arch=arch, trial=0, value=0.5, seconds=1.0)
    exact = tried(FP32, [session(3.0 * LIMIT_MS)], 0.9)
    files = [exact, tried(INT8, [session(2.0 * LIMIT_MS)], 0.5)]
    description = NetworkDescription.of_architecture(space, arch, data.output_size)
    deployed = Deployed(description=description, onnx=Path("model.onnx"), parity=None, tried=tuple(files))
    found = final.as_finalist(candidate, Trained(accuracy=0.9, epochs=3, seconds=1.0), deployed)
    assert [(v.name, v.value) for v in found.violations] == [("latency_ms", 3.0 * LIMIT_MS)]
    assert not found.within_limit


@pytest.mark.parametrize(
    ("slowest", "order"),
    [
        ([(FP32, 1.02, 0.95)], [2, 1, 0]),
        ([(FP32, 1.02, 0.89)], [2]),
        ([(FP32, 1.02, 0.92), (INT8, 0.5, 0.89)], [2, 1, 0]),
        ([(FP32, 1.02, 0.89), (INT8, 0.5, 0.885)], [2]),
    ],
)
def test_faster_candidates_are_trained_unless_a_finalist_lacks_accuracy(
    slowest: list[tuple[Deployment, float, float]], order: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`slowest`: of the most accurate finalist each file, its latency over the limit and its accuracy; the middle one
    keeps both limits, and the fastest one is not accurate enough."""
    data, space = tiny_data(), load_search_space("mobile").restrict("resolution", [32])
    limits = Limits.of(latency_ms=LIMIT_MS, min_accuracy=0.9)
    scorer = CandidateScorer(space, LatencyModel(fake_profile(), [FP32]), limits, data.output_size)
    archs = [space.architecture(row) for row in space.sample(3, np.random.default_rng(0))]
    archs.sort(key=lambda arch: scorer.describe(arch).mean_ms)
    candidates = [Evaluated(arch=a, trial=i, value=0.5 + 0.1 * i, seconds=1.0) for i, a in enumerate(archs)]
    files = {0: [(FP32, 0.4, 0.85)], 1: [(FP32, 0.6, 0.92)], 2: slowest}

    def trained(self: FinalRound, candidate: Evaluated, bar: Any) -> Finalist:
        made = [tried(d, [session(ms * LIMIT_MS)], accuracy) for d, ms, accuracy in files[candidate.trial]]
        return replace(finalist(0, made, limits, "latency"), evaluated=candidate)

    monkeypatch.setattr(FinalRound, "finalist", trained)
    final = FinalRound(
        space=space, data=data, scorer=scorer, deployments=(FP32,), recipe=TASKS["classification"].recipe(), size=3,
        objective="latency", limits=limits, max_drop=0.05, site=this_host(), folder=tmp_path,
        promising={(arch.key, (FP32,)): True for arch in archs},
    )  # fmt: skip
    found = final.run(candidates, SilentProgress().stage("").__enter__())
    assert [f.evaluated.trial for f in found] == order


@pytest.mark.parametrize(
    ("left_s", "asked_s", "limit_s"),
    [(1000.0, 60.0, 60.0), (40.0, 60.0, 40.0 - 2 * 5.0), (1.0, 60.0, FEWEST_S), (-20.0, 60.0, FEWEST_S),
     (math.inf, None, None)],
)  # fmt: skip
def test_a_training_ends_with_the_budget_and_leaves_time_for_its_deployments(
    left_s: float, asked_s: float | None, limit_s: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the plan said; and it counts as the planned training, so that a run which goes on does not repeat it."""
    limits_s: list[float | None] = []

    def trained(description: NetworkDescription, data: Any, short: Any, **_: Any) -> tuple[Any, TrainResult]:
        limits_s.append(short.recipe.time_limit_s)
        return description.build(), DONE

    monkeypatch.setattr(records, "trained", trained)
    monkeypatch.setattr(FinalRound, "as_finalist", lambda self, candidate, outcome, deployed: outcome)
    monkeypatch.setattr(finalists, "deployed_network", lambda *_, **options: lefts.append(options["left_s"]()))
    lefts: list[float] = []
    data, space = tiny_data(), load_search_space("mobile").restrict("resolution", [32])
    limits = Limits.of(latency_ms=LIMIT_MS)
    scorer = CandidateScorer(space, LatencyModel(fake_profile(), [FP32]), limits, data.output_size)
    final = FinalRound(
        space=space, data=data, scorer=scorer, deployments=(FP32, FP32),
        recipe=TASKS["classification"].recipe().changed(time_limit_s=asked_s), size=1, objective="accuracy",
        limits=limits, max_drop=0.01, site=None, folder=tmp_path, left_s=lambda: left_s, deploy_s=5.0,
    )  # fmt: skip
    arch = space.architecture(space.sample(1, np.random.default_rng(0))[0])
    candidate = Evaluated(arch=arch, trial=0, value=0.5, seconds=1.0)
    for _ in range(2):
        final.finalist(candidate, SilentProgress().stage("").__enter__())
    assert limits_s == [limit_s], "the second time it is read"
    assert lefts == [left_s, left_s]


@pytest.mark.parametrize("in_part", [False, True])
def test_weights_of_a_short_training_are_judged_on_all_validation_examples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_part: bool
) -> None:
    """What it had on a part of them may be luck; beside a full training all count."""
    data, space = tiny_data(), load_search_space("mobile").restrict("resolution", [32])
    limits = Limits.of(latency_ms=LIMIT_MS)
    arch = space.architecture(space.sample(1, np.random.default_rng(0))[0])
    description = NetworkDescription.of_architecture(space, arch, data.output_size)
    network = description.build()
    kept = ShortWeights(tmp_path / "weights")
    kept.keep("search", network_name(arch.key), weights_of(network))
    monkeypatch.setattr(finalists, "enough_to_compare", lambda data: 2 if in_part else 1)
    final = FinalRound(
        space=space, data=data, scorer=CandidateScorer(
            space, LatencyModel(fake_profile(), [FP32]), limits, data.output_size
        ), deployments=(FP32,), recipe=TASKS["classification"].recipe(), size=1,
        objective="accuracy", limits=limits, max_drop=0.01, site=None, folder=tmp_path, weights=kept,
    )  # fmt: skip
    before = final._before(Evaluated(arch=arch, trial=0, value=0.99, seconds=1.0))
    assert before is not None
    whole = TASKS["classification"].accuracy(network, data.val, data.preprocess)
    assert before.accuracy == (pytest.approx(whole) if in_part else 0.99)
