"""Operators' times are booked on the blocks they belong to."""

import math
from pathlib import Path

import numpy as np
import pytest

from nas.deployment import Deployment
from nas.measure.block_times import slot_times_ms
from nas.runtimes import load_runtime
from nas.runtimes.nodes import NodeTime, NodeTimer, precision_of
from nas.runtimes.ov import Counters, since
from nas.targets.preparing import deploy_untrained
from search_spaces import load_search_space


def test_times_are_booked_on_blocks() -> None:
    nodes = [
        NodeTime("input_reorder", 1.0),
        NodeTime("/stem/conv/Conv", 2.0),
        NodeTime("/stages.0/stages.0.0/dense/conv/Conv", 4.0),
        NodeTime("fused /stages.1/stages.1.0/body/body.0/conv/Conv", 8.0),
        NodeTime("reorder_17", 16.0),
        NodeTime("/stages.1/stages.1.1/body/body.0/conv/Conv", 32.0),
        NodeTime("/stages.1/stages.1.2/body/body.0/conv/Conv", 64.0),
        NodeTime("/head/linear/Gemm", 128.0),
        NodeTime("output_conversion", 256.0),
    ]
    places = (("stem",), ("stages.0.0",), (), ("stages.1.0",), ("stages.1.1", "stages.1.2"), ("head",))
    stem, first, none, second, repeated, head = slot_times_ms(nodes, places)
    assert (stem, first, second, head) == (3.0, 4.0, 8.0, 384.0)
    assert math.isnan(none)
    assert repeated == (16.0 + 32.0 + 64.0) / 2


@pytest.mark.parametrize(("space_name", "resolution"), [("mixed", 64), ("detect", 128)])
@pytest.mark.parametrize(
    ("runtime", "precision"),
    [
        ("onnxruntime", "fp32"),
        ("onnxruntime", "int8"),
        ("openvino", "fp32"),
        ("openvino", "bf16"),
        ("openvino", "int8"),
    ],
)
def test_real_runtimes_time_every_block(
    runtime: str, precision: str, space_name: str, resolution: int, tmp_path: Path
) -> None:
    library = load_runtime(runtime)
    if library.missing() is not None or library.unsupported(precision) is not None:
        pytest.skip(f"{runtime} {precision} cannot run here")
    space = load_search_space(space_name)
    arch = max(space.anchors, key=lambda a: (sum(a.choices), space.resolution(a)))
    arch = space.replace(arch, resolution=resolution)
    deployment = Deployment(runtime, precision, 1)
    (request,) = deploy_untrained(arch, [deployment], tmp_path, seed=0)
    session = library.load(request.path, deployment)
    images = session.input.draw(np.random.default_rng(0), session.batch)
    assert isinstance(library, NodeTimer)
    nodes = library.node_times(request.path, deployment, images, 0.05)
    counts = space.slot_counts(space.choices([arch]))[0]
    times = slot_times_ms(nodes, space.slot_places(arch))
    assert all(ms > 0 for ms, count in zip(times, counts, strict=True) if count)
    assert all(math.isnan(ms) for ms, count in zip(times, counts, strict=True) if not count)
    booked = sum(ms * count for ms, count in zip(times, counts, strict=True) if count)
    assert booked == pytest.approx(sum(node.ms for node in nodes))
    told = {node.precision for node in nodes if "conv" in node.kind.lower()}
    assert precision in told, "what really ran is told, whatever else runs beside it"


def test_openvinos_counters_are_means_whose_first_calls_are_taken_off() -> None:
    early = Counters(2, [], {"conv": 10.0})
    late = Counters(8, [], {"conv": 2.8, "later": 5.0})
    assert since(early, late, "conv") == pytest.approx((10 * 2.8 - 2 * 10.0) / 8)
    assert since(early, late, "later") == 5.0
    assert since(Counters(9, [], {"conv": 9.0}), Counters(1, [], {"conv": 1.0}), "conv") == 0.0005


@pytest.mark.parametrize(
    ("told", "precision"), [("I8", "int8"), ("u8", "int8"), ("f32", "fp32"), ("bf16", "bf16"), ("int64", ""), ("", "")]
)
def test_precisions_have_one_name(told: str, precision: str) -> None:
    assert precision_of(told) == precision
