"""Between tensors or documents on the wire and what an engine takes and gives."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import UnidentifiedImageError

from nas.errors import UserError
from nas.serving.engine import Answered, finite
from nas.serving.model import VERSION, ServedModel
from nas.serving.protocol import BYTES, InferRequest, Tensor, bytes_tensor
from nas.serving.refusal import Refusal, malformed

TOP = 5
"""Likeliest classes that a plain answer names."""
DATATYPES: Mapping[str, str] = {"float32": "FP32", "int64": "INT64", "uint8": "UINT8"}
"""Element type of a network's input -> the protocol's."""
IMAGE, PIXELS, INPUT = "image", "pixels", "input"


def metadata(model: ServedModel) -> dict[str, Any]:
    """What the protocol tells of a model. Of its inputs a request has exactly one."""
    receipt, spec = model.predictor.receipt, model.predictor.receipt.signature.input
    inputs = [(INPUT, DATATYPES[spec.dtype], [-1, *spec.shape])]
    if takes_images(model):
        inputs = [(IMAGE, BYTES, [-1]), (PIXELS, "UINT8", [-1, -1, -1, 3]), *inputs]
    if model.locates:
        outputs = [("boxes", "FP32", [-1, 4]), ("score", "FP32", [-1]), ("label", BYTES, [-1]), (IMAGE, "INT32", [-1])]
    else:
        outputs = [("label", BYTES, [-1])]
        if model.columns is not None:
            outputs.insert(0, ("scores", "FP32", [-1, len(model.labels)]))
    return {
        "name": model.name,
        "versions": [VERSION],
        "platform": f"{receipt.deployment.runtime}_{receipt.deployment.precision}",
        "inputs": [_described(*entry) for entry in inputs],
        "outputs": [_described(*entry) for entry in outputs],
    }


def examples_of(model: ServedModel, request: InferRequest, most: int) -> list[Any] | NDArray[Any]:
    """What a request asks about: a list of files or pictures to be prepared, or inputs (n, ...) ready for the network.

    Raises:
        Refusal: not one input, another shape or type than `metadata` says, no images or more than `most`.
    """
    known = [IMAGE, PIXELS, INPUT] if takes_images(model) else [INPUT]
    if len(request.inputs) != 1:
        raise malformed(f"a request has one input, {' or '.join(known)}; this one has {len(request.inputs)}")
    (tensor,) = request.inputs
    if tensor.name not in known:
        raise malformed(f"there is no input {tensor.name!r}, only {', '.join(known)}")
    images = tensor.shape[0] if tensor.shape else 0
    if not 1 <= images <= most:
        raise malformed(f"a request has 1 to {most} images, this one has {images}")
    if tensor.name == IMAGE:
        return _files(tensor)
    assert isinstance(tensor.data, np.ndarray) or tensor.datatype == BYTES
    if tensor.name == PIXELS:
        pictures = len(tensor.shape) == 4 and tensor.shape[3] == 3 and 0 not in tensor.shape
        _expect(tensor, "UINT8", pictures, "n, h, w, 3")
        return list(tensor.data)
    spec = model.predictor.receipt.signature.input
    _expect(tensor, DATATYPES[spec.dtype], tensor.shape[1:] == spec.shape, ", ".join(map(str, ("n", *spec.shape))))
    inputs = np.asarray(tensor.data, dtype=spec.dtype)
    if not finite(inputs):
        raise malformed(f"{INPUT!r} holds values that are not finite")
    if spec.values is not None and not (inputs.min() >= 0 and inputs.max() < spec.values):
        raise malformed(f"{INPUT!r} holds values outside of 0 to {spec.values - 1}")
    return inputs


def tensors_of(model: ServedModel, answers: Sequence[Answered]) -> list[Tensor]:
    """The outputs of a request: those that `metadata` names."""
    if not model.locates:
        labels = bytes_tensor("label", [a.answer[0]["label"] for a in answers])
        if model.columns is None:
            return [labels]
        scores = np.zeros((len(answers), len(model.columns)), np.float32)
        for row, answered in zip(scores, answers, strict=True):
            for found in answered.answer:
                row[model.columns[found["label"]]] = found["score"]
        return [Tensor("scores", "FP32", scores.shape, scores), labels]
    things = [(at, thing) for at, answered in enumerate(answers) for thing in answered.answer]
    boxes = np.array([thing["xyxy"] for _, thing in things], np.float32).reshape(-1, 4)
    scores = np.array([thing["score"] for _, thing in things], np.float32)
    where = np.array([at for at, _ in things], np.int32)
    return [
        Tensor("boxes", "FP32", boxes.shape, boxes),
        Tensor("score", "FP32", scores.shape, scores),
        bytes_tensor("label", [thing["label"] for _, thing in things]),
        Tensor(IMAGE, "INT32", where.shape, where),
    ]


def plain_answer(model: ServedModel, answered: Answered) -> dict[str, Any]:
    """The answer for one image: `label` and `score` of the surest, `top` classes or all `objects`, and times."""
    first = answered.answer[0] if answered.answer else {"label": None, "score": None}
    more = {"objects": answered.answer} if model.locates else {"top": answered.answer[:TOP]}
    times = {"decode": answered.decode_s, "queue": answered.queue_s, "infer": answered.infer_s}
    ms = {name: round(1e3 * seconds, 3) for name, seconds in times.items()}
    return {"label": first["label"], "score": first["score"], **more, "ms": ms}


def unreadable(error: UserError, at: int | None = None) -> Refusal:
    """What is said of an image that cannot be read: not an image at all (status 415), or a damaged one (422).

    `at`: its number, where a request has several.
    """
    what = "" if at is None else f"image {at}: "
    if isinstance(error.__cause__, UnidentifiedImageError):
        return Refusal(415, f"{what}not an image in a format that is taken: JPEG, PNG, WebP, BMP, GIF, PPM, TIFF")
    return Refusal(422, f"{what}{error}")


def takes_images(model: ServedModel) -> bool:
    """True if the network's input is a colour picture, (3, rows, columns)."""
    shape = model.predictor.receipt.signature.input.shape
    return len(shape) == 3 and shape[0] == 3


def _files(tensor: Tensor) -> list[Any]:
    """Encoded files: as they are, or in base64 where they were sent as text, in JSON."""
    _expect(tensor, BYTES, len(tensor.shape) == 1 or tensor.shape[1:] == (1,), "n")
    if not tensor.text:
        return list(tensor.data)
    try:
        return [base64.b64decode(text, validate=True) for text in tensor.data]
    except binascii.Error as error:
        raise malformed(f"{tensor.name!r} in JSON is not base64: {error}") from error


def _expect(tensor: Tensor, datatype: str, fits: bool, shape: str) -> None:
    if tensor.datatype != datatype or not fits:
        raise malformed(
            f"{tensor.name!r} is {datatype} of shape [{shape}], not {tensor.datatype} of {list(tensor.shape)}"
        )


def _described(name: str, datatype: str, shape: list[int]) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape}
