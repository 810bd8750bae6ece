"""Which deployment is chosen, from measurements made up for the purpose; and one real choice."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path

import numpy as np
import pytest
import torch

from nas.controller.runs.records import read_deployed, write_deployed
from nas.data import ImageData
from nas.data.images import image_input
from nas.deploy import choosing as module
from nas.deploy.answers import Answers
from nas.deploy.deploy import deploy, deployed_accuracy
from nas.deploy.in_time import LEFT_OUT
from nas.deploy.onnx import Parity
from nas.deploy.tried import TriedDeployment, files_bytes
from nas.deployment import Deployment, common_batch
from nas.limits import Limits, Observation
from nas.measure.job import SessionTiming
from nas.measure.measurement import Measurement, MeasureRequest, slowed, summarise
from nas.networks.description import NetworkDescription
from nas.runtimes import load_runtime
from nas.tasks.classification.data.registry import load_dataset
from search_spaces import load_search_space

FP32, BF16, INT8 = (Deployment("openvino", p, 1) for p in ("fp32", "bf16", "int8"))


def timing(p50_ms: float) -> SessionTiming:
    return SessionTiming(
        p50_ms=p50_ms, p90_ms=p50_ms, p99_ms=p50_ms, calls=10, reference_p50_ms=1.0, load_ms=1.0, memory_bytes=1,
        cpu_share=1.0, disturbance=None,
    )  # fmt: skip


def tried(deployment: Deployment, p50s: list[float], accuracy: float, failed: str | None = None) -> TriedDeployment:
    sessions = [timing(p50) for p50 in p50s]
    path = Path("model.onnx")
    measurement = summarise(MeasureRequest(path, deployment), sessions, failed, 1.0)
    return TriedDeployment(deployment=deployment, path=path, accuracy=accuracy, measurement=measurement)


def choose(*attempts: TriedDeployment, limit_ms: float = 3.0, max_drop: float = 0.01) -> dict[str, TriedDeployment]:
    chosen = module.choose(attempts, max_drop, lambda t: rejection(t, Limits.of(latency_ms=limit_ms)))
    return {t.deployment.precision: t for t in chosen}


def rejection(t: TriedDeployment, limits: Limits) -> str:
    return "; ".join(
        b.reason for b in limits.violations(limits.observe(Observation(accuracy=t.accuracy), t.measurement))
    )


def test_where_accuracy_counts_speed_breaks_ties_alone() -> None:
    attempts = [tried(FP32, [2.0], 0.900), tried(BF16, [1.5], 0.896), tried(INT8, [1.0], 0.880)]
    assert [t.chosen for t in module.choose(attempts, 0.03)] == [False, False, True]
    found = module.choose(attempts, 0.03, slack=0.005)
    assert [(t.chosen, t.reason) for t in found] == [
        (False, "slower than openvino-bf16"),
        (True, ""),
        (False, "less accurate than openvino-bf16"),
    ]
    assert [t.chosen for t in module.choose(attempts, 0.03, slack=0.0)] == [True, False, False]


def test_mirrored_views_have_to_be_worth_their_time_and_reject_nothing() -> None:
    plain = tried(INT8, [1.0], 0.900)
    views = replace(tried(INT8, [2.0], 0.915), mirrored=True)
    assert [t.chosen for t in module.choose([plain, views], 0.01, slack=0.005)] == [False, True]
    assert [t.chosen for t in module.choose([plain, views], 0.01, slack=0.020)] == [True, False]
    too_slow = module.choose([plain, views], 0.01, lambda t: "too slow" if t.p50_ms > 1.5 else "", slack=0.005)
    assert [(t.chosen, t.reason) for t in too_slow] == [(True, ""), (False, "too slow")]
    assert views.name == "openvino-int8 (mirrored views)"


@pytest.mark.parametrize(
    ("limit_ms", "base"),
    [
        (4.0, FP32),  # the most accurate one has the time
        (3.0, BF16),  # 3.6 ms are too long, 2.7 are not
        (1.9, INT8),  # the last one whose 1.8 ms are not
        (1.7, INT8),  # none would keep the limit: the fastest has the best chance
        (0.5, None),  # nothing keeps it even now
    ],
)
def test_mirrored_views_are_tried_where_there_is_time_for_them(limit_ms: float, base: Deployment | None) -> None:
    attempts = [tried(FP32, [2.0, 1.9, 2.1], 0.910), tried(BF16, [1.5], 0.905), tried(INT8, [1.0], 0.900)]
    limits = Limits.of(latency_ms=limit_ms)
    checked = module.choose(attempts, 0.05, lambda t: rejection(t, limits), slack=0.001)
    found = module.base_of_views(checked, lambda t: rejection(t, limits), 0.001)
    assert (found and found.deployment) == base


def test_among_files_that_are_level_the_fastest_is_tried_with_mirrored_views() -> None:
    attempts = [tried(FP32, [2.0], 0.910), tried(BF16, [1.5], 0.909), tried(INT8, [1.0], 0.900)]
    found = module.base_of_views(module.choose(attempts, 0.05, slack=0.002), module.no_rejection, 0.002)
    assert found is not None
    assert found.deployment == BF16


def test_a_slowed_measurement_has_all_its_times_longer() -> None:
    session = replace(timing(1.0), p90_ms=2.0, p99_ms=3.0, p90_upper_ms=2.5, p99_lower_ms=2.8,
                      attempts_ms=((1.5, None, 4.0),))  # fmt: skip
    plain = summarise(MeasureRequest(Path("model.onnx"), FP32), [session], None, 1.0)
    found = slowed(replace(plain, machine="host"), 2.0)
    assert found.machine == "host"
    assert (found.p50_ms, found.p90_ms, found.p99_ms, found.worst_session_p50_ms) == (2.0, 4.0, 6.0, 3.0)
    (longer,) = found.sessions
    assert (longer.p90_upper_ms, longer.p99_upper_ms, longer.p90_lower_ms, longer.p99_lower_ms) == (
        5.0,
        None,
        None,
        5.6,
    )
    assert longer.attempts_ms == ((3.0, None, 8.0),)
    assert (longer.load_ms, longer.reference_p50_ms) == (1.0, 1.0)


def test_files_that_answer_the_same_images_are_compared_image_by_image() -> None:
    """Of 100 images one file knows the first 90, one the first 86, another the last 86: the same accuracies differ
    surely, or hardly, by whether the answers do."""
    files = [
        replace(tried(deployment, [ms], known.mean()), answers=Answers.of(known))
        for deployment, ms, known in (
            (FP32, 2.0, np.arange(100) < 90),
            (INT8, 1.0, np.arange(100) < 86),
            (INT8, 1.0, np.arange(100) >= 14),
        )
    ]
    best, alike, unlike = files
    assert module.tie_of(best, alike, 0.03) == pytest.approx((5 - 4**2 / 102) ** 0.5 / 102)  # cells of 4.5 and 0.5
    assert module.tie_of(best, unlike, 0.03) == pytest.approx((25 - 4**2 / 102) ** 0.5 / 102)  # of 14.5 and 10.5
    assert [t.reason for t in module.choose([best, alike], 0.1, slack=0.05)] == ["", "less accurate than openvino-fp32"]
    assert [t.reason for t in module.choose([best, unlike], 0.1, slack=0.0)] == ["slower than openvino-int8", ""]
    unknown = replace(alike, answers=None)
    assert [t.chosen for t in module.choose([best, unknown], 0.1, slack=0.05)] == [False, True]
    assert [t.chosen for t in module.choose([best, unknown], 0.1, slack=0.03)] == [True, False]
    # One that is more accurate than the chosen file, and surely less than the best one, is not said to be slower.
    middle = replace(alike, deployment=BF16, accuracy=0.88, answers=Answers.of(np.arange(100) < 88))
    told = module.choose([best, middle, unlike], 0.1, slack=0.0)
    assert [t.reason for t in told] == ["slower than openvino-int8", "less accurate than openvino-fp32", ""]


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_file_with_mirrored_views_gives_the_mean_of_two_answers(
    runtime: str, precision: str, digits: ImageData, tmp_path: Path
) -> None:
    data = replace(digits, flip_ok=True)
    description = NetworkDescription.of_baseline("resnet10_w50", (10,), image_input(32))
    with torch.random.fork_rng():
        torch.manual_seed(0)  # int8 is further off where an untrained network happens to answer all images alike
        network = description.build()
    deployment = Deployment(runtime, precision, 1, batch=2)
    found = deploy(network, description, data, [deployment], folder=tmp_path, max_drop=1.0, slack=0.0, sessions=1)
    plain, views = found.tried
    assert (plain.mirrored, views.mirrored) == (False, True)
    assert views.path is not None
    images = data.inputs(data.for_input("val", image_input(32)).some(4))
    run = load_runtime(runtime).load(views.path, deployment).run
    with torch.no_grad():
        expected = sum(network.eval()(torch.from_numpy(view.copy())) for view in (images, images[..., ::-1])) / 2
    assert (
        np.abs(run(images) - expected.numpy()).max() <= (1e-4 if precision == "fp32" else 0.15) * expected.abs().max()
    )
    swapped = np.abs(
        run(images) - run(images[..., ::-1].copy())
    ).max()  # views change places: kernels may round otherwise
    assert swapped <= (1e-5 if precision == "fp32" else 0.02) * expected.abs().max()


def test_what_there_is_no_time_for_is_left_out_and_said(digits: ImageData, tmp_path: Path) -> None:
    """No time at all is left: one deployment is tried and measured once, nothing else is."""
    asked: list[str] = []

    def measurer(requests: Sequence[MeasureRequest], *, sessions: int, least_calls: int = 0) -> list[Measurement]:
        asked.extend(r.deployment.name for r in requests)
        return [summarise(r, [timing(1.0)] * sessions, None, 1.0) for r in requests]

    description = NetworkDescription.of_baseline("resnet10_w50", (10,), image_input(32))
    deployments = [Deployment("onnxruntime", precision, 2) for precision in ("fp32", "int8")]
    found = deploy(
        description.build(), description, replace(digits, flip_ok=True), deployments, folder=tmp_path, max_drop=1.0,
        measurer=measurer, fewer_threads=(1,), slack=0.0, left_s=lambda: 0.0,
    )  # fmt: skip
    assert asked == ["onnxruntime-fp32"]
    assert [(t.name, t.chosen, t.reason) for t in found.tried] == [
        ("onnxruntime-fp32", True, ""), ("onnxruntime-int8", False, LEFT_OUT),
    ]  # fmt: skip
    write_deployed(tmp_path, found, None)
    again = read_deployed(tmp_path, description, deployments, None)
    assert again is not None, "a run that goes on does not try it either"
    assert [t.reason for t in again.tried] == ["", LEFT_OUT]


def test_slow_deployments_are_left_out_before_fast_ones(digits: ImageData, tmp_path: Path) -> None:
    """There is time for one beside the first, with whose accuracy the others are compared."""
    left_s = chain([float("inf")], repeat(0.0))
    expected_ms = {"onnxruntime-fp32": 9.0, "onnxruntime-int8": 3.0, "openvino-fp32": 1.0}
    deployments = [
        Deployment("onnxruntime", "fp32", 2), Deployment("onnxruntime", "int8", 2), Deployment("openvino", "fp32", 2)
    ]  # fmt: skip
    description = NetworkDescription.of_baseline("resnet10_w50", (10,), image_input(32))
    found = deploy(
        description.build(), description, digits, deployments, folder=tmp_path, max_drop=1.0, upper_bound=lambda _: 1.0,
        left_s=lambda: next(left_s), expected_ms=lambda deployment: expected_ms[deployment.name],
    )  # fmt: skip
    assert [t.deployment for t in found.tried] == deployments, "as they were given"
    assert [t.reason == LEFT_OUT for t in found.tried] == [False, True, False]


def test_fewer_threads_are_delivered_where_they_are_faster(digits: ImageData, tmp_path: Path) -> None:
    """Two threads lose to one in the int8 file, which is the fastest, and nobody asks of the slow one."""
    took_ms = {("fp32", 2): 4.0, ("int8", 2): 1.0, ("int8", 1): 0.8}
    asked: list[tuple[str, int]] = []

    def measurer(requests: Sequence[MeasureRequest], *, sessions: int, least_calls: int = 0) -> list[Measurement]:
        asked.extend((r.deployment.precision, r.deployment.threads) for r in requests)
        times = [took_ms[r.deployment.precision, r.deployment.threads] for r in requests]
        return [summarise(r, [timing(ms)] * sessions, None, 1.0) for r, ms in zip(requests, times, strict=True)]

    description = NetworkDescription.of_baseline("resnet10_w50", (10,), image_input(32))
    deployments = [Deployment("onnxruntime", precision, 2) for precision in ("fp32", "int8")]
    found = deploy(
        description.build(), description, digits, deployments, folder=tmp_path, max_drop=1.0, measurer=measurer,
        fewer_threads=(1, 2, 4),
    )  # fmt: skip
    as_a_camera_calls_it = with_all_around_it = ("int8", 1)
    assert asked == [("fp32", 2), ("int8", 2), ("int8", 1), as_a_camera_calls_it, with_all_around_it]
    assert found.chosen is not None
    assert found.chosen.name == "onnxruntime-int8 (1 thread)"
    assert (found.chosen.deployment.threads, found.chosen.accuracy) == (1, found.tried[1].accuracy)
    assert list(found.chosen.p50_by_calls_ms) == ["continuous", "20/s"]
    write_deployed(tmp_path, found, None)
    again = read_deployed(tmp_path, description, deployments, None)
    assert again is not None
    assert [(t.name, t.measurement, t.beside, t.answers) for t in again.tried] == [
        (t.name, t.measurement, t.beside, t.answers) for t in found.tried
    ]
    assert [t.answers and t.answers.share for t in found.tried] == [t.accuracy for t in found.tried]


def test_mirrored_views_are_not_tried_where_a_mirror_image_is_another_class(digits: ImageData, tmp_path: Path) -> None:
    description = NetworkDescription.of_baseline("resnet10_w50", (10,), image_input(32))
    found = deploy(
        description.build(), description, digits, [FP32], folder=tmp_path, max_drop=1.0, slack=0.0, sessions=1
    )
    assert [t.mirrored for t in found.tried] == [False]


def test_the_fastest_accurate_one_is_chosen() -> None:
    chosen = choose(tried(FP32, [2.0], 0.90), tried(BF16, [1.5], 0.895), tried(INT8, [1.0], 0.85))
    assert chosen["bf16"].chosen
    assert chosen["fp32"].reason == "slower than openvino-bf16"
    assert not chosen["int8"].accepted
    assert "85.0%" in chosen["int8"].reason


def test_a_drop_of_just_as_much_as_allowed_is_allowed() -> None:
    assert 0.13 - 0.01 > 0.12
    assert choose(tried(FP32, [2.0], 0.13), tried(INT8, [1.0], 0.12))["int8"].chosen


def test_one_slow_session_breaks_the_limit() -> None:
    chosen = choose(tried(FP32, [2.0, 2.1, 2.0], 0.9), tried(INT8, [1.0, 1.0, 3.1], 0.9))
    assert chosen["fp32"].chosen
    assert "slowest session took 3.10 ms" in chosen["int8"].reason


def test_nothing_is_chosen_where_all_miss_the_limit() -> None:
    chosen = choose(tried(FP32, [4.0], 0.9), tried(INT8, [5.0], 0.9))
    assert not any(t.chosen or t.accepted for t in chosen.values())


def test_a_failed_measurement_is_a_reason() -> None:
    chosen = choose(tried(FP32, [2.0], 0.9), tried(INT8, [], 0.9, failed="the worker crashed"))
    assert chosen["fp32"].chosen
    assert chosen["int8"].reason == "could not be measured: the worker crashed"
    assert math.isnan(chosen["int8"].p50_ms)


def test_nothing_is_accepted_where_the_exported_file_is_another_network() -> None:
    attempts = [tried(FP32, [2.0], 0.9), tried(INT8, [1.0], 0.9)]
    wrong = Parity(images=64, max_abs_difference=3.0, mean_abs_difference=0.4, agreement=0.5)
    chosen = module.choose(attempts, 0.01, parity=wrong)
    assert not any(t.accepted or t.chosen for t in chosen)
    assert "on 64 images the answers agree in 50.0%" in chosen[1].reason
    right = replace(wrong, mean_abs_difference=1e-7, agreement=1.0)
    assert module.choose(attempts, 0.01, parity=right)[1].chosen


def test_all_deployments_of_a_network_have_one_batch(digits: ImageData, tmp_path: Path) -> None:
    assert common_batch([FP32, INT8]) == common_batch([]) == 1
    assert common_batch([replace(FP32, batch=8), replace(INT8, batch=8)]) == 8
    description = NetworkDescription.of_baseline("resnet10_w50", (10,), image_input(32))
    with pytest.raises(ValueError, match=r"\[1, 8\]"):
        deploy(description.build(), description, digits, [FP32, replace(INT8, batch=8)], folder=tmp_path, max_drop=1.0)


@pytest.fixture(scope="module")
def digits() -> ImageData:
    return load_dataset("digits")


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_a_real_network_is_deployed(digits: ImageData, tmp_path: Path) -> None:
    torch.manual_seed(0)
    space = load_search_space("mobile").restrict("resolution", [32])
    description = NetworkDescription.of_architecture(space, space.architecture([0] * len(space.decisions)), (10,))
    network = description.build()
    deployments = [Deployment("onnxruntime", "fp32", 1), Deployment("onnxruntime", "int8", 1)]
    options = {"folder": tmp_path, "max_drop": 1.0, "sessions": 1}
    result = deploy(network, description, digits, deployments, **options)  # type: ignore[arg-type]
    assert result.chosen is not None
    assert result.parity is not None
    assert result.parity.agreement == 1.0
    assert {t.deployment.precision for t in result.tried if t.accepted} == {"fp32", "int8"}
    accuracy = deployed_accuracy(result.tried[0], digits, "val", description)
    assert accuracy == result.tried[0].accuracy
    assert (
        result.tried[0].size_bytes == files_bytes(tmp_path / "model.onnx") == (tmp_path / "model.onnx").stat().st_size
    )
    again = module.choose(result.tried, 1.0, lambda t: rejection(t, Limits.of(latency_ms=1e-6)))
    assert not any(t.chosen for t in again)


def test_without_the_device_the_predicted_bound_decides(digits: ImageData, tmp_path: Path) -> None:
    space = load_search_space("mobile").restrict("resolution", [32])
    description = NetworkDescription.of_architecture(space, space.architecture([0] * len(space.decisions)), (10,))
    deployments = [Deployment("onnxruntime", "fp32", 1)]
    for bound, kept in ((2.0, True), (4.0, False)):
        result = deploy(
            description.build(),
            description,
            digits,
            deployments,
            folder=tmp_path / str(bound),
            max_drop=0.01,
            rejection=lambda t, bound=bound: "too slow" if bound > 3 else "",
            upper_bound=lambda d, bound=bound: bound,
            trained=False,
        )
        assert (result.chosen is not None) is kept
        assert result.tried[0].measurement is None
        assert np.isfinite(bound)
