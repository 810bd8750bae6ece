"""Several calls at once, in both runtimes that are always installed."""

from pathlib import Path

import numpy as np
import pytest

from nas.deployment import Deployment
from nas.measure.measurement import Measurement, MeasureRequest
from nas.measure.protocol import measure
from nas.runtimes import load_runtime
from nas.runtimes.streams import MAX_CALLS, MIN_CALLS, calls_of_a_round, load_streams
from tests.nas.tiny import CLASSES, calibration_images, write_tiny_network


@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
def test_every_stream_computes_the_network(name: str, tmp_path: Path) -> None:
    network = write_tiny_network(tmp_path / "tiny.onnx", batch=2)
    deployment = Deployment(name, "fp32", threads=2, batch=2)
    runtime = load_runtime(name)
    images = calibration_images(2)
    expected = runtime.load(network, deployment).run(images)
    session = load_streams(runtime, network, deployment, streams=2)
    output = session.run(images)
    assert (session.batch, session.input.shape) == (2, (3, 24, 24))
    assert output.shape == (2, CLASSES)
    np.testing.assert_allclose(output, expected, atol=1e-5)


def test_more_streams_than_threads_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="3 streams cannot share 2 threads"):
        load_streams(load_runtime("onnxruntime"), tmp_path / "any.onnx", Deployment("onnxruntime", "fp32", 2), 3)


def test_a_round_is_long_against_a_call_but_bounded() -> None:
    assert calls_of_a_round(0.001, streams=2) == 100
    assert calls_of_a_round(10.0, streams=2) == 2 * MIN_CALLS
    assert calls_of_a_round(1e-7, streams=3) == 3 * MAX_CALLS


def test_streams_are_measured_in_the_same_session(tmp_path: Path) -> None:
    network = write_tiny_network(tmp_path / "tiny.onnx", size=32)
    both = Deployment("onnxruntime", "fp32", threads=2)
    found = measure(
        [MeasureRequest(network, both), MeasureRequest(network, both, streams=2)], sessions=1, seconds_per_model=0.05
    )
    assert [m.failed for m in found] == [None, None]
    assert found[1].request.streams == 2
    assert found[1].sessions[0].calls % 2 == 0  # whole rounds
    assert Measurement.from_json(found[1].to_json()) == found[1]
