"""How a network is run on a device: the part of a target that the search chooses together with the network."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Deployment:
    """One way to run a network: runtime, numeric precision, threads and batch size."""

    runtime: str
    """Key in `nas.runtimes.RUNTIMES`: `onnxruntime`, `openvino`, `torch`."""
    precision: str
    """`fp32`, `bf16` or `int8`."""
    threads: int
    """Intra-operator threads (>= 1)."""
    batch: int = 1

    def __post_init__(self) -> None:
        if self.threads < 1 or self.batch < 1:
            raise ValueError(f"threads and batch must be at least 1, got {self.threads} and {self.batch}")

    @property
    def name(self) -> str:
        """Runtime and precision, for tables: `openvino-int8`."""
        return f"{self.runtime}-{self.precision}"


def common_batch(deployments: Iterable[Deployment]) -> int:
    """Images per call of all of `deployments`, 1 without any. Raises `ValueError` where they differ.

    A network is exported once for all of its deployments, with one static shape.
    """
    batches = {d.batch for d in deployments} or {1}
    if len(batches) > 1:
        raise ValueError(f"deployments of one network have one batch, got {sorted(batches)}")
    return batches.pop()
