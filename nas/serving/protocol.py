"""The Open Inference Protocol, version 2, over REST: bodies of requests and answers, as tensors.

https://github.com/kserve/open-inference-protocol, with the extension for binary tensors
(https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_binary_data.md): behind the JSON
follow the tensors' bytes, little endian, in the order in which the JSON names them, and an HTTP header tells where the
JSON ends. An element of type BYTES is its length, 4 bytes, and its content.

Pure functions: no network, no model.
"""

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from nas.serving.refusal import Refusal, malformed

HEADER_LENGTH = "inference-header-content-length"
"""HTTP header: bytes of JSON at the start of a body that goes on with binary tensors."""
BYTES = "BYTES"
NUMPY_TYPES: Mapping[str, str] = {
    "BOOL": "?", "UINT8": "<u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8", "INT8": "<i1", "INT16": "<i2",
    "INT32": "<i4", "INT64": "<i8", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8",
}  # fmt: skip
"""Datatype of the protocol -> numpy's, little endian."""
_LENGTH = struct.Struct("<I")
MOST_AXES, LONGEST_AXIS = 32, 2**31 - 1
"""Of a tensor: no network has as many, and numpy refuses some that are beyond."""


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """An array with a name, as the protocol moves it."""

    name: str
    datatype: str
    """`BYTES`, or a key of `NUMPY_TYPES`."""
    shape: tuple[int, ...]
    data: NDArray[Any] | Sequence[bytes]
    """An array of `shape`; of BYTES the elements, one after the other."""
    text: bool = False
    """BYTES that came as texts in JSON."""


@dataclass(frozen=True, slots=True, eq=False)
class InferRequest:
    """The body of a request to `/v2/models/NAME/infer`."""

    inputs: tuple[Tensor, ...]
    id: str | None = None
    outputs: Mapping[str, bool] = field(default_factory=dict)
    """Name of an output that is asked for -> in binary; empty: all of them."""
    binary: bool = False
    """Whether outputs are wanted in binary where none is named."""


def parse_request(body: bytes, json_bytes: int | None = None) -> InferRequest:
    """The request in a body; `json_bytes` is what `HEADER_LENGTH` says, None without that header.

    Raises:
        Refusal: it breaks the protocol (status 400).
    """
    if json_bytes is not None and not 0 <= json_bytes <= len(body):
        raise malformed(f"{HEADER_LENGTH} says {json_bytes} of a body of {len(body)} bytes")
    document = _object(_json(body[:json_bytes]), "the body")
    binary = memoryview(body)[json_bytes if json_bytes is not None else len(body) :]
    tensors = []
    for entry in _list(document.get("inputs"), "inputs"):
        tensor, used = _input(_object(entry, "an input"), binary)
        tensors.append(tensor)
        binary = binary[used:]
    if len(binary):
        raise malformed(f"{len(binary)} bytes follow the last tensor")
    wanted: dict[str, bool] = {}
    for entry in _list(document.get("outputs", []), "outputs"):
        output = _object(entry, "an output")
        wanted[_text(output.get("name"), "the name of an output")] = _flag(output, "binary_data")
    identifier = document.get("id")
    return InferRequest(
        inputs=tuple(tensors),
        id=None if identifier is None else _text(identifier, "the id"),
        outputs=wanted,
        binary=_flag(document, "binary_data_output"),
    )


