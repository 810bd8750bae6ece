"""The machine that networks are measured on: this one, or a device elsewhere."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, ParamSpec, Protocol, TypeVar

from nas.measure.energy import why_no_energy
from nas.measure.host import HostFingerprint, fingerprint
from nas.measure.measurement import Measurement, MeasureRequest
from nas.measure.protocol import measure
from nas.runtimes.base import Inputs, Outputs

P = ParamSpec("P")
R = TypeVar("R")


class Measure(Protocol):
    """`nas.measure.protocol.measure`, or the same on another machine; the files of the requests lie here."""

    def __call__(
        self,
        requests: Sequence[MeasureRequest],
        *,
        sessions: int = 3,
        seconds_per_model: float = 0.3,
        node_seconds: float = 0.0,
        least_calls: int = 0,
        repeat_s: float = math.inf,
    ) -> list[Measurement]: ...


class Run(Protocol):
    """Calls a function of a module on a machine, which nothing else of ours keeps busy meanwhile."""

    def __call__(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...


class Compute(Protocol):
    """Runs a network on a machine: its file lies here, its runtime there."""

    def __call__(self, request: MeasureRequest, inputs: Inputs, /) -> Outputs:
        """Outputs (n, *shape) for any number of inputs (n, *shape)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A machine that measures."""

    name: str
    """Name for people: `this host`, `device 'edge' of the Ray cluster`."""
    fingerprint: HostFingerprint
    no_energy: str | None
    """Reason why it cannot measure energy; None where it can."""
    measure: Measure
    run: Run
    here: bool = False
    """True if the site is this host: whoever trains on it has to stand still meanwhile."""
    compute: Compute | None = None
    """None on this host, whose runtimes are called without it."""

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "fingerprint": self.fingerprint.to_json()}


def this_host() -> Site:
    return Site(
        name="this host",
        fingerprint=fingerprint(),
        no_energy=why_no_energy(),
        measure=measure,
        run=call_here,
        here=True,
    )


def undisturbed(
    site: Site,
    quiet: Callable[[], AbstractContextManager[None]],
    repeat_s: Callable[[], float] = lambda: math.inf,
    least_calls: int = 0,
) -> Site:
    """The site, measuring only while `quiet` keeps this host free of work, if it is this host.

    `repeat_s`: time that is left now for measuring disturbed sessions again. `least_calls`: of a network's session.
    """

    def measure_quietly(requests: Sequence[MeasureRequest], **options: Any) -> list[Measurement]:
        with quiet() if site.here else nullcontext():
            return site.measure(requests, **{"repeat_s": repeat_s(), "least_calls": least_calls, **options})

    return replace(site, measure=measure_quietly)


def call_here(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """A `Run` of this process."""
    return function(*args, **kwargs)
