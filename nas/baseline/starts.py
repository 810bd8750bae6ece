"""Networks whose published weights a search may begin from: what is known of each, and which one is taken."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from nas.networks.find import find_network
from nas.networks.libraries import cached_networks
from nas.text import milliseconds, percent

AUTO = "auto"
"""In place of a network's name: all whose published weights lie in a cache on this machine."""
MARGIN = 0.05
"""Share of the limit that a network has to leave free when it is timed in a single session."""
FORMS = "give auto, torchvision:NAME, timm:NAME, or either with a file: torchvision:NAME:FILE.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A network with trained weights of other data, and what is known of it on these."""

    network: str
    """Reference as it was typed, see `nas.networks.find`."""
    weights: str = ""
    """Name of the weights for people."""
    sha256: str = ""
    """Of all tensors that it was trained to."""
    deployment: str = ""
    """Name of the deployment in which it is fastest."""
    latency_ms: float | None = None
    """Of its median call there; None where it was not measured."""
    accuracy: float | None = None
    """Of the validation examples after a short training, a fraction; None where it was not trained."""
    reason: str = ""
    """Why it is out of the question; empty where it is not."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Start":
        return cls(**document)

    def timed(self, deployment: str, latency_ms: float, limit_ms: float) -> "Start":
        """With its latency; out of the question where that is no clear distance below the limit."""
        found = replace(self, deployment=deployment, latency_ms=latency_ms)
        if latency_ms <= (1 - MARGIN) * limit_ms:
            return found
        slow = f"{milliseconds(latency_ms)} ms in {deployment} are too slow; --baseline makes a network faster"
        return replace(found, reason=slow)

    @property
    def told(self) -> str:
        """What is known of it, for people."""
        if self.accuracy is None or self.reason:
            return f"{self.network}: {self.reason}"
        speed = "" if self.latency_ms is None else f" at {milliseconds(self.latency_ms)} ms in {self.deployment}"
        return f"{self.network} ({self.weights}) {percent(self.accuracy)} after a short training{speed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The network that a search begins from, and why."""

    start: Start | None
    """None: from nothing."""
    why: str
    """For people."""
    tried: tuple[Start, ...] = ()
    """All that were offered."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks for the result."""
        return (*(f"published weights: {s.told}" for s in self.tried), self.why)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Choice":
        start, tried = document["start"], tuple(map(Start.from_json, document["tried"]))
        return cls(start=None if start is None else Start.from_json(start), why=document["why"], tried=tried)


def offered(asked: Sequence[str], task: str) -> list[str]:
    """The networks for `task` to try, each once: `auto` stands for those of `nas.networks.libraries.cached_networks`.

    Raises:
        UserError: a name is of no library's network.
    """
    found: dict[str, None] = {}
    for text in asked:
        if text == AUTO:
            found.update(dict.fromkeys(cached_networks(task)))
        else:
            find_network(text, accept=("torchvision", "timm", "python"), forms=FORMS)
            found[text] = None
    return list(found)


def most_accurate(tried: Sequence[Start]) -> Start | None:
    """The best one that keeps the limit, of equal ones the faster; None where there is none."""
    usable = [s for s in tried if s.accuracy is not None and not s.reason]
    return max(usable, key=lambda s: (s.accuracy or 0.0, -(s.latency_ms or 0.0)), default=None)


def chosen(
    best: Start | None, scratch: float | None, standard_error: float | None, tried: tuple[Start, ...] = ()
) -> Choice:
    """Whether the best network is better than the same one from random weights.

    Args:
        best: None where no network can be used.
        scratch: its accuracy from random weights after as long a training; None where there is no `best`.
        standard_error: of an accuracy; None where the task cannot tell.
        tried: all, for the record.
    """
    if best is None or best.accuracy is None or scratch is None:
        why = (
            "no network with published weights can be used" if tried else "no published weights for this task are here"
        )
        return Choice(start=None, why=f"{why}: networks are trained from nothing", tried=tried)
    beside = f"from random weights {best.network} reaches {percent(scratch)} in as short a training"
    if best.accuracy <= scratch + (standard_error or 0.0):
        why = f"{beside}: its weights do not help, and networks are trained from nothing"
        return Choice(start=None, why=why, tried=tried)
    return Choice(start=best, why=f"{beside}: its weights are taken", tried=tried)