def compose_answer(
    model: str, version: str, tensors: Sequence[Tensor], request: InferRequest
) -> tuple[bytes, int | None]:
    """The body of an answer, and the bytes of JSON in it where binary tensors follow (else None).

    Raises:
        Refusal: an output was asked for that is not among `tensors` (status 400); as `encode`.
    """
    known = {tensor.name: tensor for tensor in tensors}
    unknown = [name for name in request.outputs if name not in known]
    if unknown:
        raise malformed(f"there is no output {unknown[0]!r}, only {', '.join(known)}")
    wanted = request.outputs or dict.fromkeys(known, request.binary)
    entries, blobs = [], []
    for name, binary in wanted.items():
        tensor = known[name]
        entry: dict[str, Any] = {"name": name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
        if binary:
            blobs.append(_bytes_of(tensor))
            entry["parameters"] = {"binary_data_size": len(blobs[-1])}
        else:
            entry["data"] = _values(tensor)
        entries.append(entry)
    document = {"model_name": model, "model_version": version, "outputs": entries}
    if request.id is not None:
        document["id"] = request.id
    head = encode(document)
    return b"".join([head, *blobs]), len(head) if blobs else None


def encode(document: Mapping[str, Any]) -> bytes:
    """An answer as JSON. Raises `Refusal` (status 422) where a number is not finite, for which JSON has no word."""
    try:
        return _ENCODER.encode(document).encode()
    except ValueError as error:
        raise Refusal(422, "the network's answer has numbers that are not finite, which JSON cannot hold") from error


def bytes_tensor(name: str, texts: Sequence[str]) -> Tensor:
    """A tensor of BYTES (n,) from n texts."""
    return Tensor(name, BYTES, (len(texts),), [text.encode() for text in texts])


def _input(entry: Mapping[str, Any], binary: memoryview) -> tuple[Tensor, int]:
    """A tensor, and how many of the bytes in `binary` it is."""
    name = _text(entry.get("name"), "the name of an input")
    datatype = _text(entry.get("datatype"), f"the datatype of {name!r}")
    shape = tuple(_list(entry.get("shape"), f"the shape of {name!r}"))
    if any(isinstance(size, bool) or not isinstance(size, int) or size < 0 for size in shape):
        raise malformed(f"the shape of {name!r} is not of whole numbers")
    if len(shape) > MOST_AXES or max(shape, default=0) > LONGEST_AXIS:
        raise malformed(f"the shape of {name!r} has more than {MOST_AXES} axes, or one beyond {LONGEST_AXIS}")
    if datatype != BYTES and datatype not in NUMPY_TYPES:
        raise malformed(f"{name!r} has the unknown datatype {datatype!r}")
    size = _object(entry.get("parameters", {}), f"the parameters of {name!r}").get("binary_data_size")
    if size is None:
        data = _from_json(name, datatype, shape, entry.get("data"))
        return Tensor(name, datatype, shape, data, text=datatype == BYTES), 0
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= len(binary):
        raise malformed(f"{name!r} announces {size!r} bytes, and {len(binary)} are there")
    blob = binary[:size]
    if datatype == BYTES:
        return Tensor(name, datatype, shape, _elements(name, shape, blob)), size
    numpy_type = np.dtype(NUMPY_TYPES[datatype])
    if math.prod(shape) * numpy_type.itemsize != size:
        raise malformed(f"{name!r} of shape {list(shape)} and type {datatype} is not {size} bytes long")
    array = np.frombuffer(blob, numpy_type)
    if not array.flags.aligned:  # it begins where the JSON ends; whatever reads it is faster by more than a copy takes
        array = array.copy()
    return Tensor(name, datatype, shape, array.reshape(shape)), size


def _elements(name: str, shape: tuple[int, ...], blob: memoryview) -> list[bytes]:
    found, start = [], 0
    while start < len(blob):
        end = start + _LENGTH.size
        length = _LENGTH.unpack_from(blob, start)[0] if end <= len(blob) else len(blob)
        if end + length > len(blob):
            raise malformed(f"an element of {name!r} is longer than its tensor")
        found.append(bytes(blob[end : end + length]))
        start = end + length
    return _counted(name, shape, found)


def _from_json(name: str, datatype: str, shape: tuple[int, ...], data: Any) -> NDArray[Any] | list[bytes]:
    values = _list(data, f"the data of {name!r}")
    if datatype == BYTES:
        texts = _flat(values)
        if not all(isinstance(text, str) for text in texts):
            raise malformed(f"the data of {name!r} are not texts")
        return _counted(name, shape, [text.encode("utf-8", "surrogatepass") for text in texts])
    if not _is_numbers(values):  # numpy would give each element as much memory as the longest text takes
        raise malformed(f"the data of {name!r} are not of type {datatype}")
    try:
        found = np.array(values)
    except (ValueError, OverflowError) as error:  # rows of several lengths, or nested too deeply
        raise malformed(f"the data of {name!r} are no array: {error}") from error
    numpy_type = np.dtype(NUMPY_TYPES[datatype])
    if found.size != math.prod(shape):
        raise malformed(f"{name!r} of shape {list(shape)} has {found.size} values")
    if not found.size:
        return np.zeros(shape, numpy_type)
    if found.dtype.kind == "f" and numpy_type == np.uint64:  # numpy has no integer type for both 0 and 2**63
        exact = np.array(values, dtype=object)
        if all(type(value) is int for value in exact.flat):
            allowed = np.iinfo(numpy_type)
            if not all(allowed.min <= value <= allowed.max for value in exact.flat):
                raise malformed(f"the data of {name!r} are not within {datatype}")
            return exact.reshape(shape).astype(numpy_type)
    if found.dtype.kind not in ("iuf" if numpy_type.kind == "f" else "b" if numpy_type.kind == "b" else "iu"):
        raise malformed(f"the data of {name!r} are not of type {datatype}")
    if numpy_type.kind in "iu":
        allowed = np.iinfo(numpy_type)
        if int(found.min()) < allowed.min or int(found.max()) > allowed.max:
            raise malformed(f"the data of {name!r} are not within {datatype}")
    with np.errstate(over="ignore"):  # what is too large becomes infinite, which no network takes
        return found.reshape(shape).astype(numpy_type)


def _is_numbers(values: list[Any]) -> bool:
    """True if the leaves of nested lists are numbers, or true and false."""
    level = values
    while kinds := set(map(type, level)):
        if list not in kinds:
            return kinds <= {int, float, bool}
        if not kinds <= {int, float, bool, list}:
            return False
        level = list(chain.from_iterable(value for value in level if isinstance(value, list)))
    return True


def _flat(values: list[Any]) -> list[Any]:
    return [v for value in values for v in (value if isinstance(value, list) else [value])]


def _counted(name: str, shape: tuple[int, ...], elements: list[bytes]) -> list[bytes]:
    if len(elements) != math.prod(shape):
        raise malformed(f"{name!r} of shape {list(shape)} has {len(elements)} elements")
    return elements


def _bytes_of(tensor: Tensor) -> bytes:
    if isinstance(tensor.data, np.ndarray):
        return np.ascontiguousarray(tensor.data, NUMPY_TYPES[tensor.datatype]).tobytes()
    return b"".join(part for element in tensor.data for part in (_LENGTH.pack(len(element)), element))


def _values(tensor: Tensor) -> list[Any]:
    if isinstance(tensor.data, np.ndarray):
        flat: list[Any] = tensor.data.ravel().tolist()
        return flat
    return [element.decode() for element in tensor.data]


def _refuse(constant: str) -> NoReturn:
    raise malformed(f"{constant} is no number of JSON")


_DECODER, _ENCODER = json.JSONDecoder(parse_constant=_refuse), json.JSONEncoder(allow_nan=False)
"""Made once: `json.loads` and `json.dumps` make one for each call that is not of the usual kind."""


def _json(text: bytes) -> Any:
    try:
        return _DECODER.decode(text.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:  # damaged, not UTF-8, or nested beyond measure
        raise malformed(f"the body is no JSON: {error}") from error


def _object(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise malformed(f"{what} is no JSON object")
    return value


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise malformed(f"{what} is no list")
    return value


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise malformed(f"{what} is no text")
    return value


def _flag(entry: Mapping[str, Any], name: str) -> bool:
    value = _object(entry.get("parameters", {}), "parameters").get(name, False)
    if not isinstance(value, bool):
        raise malformed(f"{name} is neither true nor false")
    return value
