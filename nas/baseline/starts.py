"""Networks whose published weights a search may begin from: each tried on the data, and which one is taken."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from nas.errors import UserError
from nas.networks.libraries import cached_networks
from nas.text import milliseconds, percent

AUTO = "auto"
"""In place of a network's name: all whose published weights lie in a cache on this machine."""
REACH = 2.5
"""A network may take so many times the limit before it is trained: that much faster can be made of most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A network with trained weights of other data, and what is known of it on these."""

    network: str
    """Reference as it was typed, see `nas.networks.find`."""
    weights: str = ""
    """Name of the weights for people."""
    deployment: str = ""
    """Name of the deployment in which it is fastest."""
    latency_ms: float | None = None
    """Of its median call there; None where it was not measured."""
    epochs: int = 0
    """It was trained for, to be compared."""
    accuracy: float | None = None
    """Of the validation examples then, a fraction; None where it was not trained."""
    reason: str = ""
    """Why it is out of the question; empty where it is not."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Start":
        return cls(**document)

    def keeps(self, limit_ms: float) -> bool:
        """True if it keeps the limit on a call as it is."""
        return self.latency_ms is not None and self.latency_ms <= limit_ms

    def judged(self, limit_ms: float) -> "Start":
        """The same, out of the question where it is too slow to be made fast enough."""
        if self.latency_ms is None or self.latency_ms <= REACH * limit_ms:
            return self
        slow = f"it takes {milliseconds(self.latency_ms)} ms in {self.deployment}, more than {REACH:g} times the limit"
        return replace(self, reason=slow)

    @property
    def told(self) -> str:
        """What is known of it, for people."""
        if self.accuracy is None:
            return f"{self.network}: {self.reason}"
        speed = "" if self.latency_ms is None else f" at {milliseconds(self.latency_ms)} ms in {self.deployment}"
        after = f"{self.epochs} epoch{'s' * (self.epochs != 1)}"
        return f"{self.network} ({self.weights}) {percent(self.accuracy)} after {after}{speed}"


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
        start = document["start"]
        tried = tuple(map(Start.from_json, document["tried"]))
        return cls(start=None if start is None else Start.from_json(start), why=document["why"], tried=tried)


def offered(asked: Sequence[str], task: str) -> list[str]:
    """The networks for `task` to try, each once: `auto` stands for those of `nas.networks.libraries.cached_networks`.

    Raises:
        UserError: a named network is of no library.
    """
    from nas.networks.find import find_network

    found: dict[str, None] = {}
    for text in asked:
        if text == AUTO:
            found.update(dict.fromkeys(cached_networks(task)))
            continue
        if find_network(text, accept=("torchvision", "timm", "python")).published is None:
            raise UserError(f"--weights {text} names no network of a library", "give torchvision:NAME or timm:NAME")
        found[text] = None
    return list(found)


def most_promising(tried: Sequence[Start], limit_ms: float) -> Start | None:
    """The most accurate of those that keep the limit; where none does, of those within `REACH` of it; else None."""
    known = [s for s in tried if s.accuracy is not None and s.latency_ms is not None]
    within = [s for s in known if s.keeps(limit_ms)] or [s for s in known if s.keeps(REACH * limit_ms)]
    return max(within, key=lambda s: (s.accuracy or 0.0, -(s.latency_ms or 0.0)), default=None)


def chosen(
    best: Start | None, scratch: float | None, standard_error: float | None, tried: tuple[Start, ...] = ()
) -> Choice:
    """Whether the most promising network is better than the same one from random weights.

    Args:
        best: None where no network can be used.
        scratch: its accuracy from random weights after as many epochs; None where there is no `best`.
        standard_error: of an accuracy; None where the task cannot tell.
        tried: all, for the record.
    """
    if best is None or best.accuracy is None or scratch is None:
        why = "no network with published weights can be used" if tried else "no published weights are in a cache here"
        return Choice(start=None, why=f"{why}: networks are trained from nothing", tried=tried)
    beside = f"from random weights {best.network} reaches {percent(scratch)} after as many epochs"
    if best.accuracy <= scratch + (standard_error or 0.0):
        why = f"{beside}: its weights do not help, and networks are trained from nothing"
        return Choice(start=None, why=why, tried=tried)
    return Choice(start=best, why=f"{beside}: its weights are taken", tried=tried)
