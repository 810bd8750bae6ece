"""Every route keeps its contract, on a real network in a real runtime."""

import base64
import io
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from nas import __version__
from nas.bundles.predictor import Predictor
from nas.errors import UserError
from nas.serving.app import Health, create_app
from nas.serving.engine import Engine
from nas.serving.metrics import Metrics
from nas.serving.protocol import HEADER_LENGTH
from tests.nas.serving.bundles import encoded, picture
from tests.nas.serving.conftest import SETTINGS

pytestmark = pytest.mark.xdist_group("serving")  # one set-up for all of them
TASKS = ("classification", "detection")


def infer(client: TestClient, name: str, document: dict[str, Any], blob: bytes = b"") -> Any:
    head = json.dumps(document).encode()
    headers = {HEADER_LENGTH: str(len(head))} if blob else {}
    return client.post(f"/v2/models/{name}/infer", content=head + blob, headers=headers)


def tensor(name: str, datatype: str, shape: list[int], data: Any) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


def outputs(answer: Any) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    return {output["name"]: output for output in answer.json()["outputs"]}


def pictures() -> dict[str, bytes]:
    """Files that must be read, each in its own way."""
    image = Image.fromarray(picture())
    turned = Image.Exif()
    turned[0x0112] = 6
    deep = Image.fromarray(np.random.default_rng(0).integers(0, 65536, (60, 90), dtype=np.uint16))
    return {
        "jpeg": encoded(), "png": encoded("PNG"), "webp": encoded("WEBP"), "bmp": encoded("BMP"),
        "turned": encoded(exif=turned), "cmyk": encoded(image=image.convert("CMYK")), "16 bit": encoded("PNG", deep),
        "animated": encoded("GIF", save_all=True, append_images=[image.rotate(90)]),
        "transparent": encoded("PNG", image.convert("RGBA")), "one pixel": encoded("PNG", image.resize((1, 1))),
    }  # fmt: skip


@pytest.mark.parametrize("task", TASKS)
def test_predict_answers_as_the_bundle_does(
    task: str, clients: dict[str, TestClient], engines: dict[str, Engine]
) -> None:
    predictor = Predictor.open(engines[task].model.predictor.folder, threads=1)
    for what, file in pictures().items():
        answer = clients[task].post("/predict", content=file)
        expected = predictor.predict(file)
        assert answer.status_code == 200, (what, answer.text)
        document = answer.json()
        assert (document["label"], document["score"]) == (expected[0]["label"], expected[0]["score"]), what
        assert document.get("objects", expected) == expected
        assert document.get("top", expected[:5]) == expected[:5]
        assert set(document["ms"]) == {"decode", "queue", "infer"}
        assert all(ms >= 0 for ms in document["ms"].values())


@pytest.mark.parametrize("threads", [1, 2])
def test_answers_do_not_depend_on_who_decodes(threads: int, engines: dict[str, Engine]) -> None:
    """On one core the network's thread, on more of them threads of their own."""
    model = engines["classification"].model
    engine = Engine(model, replace(SETTINGS, threads=threads))
    expected = Predictor.open(model.predictor.folder, threads=1).predict(encoded())
    good, bad, again = engine.answer_files([encoded(), b"no picture", encoded()])
    assert good.result(60).answer == again.result(60).answer == expected
    assert good.result().decode_s > 0
    with pytest.raises(UserError):
        bad.result(60)
    engine.close()
    assert engine.waiting == 0


def test_a_detector_draws_what_it_found(clients: dict[str, TestClient]) -> None:
    answer = clients["detection"].post("/predict?draw=1", content=encoded())
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "image/png"
    drawn = np.asarray(Image.open(io.BytesIO(answer.content)))
    plain = np.asarray(Image.open(io.BytesIO(encoded())))
    assert drawn.shape == plain.shape
    assert (drawn != plain).any()
    assert clients["classification"].post("/predict?draw=1", content=encoded()).status_code == 400
    assert clients["detection"].post("/predict?draw=yes", content=encoded()).status_code == 400


def test_what_the_server_says_of_itself(clients: dict[str, TestClient]) -> None:
    client = clients["classification"]
    assert client.get("/v2").json() == {
        "name": "nas", "version": __version__, "extensions": ["binary_tensor_data"]
    }  # fmt: skip
    assert client.get("/v2/health/live").status_code == 200
    assert client.get("/v2/health/ready").status_code == 200
    model = client.get("/v2/models/classification").json()
    assert model["name"] == "classification"
    assert model["platform"] == "onnxruntime_fp32"
    assert [entry["name"] for entry in model["inputs"]] == ["image", "pixels", "input"]
    assert model["outputs"][0] == {"name": "scores", "datatype": "FP32", "shape": [-1, 10]}
    assert client.get("/v2/models/classification/versions/1/ready").status_code == 200
    for path in ("/v2/models/other", "/v2/models/classification/versions/2", "/v2/models/other/ready", "/v3"):
        answer = client.get(path)
        assert answer.status_code == 404
        assert answer.json()["error"], path
    assert client.get("/predict").status_code == 405


