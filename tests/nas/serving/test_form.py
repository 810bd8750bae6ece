"""The form of answers, as the protocol's OpenAPI document describes it (`open_inference_rest.yaml` of
https://github.com/kserve/open-inference-protocol), written down here as JSON schemas."""

import base64
from typing import Any

import jsonschema
import pytest
from starlette.testclient import TestClient

from tests.nas.serving.bundles import encoded

pytestmark = pytest.mark.xdist_group("serving")

Schema = dict[str, Any]
TEXT, NUMBERS = {"type": "string"}, {"type": "array", "items": {"type": "integer"}}


def record(*needed: str, **fields: Schema) -> Schema:
    return {"type": "object", "properties": fields, "required": list(needed)}


def many(item: Schema) -> Schema:
    return {"type": "array", "items": item}


DATA = many({"anyOf": [{"type": "number"}, TEXT, {"type": "boolean"}, {"type": "array"}]})
TENSOR = record("name", "datatype", "shape", name=TEXT, datatype=TEXT, shape=NUMBERS)
OUTPUT = record(
    "name", "shape", "datatype", "data", name=TEXT, shape=NUMBERS, datatype=TEXT, data=DATA, parameters=record()
)
SERVER = record("name", "version", "extensions", name=TEXT, version=TEXT, extensions=many(TEXT))
MODEL = record(
    "name", "platform", name=TEXT, platform=TEXT, versions=many(TEXT), inputs=many(TENSOR), outputs=many(TENSOR)
)
ANSWER = record("model_name", "outputs", model_name=TEXT, model_version=TEXT, id=TEXT, outputs=many(OUTPUT))
ERROR = record("error", error=TEXT)


@pytest.mark.parametrize("task", ["classification", "detection"])
def test_answers_have_the_form_of_the_protocol(task: str, clients: dict[str, TestClient]) -> None:
    client, model = clients[task], f"/v2/models/{task}/versions/1"
    for path, form in (("/v2/", SERVER), ("/v2", SERVER), (model, MODEL)):
        answer = client.get(path, follow_redirects=False)
        assert answer.status_code == 200
        jsonschema.validate(answer.json(), form)
    for path in ("/v2/health/live", "/v2/health/ready", f"{model}/ready"):
        assert client.get(path).status_code == 200
    file = base64.b64encode(encoded()).decode()
    asked = {"id": "42", "inputs": [{"name": "image", "shape": [1], "datatype": "BYTES", "data": [file]}]}
    answer = client.post(f"{model}/infer", json=asked)
    jsonschema.validate(answer.json(), ANSWER)
    assert answer.json()["id"] == "42"
    described = {entry["name"]: entry for entry in client.get(model).json()["outputs"]}
    for output in answer.json()["outputs"]:  # as the model's description says
        assert output["datatype"] == described[output["name"]]["datatype"]
        assert len(output["shape"]) == len(described[output["name"]]["shape"])
    refused = client.post(f"{model}/infer", json={"inputs": 3})
    assert refused.status_code == 400
    jsonschema.validate(refused.json(), ERROR)
