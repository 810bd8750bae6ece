"""Inputs and outputs of networks as frozen values.

Everything between a search space and a device (building, export, runtimes, measuring, receipts) knows a network's input
and output by its `Signature` alone. Whether an input is an image, a text or a table is the business of the task.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from search_spaces.errors import UserError

if TYPE_CHECKING:
    import torch

DType = Literal["float32", "int64", "uint8"]
"""Element types of an input."""

Size = tuple[int, ...]
"""Number of each thing a network's answer has: `(classes,)`, or `(classes, points)`. Data ask it of a network."""

LOGITS = "logits"
"""Kind of an output that is one number for each class, the largest of which is the answer."""

DTYPES: tuple[str, ...] = get_args(DType)
_HINT = "write it with `Signature.to_json`"
_Spec = TypeVar("_Spec")


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A network's one input: shape, element type, and how to draw a typical one."""

    shape: tuple[int, ...]
    """Shape of one example: without the batch axis."""
    dtype: DType = "float32"
    values: int | None = None
    """Integers alone: they lie in `[0, values)`; for token ids the size of the vocabulary."""

    def __post_init__(self) -> None:
        if not _is_shape(self.shape):
            raise ValueError(f"the shape of an input is a tuple of positive integers, got {self.shape!r}")
        if self.dtype not in DTYPES:
            raise ValueError(f"the type of an input is one of {', '.join(DTYPES)}, got {self.dtype!r}")
        if (self.values is not None) != (self.dtype != "float32"):
            raise ValueError(
                f"`values` belongs to an input of integers and to no other, got {self.values} {self.dtype}"
            )
        if self.values is not None and not 1 <= self.values <= np.iinfo(self.dtype).max + 1:
            raise ValueError(f"an input of {self.dtype} cannot take {self.values} different values")

    def batched(self, batch: int) -> tuple[int, ...]:
        """Shape of `batch` examples in one array."""
        return (batch, *self.shape)

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[Any]:
        """`count` random inputs `(count, *shape)` of `dtype`: standard normal noise, or uniform integers."""
        shape = self.batched(count)
        if self.values is None:
            return rng.standard_normal(shape, dtype=np.float32)
        return rng.integers(self.values, size=shape, dtype=np.dtype(self.dtype))

    def draw_torch(self, count: int) -> "torch.Tensor":
        """Inputs like those of `draw`, from torch's global generator, on the CPU."""
        import torch

        if self.values is None:
            return torch.randn(self.batched(count))
        return torch.randint(self.values, self.batched(count), dtype=getattr(torch, self.dtype))

    def zeros(self, count: int) -> NDArray[Any]:
        """`count` inputs `(count, *shape)` of `dtype` that are zero everywhere, as an exporter traces them."""
        return np.zeros(self.batched(count), dtype=self.dtype)

    def to_json(self) -> dict[str, Any]:
        """A document for `from_json`."""
        return {**asdict(self), "shape": list(self.shape)}

    @classmethod
    def from_json(cls, document: object) -> Self:
        """Inverse of `to_json`; raises `UserError` naming what is wrong."""
        fields = _fields(document, "an input", {"shape", "dtype", "values"})
        return _checked(lambda: cls(_tuple(fields["shape"]), fields["dtype"], fields["values"]))


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """A network's one output, always float32: how it is read, and how much of it there is."""

    kind: str
    """Kind of output, by which the task reads it, such as `LOGITS`."""
    size: Size
    shape: tuple[int, ...]
    """Shape of the output tensor for one example: without the batch axis."""

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or not self.kind:
            raise ValueError(f"the kind of an output is a name, got {self.kind!r}")
        for name, value in (("size", self.size), ("shape", self.shape)):
            if not _is_shape(value):
                raise ValueError(f"the {name} of an output is a tuple of positive integers, got {value!r}")

    def to_json(self) -> dict[str, Any]:
        """A document for `from_json`."""
        return {"kind": self.kind, "size": list(self.size), "shape": list(self.shape)}

    @classmethod
    def from_json(cls, document: object) -> Self:
        """Inverse of `to_json`; raises `UserError` naming what is wrong."""
        fields = _fields(document, "an output", {"kind", "size", "shape"})
        return _checked(lambda: cls(fields["kind"], _tuple(fields["size"]), _tuple(fields["shape"])))


@dataclass(frozen=True, slots=True)
class Signature:
    """Input and output of a network."""

    input: TensorSpec
    output: OutputSpec

    def to_json(self) -> dict[str, Any]:
        """A document for `from_json`."""
        return {"input": self.input.to_json(), "output": self.output.to_json()}

    @classmethod
    def from_json(cls, document: object) -> Self:
        """Inverse of `to_json`; raises `UserError` naming what is wrong."""
        fields = _fields(document, "a network's input and output", {"input", "output"})
        return cls(TensorSpec.from_json(fields["input"]), OutputSpec.from_json(fields["output"]))


def class_count(size: Size) -> int:
    """The classes of an answer that has nothing but classes; raises `ValueError` for a size of another length."""
    if len(size) != 1:
        raise ValueError(f"an answer of classes has the size (classes,), got {size}")
    return size[0]


def _is_shape(value: object) -> bool:
    return isinstance(value, tuple) and len(value) > 0 and all(type(size) is int and size > 0 for size in value)


def _tuple(value: object) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise ValueError(f"a shape is a list of positive integers, got {value!r}")
    return tuple(value)


def _fields(document: object, subject: str, names: set[str]) -> Mapping[str, Any]:
    if not isinstance(document, Mapping) or document.keys() != names:
        found = ", ".join(sorted(map(str, document))) if isinstance(document, Mapping) else repr(document)
        raise UserError(f"this does not describe {subject}: it needs {', '.join(sorted(names))}, not {found}", _HINT)
    return document


def _checked(make: Callable[[], _Spec]) -> _Spec:
    try:
        return make()
    except (ValueError, TypeError) as error:
        raise UserError(str(error), _HINT) from error