@pytest.mark.parametrize("task", TASKS)
def test_the_three_inputs_of_the_protocol_give_the_same(
    task: str, clients: dict[str, TestClient], engines: dict[str, Engine]
) -> None:
    model = engines[task].model
    side = model.predictor.receipt.signature.input.shape[1]
    pixels = np.stack([picture(side, side, seed) for seed in range(3)])
    files = [encoded("PNG", Image.fromarray(image)) for image in pixels]
    ready = np.concatenate([model.prepare(image).inputs for image in pixels])
    ways = {
        "image": tensor("image", "BYTES", [3], [base64.b64encode(file).decode() for file in files]),
        "pixels": tensor("pixels", "UINT8", list(pixels.shape), pixels.tolist()),
        "input": tensor("input", "FP32", list(ready.shape), ready.ravel().tolist()),
    }
    answers = {way: outputs(infer(clients[task], task, {"inputs": [entry]})) for way, entry in ways.items()}
    for way in ("pixels", "input"):
        assert answers[way]["label"] == answers["image"]["label"]
        for name in answers[way].keys() - {"label"}:  # calls of other sizes round differently
            assert np.allclose(answers[way][name]["data"], answers["image"][name]["data"], atol=1e-4)
    expected = model.predictor.predict(list(pixels))
    if task == "classification":
        assert answers["image"]["label"]["data"] == [answer[0]["label"] for answer in expected]
        scores = np.array(answers["image"]["scores"]["data"]).reshape(answers["image"]["scores"]["shape"])
        assert [model.labels[at] for at in scores.argmax(1)] == answers["image"]["label"]["data"]
        assert np.allclose(scores.sum(1), 1)
    else:
        assert answers["image"]["image"]["data"] == [at for at, answer in enumerate(expected) for _ in answer]
        boxes = np.array(answers["image"]["boxes"]["data"]).reshape(answers["image"]["boxes"]["shape"])
        assert np.allclose(boxes, [thing["xyxy"] for answer in expected for thing in answer], atol=1e-2)


def test_binary_tensors_both_ways(clients: dict[str, TestClient]) -> None:
    pixels = np.stack([picture(32, 32, seed) for seed in range(2)])
    entry = {"name": "pixels", "datatype": "UINT8", "shape": list(pixels.shape)}
    entry["parameters"] = {"binary_data_size": pixels.nbytes}
    wanted = [{"name": "scores", "parameters": {"binary_data": True}}, {"name": "label"}]
    answer = infer(
        clients["classification"], "classification", {"id": "7", "inputs": [entry], "outputs": wanted}, pixels.tobytes()
    )
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/octet-stream"
    length = int(answer.headers[HEADER_LENGTH])
    document = json.loads(answer.content[:length])
    assert document["id"] == "7"
    assert [output["name"] for output in document["outputs"]] == ["scores", "label"]
    scores = np.frombuffer(answer.content[length:], "<f4").reshape(2, 10)
    whole = outputs(infer(clients["classification"], "classification", {
        "inputs": [tensor("pixels", "UINT8", list(pixels.shape), pixels.tolist())]
    }))  # fmt: skip
    assert np.allclose(scores.ravel(), whole["scores"]["data"])


def test_a_client_that_is_alone_gets_the_same_answer(
    clients: dict[str, TestClient], engines: dict[str, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the network runs in the event loop's thread or in its own."""
    engine = engines["classification"]
    alone = TestClient(create_app(engine, Health(), Metrics(), lambda: True))
    inputs = Predictor.open(engine.model.predictor.folder, threads=1).processor.preprocess(picture(32, 32)).inputs
    asked = {"inputs": [tensor("input", "FP32", list(inputs.shape), inputs.tolist())]}
    expected = outputs(infer(clients["classification"], "classification", asked))
    monkeypatch.setattr(engine, "answer_inputs", None)  # which hands over to the network's thread
    assert outputs(infer(alone, "classification", asked)) == expected
    assert engine.waiting == 0


def test_numbers_for_prometheus(engines: dict[str, Engine]) -> None:
    client = TestClient(create_app(engines["classification"], Health(), Metrics()))
    client.post("/predict", content=encoded())
    client.post("/predict", content=b"no image")
    text = client.get("/metrics").text
    assert 'nas_requests_total{code="200",route="predict"} 1.0' in text
    assert 'nas_requests_total{code="415",route="predict"} 1.0' in text
    assert 'nas_phase_seconds_count{phase="infer"} 1.0' in text
    assert "nas_waiting_images 0.0" in text


def test_a_server_that_ends_is_not_ready_but_answers(engines: dict[str, Engine]) -> None:
    health = Health()
    client = TestClient(create_app(engines["classification"], health, Metrics()))
    health.draining = True
    assert client.get("/v2/health/live").status_code == 200
    for path in ("/v2/health/ready", "/v2/models/classification/ready"):
        assert client.get(path).status_code == 503
    assert client.post("/predict", content=encoded()).status_code == 200
