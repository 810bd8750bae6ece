"""A device profile: what was measured on a device, in one portable file that can be read and checked.

The file holds measurements, not a fitted model: the predictor is fitted when the profile is loaded, so a better
predictor needs no new measurements, and nothing in the file has to be trusted beyond its numbers.
"""

import hashlib
import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from nas.deployment import Deployment
from nas.errors import UserError
from nas.export.checkpoint import write_json
from nas.measure.host import HostFingerprint
from search_spaces import Architecture, load_search_space

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class HeldOutError:
    """How well networks that were never used for fitting are predicted, beside two baselines."""

    networks: int
    mape: float
    within_5pct: float
    within_10pct: float
    kendall_tau: float
    constant_within_10pct: float
    """Hit rate of always predicting the median."""
    macs_within_10pct: float
    """Hit rate of a line in log MACs."""


@dataclass(frozen=True, slots=True)
class DeploymentTable:
    """One deployment's latencies of the profile's networks."""

    deployment: Deployment
    latency_ms: tuple[float, ...]
    """Median p50 over fresh sessions per network, in the profile's order; NaN where measuring failed."""
    spread_pct: tuple[float, ...]
    """Spread between the sessions per network, same order."""
    held_out: HeldOutError | None
    seconds: float
    """Wall-clock time this table took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProfile:
    """Latencies measured on one device, with the device's fingerprint."""

    name: str
    description: str
    created: str
    fingerprint: HostFingerprint
    networks: tuple[Architecture, ...]
    num_classes: int
    """Classes of the measured networks' heads."""
    tables: tuple[DeploymentTable, ...]
    sessions: int
    """Fresh sessions behind each figure."""
    disturbed: int = 0
    """Networks whose measurement stayed disturbed; they count, but say so."""

    @property
    def threads(self) -> int:
        return self.tables[0].deployment.threads

    @property
    def noise_floor_pct(self) -> float:
        """Median spread between fresh sessions over all networks and deployments."""
        spreads = sorted(s for table in self.tables for s in table.spread_pct if math.isfinite(s))
        return spreads[len(spreads) // 2] if spreads else math.nan

    def table(self, deployment: Deployment) -> DeploymentTable | None:
        return next((t for t in self.tables if t.deployment == deployment), None)

    def save(self, path: Path) -> None:
        """Write the profile with a checksum over its contents."""
        body: dict[str, Any] = {
            "schema": SCHEMA,
            "name": self.name,
            "description": self.description,
            "created": self.created,
            "fingerprint": self.fingerprint.to_json(),
            "networks": [load_search_space(a.space).to_json(a) for a in self.networks],
            "num_classes": self.num_classes,
            "sessions": self.sessions,
            "disturbed": self.disturbed,
            "tables": [
                {
                    "deployment": asdict(t.deployment),
                    "latency_ms": [_number(v) for v in t.latency_ms],
                    "spread_pct": [_number(v) for v in t.spread_pct],
                    "held_out": None if t.held_out is None else asdict(t.held_out),
                    "seconds": round(t.seconds, 1),
                }
                for t in self.tables
            ],
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {**body, "sha256": _digest(body)})

    @classmethod
    def load(cls, path: Path) -> "DeviceProfile":
        """Read a profile; raises `UserError` for a missing, damaged, altered or newer file."""
        try:
            document = json.loads(path.read_text())
        except FileNotFoundError as error:
            raise UserError(f"there is no profile at {path}", "make one with `nas profile NAME --out FILE`") from error
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise UserError(
                f"{path} is not a profile: {error}", "make one with `nas profile NAME --out FILE`"
            ) from error
        if not isinstance(document, dict) or document.get("schema") != SCHEMA:
            raise UserError(f"{path} is not a profile of schema {SCHEMA}", "profile the device again with this version")
        claimed = document.pop("sha256", None)
        if claimed != _digest(document):
            raise UserError(f"the profile {path} was damaged or altered: its checksum does not match", "profile again")
        spaces = {d["space"]: load_search_space(d["space"]) for d in document["networks"]}
        return cls(
            name=document["name"],
            description=document["description"],
            created=document["created"],
            fingerprint=HostFingerprint.from_json(document["fingerprint"]),
            networks=tuple(spaces[d["space"]].from_json(d) for d in document["networks"]),
            num_classes=document["num_classes"],
            sessions=document["sessions"],
            disturbed=document["disturbed"],
            tables=tuple(_table(t) for t in document["tables"]),
        )

    def with_table(self, table: DeploymentTable) -> "DeviceProfile":
        """This profile with one deployment's table added or replaced."""
        others = tuple(t for t in self.tables if t.deployment != table.deployment)
        return replace(self, tables=(*others, table))


def profiles_folder() -> Path:
    """Where a user's own profiles lie: `$XDG_CACHE_HOME/nas/profiles`, else `~/.cache/nas/profiles`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nas" / "profiles"


def saved_profile(name: str) -> Path:
    return profiles_folder() / f"{name}.json"


def _table(document: dict[str, Any]) -> DeploymentTable:
    def numbers(values: Sequence[float | None]) -> tuple[float, ...]:
        return tuple(math.nan if v is None else float(v) for v in values)

    held_out = document["held_out"]
    return DeploymentTable(
        deployment=Deployment(**document["deployment"]),
        latency_ms=numbers(document["latency_ms"]),
        spread_pct=numbers(document["spread_pct"]),
        held_out=None if held_out is None else HeldOutError(**held_out),
        seconds=document["seconds"],
    )


def _number(value: float) -> float | None:
    return round(value, 5) if math.isfinite(value) else None


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
