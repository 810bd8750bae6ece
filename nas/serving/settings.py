"""How a bundle is served: processes, threads, batches and limits, as one value that can be stored."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from nas.errors import UserError

MOST_IMAGES = 64
"""Images of one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingSettings:
    """The defaults suit any network; `nas.serving.stored` knows those for a bundle on this host."""

    replicas: int = 1
    """Processes, each with the network, on cores of its own."""
    threads: int = 1
    """Cores of a replica: threads of the runtime, and of decoding."""
    batch: int = 1
    """Most images of one call of the network."""
    wait_ms: float = 0.0
    """How long a call waits for more images. On a CPU a larger batch is hardly worth any waiting."""
    deadline_ms: float = 1000.0
    """A request that could not be answered within that time is refused at once."""
    drain_s: float = 2.0
    """Seconds in which requests are still accepted after the order to end, while `ready` says no."""
    body_bytes: int = 10_000_000
    """Largest body of a request."""
    body_s: float = 5.0
    """Seconds that a client may take to send it."""
    images: int = MOST_IMAGES
    """Most images of one request."""
    requests: int = 256
    """Requests that a replica has in hand at most."""
    hang_s: float = 5.0
    """Seconds after which a replica is replaced that gives no sign of life, or whose network or decoder does not
    return."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name in ("wait_ms", "drain_s") else 1 if field.type is int else 1e-3
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < math.inf:
                raise ValueError(f"{field.name} is a number of at least {least:g}, got {value!r}")
            if field.type is int and not isinstance(value, int):
                raise ValueError(f"{field.name} is a whole number, got {value!r}")

    @property
    def cores(self) -> int:
        """Cores that all replicas together keep for themselves."""
        return self.replicas * self.threads

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Raises TypeError or ValueError for anything that `to_json` has not made; what is left out is the default."""
        return cls(**document)


def replica_cores(settings: ServingSettings, cores: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The numbers of each replica's processors.

    Args:
        settings: of the server.
        cores: processors to be had, see `nas.measure.topology.performance_cores`.

    Raises:
        UserError: there are too few of them.
    """
    if settings.cores > len(cores):
        raise UserError(
            f"{settings.replicas} replicas with {settings.threads} threads need {settings.cores} cores, and this "
            f"machine has {len(cores)} fast ones for us",
            "give fewer --replicas or --threads",
        )
    step = settings.threads
    return [cores[start : start + step] for start in range(0, settings.cores, step)]
