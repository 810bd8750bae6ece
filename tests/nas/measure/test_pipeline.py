"""The whole way from an example to an answer, timed in real worker processes and by hand."""

import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nas.data import ImageData
from nas.data.images import ImageSplit, image_input
from nas.deploy.onnx import export_onnx
from nas.deploy.tried import TriedDeployment
from nas.deployment import ALONE, PIPELINE, Deployment
from nas.measure.job import SessionTiming
from nas.measure.measurement import Measurement, MeasureRequest
from nas.measure.pipeline import PipelineSession, processing_ms, read_pipeline, write_pipeline
from nas.measure.protocol import measure
from nas.networks.description import NetworkDescription
from nas.runtimes.ort import OnnxRuntime
from nas.targets.preparing import deploy_untrained
from nas.tasks.classification.data.registry import load_dataset
from search_spaces import load_search_space

ORT = Deployment("onnxruntime", "fp32", threads=1)
LARGE = 1200, 1600
"""Rows and columns of a picture that takes much longer to prepare than the network takes."""


@pytest.fixture(scope="module")
def photos() -> ImageData:
    """Digits that were photographed."""
    return replace(load_dataset("digits"), picture_size=LARGE)


@pytest.fixture(scope="module")
def folder(photos: ImageData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network for digits, with its documents and without."""
    folder = tmp_path_factory.mktemp("pipeline")
    description = NetworkDescription.of_baseline("resnet10_w50", (10,), image_input(32))
    network = description.build().eval()
    for name, batch in (("one", 1), ("four", 4), ("bare", 1)):
        (folder / name).mkdir()
        export_onnx(network, description.signature.input, folder / name / "model.onnx", batch)
        if name != "bare":
            write_pipeline(folder / name, photos, description.signature)
    return folder


def test_a_call_covers_what_goes_before_and_after(folder: Path) -> None:
    one, four = folder / "one" / "model.onnx", folder / "four" / "model.onnx"
    whole, alone, calls_of_four, bare = measure(
        [
            MeasureRequest(one, ORT.covering(PIPELINE)),
            MeasureRequest(one, ORT),
            MeasureRequest(four, replace(ORT, batch=4, covers=PIPELINE)),
            MeasureRequest(folder / "bare" / "model.onnx", ORT.covering(PIPELINE)),
        ],
        sessions=1, seconds_per_model=0.1,
    )  # fmt: skip
    assert (alone.preprocess_ms, alone.network_ms, alone.postprocess_ms) == (None, None, None)
    assert whole.network_ms is not None
    assert 0 < whole.network_ms < whole.p50_ms
    assert whole.preprocess_ms is not None
    assert whole.postprocess_ms is not None
    assert whole.p50_ms > whole.preprocess_ms > alone.p50_ms, "a large picture takes longer than a small network"
    assert 0 < whole.postprocess_ms < whole.preprocess_ms
    assert calls_of_four.preprocess_ms is not None
    assert calls_of_four.preprocess_ms > 2 * whole.preprocess_ms, "four pictures are prepared for a call"
    assert bare.failed is not None
    assert "does not say how its network's input is made" in bare.failed
    again = Measurement.from_json(json.loads(json.dumps(whole.to_json())))
    assert again == whole
    assert again.request.deployment.covers == PIPELINE


def test_a_session_computes_what_the_network_computes(folder: Path, photos: ImageData) -> None:
    network = OnnxRuntime().load(folder / "four" / "model.onnx", replace(ORT, batch=4))
    session = PipelineSession(network, folder / "four")
    processor, example = read_pipeline(folder / "four")
    assert isinstance(example, Image.Image)
    assert (example.height, example.width) == LARGE
    outputs = session.run(np.zeros(0))
    (expected,) = network.run(processor.preprocess(example).inputs)
    np.testing.assert_allclose(outputs, np.stack([expected] * 4), atol=1e-5)
    assert len(session.before_s) == len(session.network_s) == len(session.after_s) == 1
    assert session.medians_ms() == tuple(
        1e3 * part[0] for part in (session.before_s, session.network_s, session.after_s)
    )
    session.run(np.zeros(0))
    first = session.before_s[0]
    session.forget_last()
    assert session.before_s == [first]
    session.forget()
    assert session.before_s == session.network_s == session.after_s == []
    assert (session.input, session.batch) == (network.input, 4)


def test_pauses_are_kept_and_not_counted(folder: Path, photos: ImageData) -> None:
    description = NetworkDescription.of_baseline("resnet10_w50", (10,), image_input(32))
    start = time.perf_counter()
    found_ms = processing_ms(folder / "one", description.signature, 200.0, calls=2)
    assert time.perf_counter() - start >= 0.6
    assert 0 < found_ms < 200


def test_a_damaged_document_is_told(folder: Path, tmp_path: Path) -> None:
    for text in ("", "{}", '{"task": "classification"}'):
        (tmp_path / "pipeline.json").write_text(text)
        with pytest.raises(Exception, match="does not say how its network's input is made"):
            read_pipeline(tmp_path)


def test_the_network_s_part_is_that_of_calls_of_it_alone_where_there_were_any() -> None:
    def measured(deployment: Deployment, ms: float, around: float | None) -> Measurement:
        timing = SessionTiming(
            p50_ms=ms, p90_ms=ms, p99_ms=ms, calls=9, reference_p50_ms=1.0, load_ms=1.0, memory_bytes=1, cpu_share=1.0,
            disturbance=None, preprocess_ms=around, network_ms=around and around + 0.2, postprocess_ms=around,
        )  # fmt: skip
        return Measurement(
            request=MeasureRequest(Path("m"), deployment), sessions=(timing,), p50_ms=ms, p90_ms=ms, p99_ms=ms,
            worst_session_p50_ms=ms, between_session_spread_pct=0.0, drift_corrected_p50_ms=ms, reference_p50_ms=1.0,
            memory_bytes=1, energy_mj=float("nan"), verdict="quiet", failed=None,
        )  # fmt: skip

    alone, whole = measured(ORT, 1.0, None), measured(ORT.covering(PIPELINE), 3.0, 0.9)
    tried = TriedDeployment(deployment=ORT, path=None, accuracy=None, measurement=alone)
    assert tried.pipeline_ms is None
    parts = {"preprocess": 0.9, "network": 1.0, "postprocess": 0.9, "total": 3.0}
    assert replace(tried, across=whole).pipeline_ms == parts
    assert replace(tried, measurement=whole, across=alone).pipeline_ms == parts
    assert replace(tried, measurement=whole).pipeline_ms == {**parts, "network": 1.1}
    assert replace(tried, across=replace(whole, failed="no")).pipeline_ms is None
    assert ALONE == ORT.covers == ORT.covering(PIPELINE).called(50.0).continuous.covers
    with pytest.raises(ValueError, match="covers network or pipeline"):
        replace(ORT, covers="photo")  # type: ignore[arg-type]


def test_an_untrained_candidate_answers_as_many_classes_as_the_data_have(photos: ImageData, tmp_path: Path) -> None:
    space = load_search_space("compact").restrict("resolution", [32])
    arch = space.architecture([0] * len(space.decisions))
    val = ImageSplit(photos.val.images, photos.val.labels % 3)
    few = replace(photos, classes=photos.classes[:3], val=val)
    write_pipeline(tmp_path, few, space.signature(arch, few.output_size))
    requests = deploy_untrained(arch, [ORT.covering(PIPELINE)], tmp_path, 0, few.output_size)
    (measured,) = measure(requests, sessions=1, seconds_per_model=0.02)
    assert measured.failed is None
    assert measured.postprocess_ms is not None
