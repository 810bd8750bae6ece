"""A device profile: what was measured on a device, in one portable file that can be read and checked.

The file holds measurements, not a fitted model: the predictor is fitted when the profile is loaded, so a better
predictor needs no new measurements, and nothing in the file has to be trusted beyond its numbers.
"""

import hashlib
import json
import math
from collections.abc import Container, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nas.deployment import Deployment, common_batch
from nas.errors import UserError
from nas.files.cache import user_cache
from nas.files.writing import write_json, write_whole
from nas.measure.host import HostFingerprint
from search_spaces import Architecture, architecture_of_json, space_of
from search_spaces.signature import Size

SCHEMA = 4
_NUMBERS = ("latency_ms", "reference_ms", "spread_pct", "memory_bytes", "energy_mj")
"""Fields of `NetworkTiming` that are columns of the file."""
_LONGEST_NAME = 200
"""Bytes; file systems allow 255 for a name with its endings."""
ENOUGH_NETWORKS = 60
"""From here on a device's own networks say more than all other devices."""


@dataclass(frozen=True, slots=True)
class HeldOutError:
    """Errors of predictions for networks that were never used for fitting, beside two baselines."""

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
class NetworkTiming:
    """One network in one deployment. What could not be measured is NaN."""

    latency_ms: float
    """Median p50 over fresh sessions."""
    reference_ms: float
    """The reference network's p50 in the same sessions: how fast the device was then."""
    spread_pct: float
    """Spread between the sessions."""
    block_ms: tuple[float, ...] = ()
    """Time of each block slot (see `block_times.slot_times_ms`) as the runtime's own profiler sees it; empty where the
    runtime cannot tell."""
    memory_bytes: float = math.nan
    """Growth of the peak resident memory by loading and running it; on a GPU of the device's memory in use."""
    energy_mj: float = math.nan
    """Energy per call of the processor packages, or of the GPU's board."""


FAILED = NetworkTiming(math.nan, math.nan, math.nan)
"""A network that could not be measured."""


@dataclass(frozen=True, slots=True)
class DeploymentTable:
    """One deployment's timings of the profile's networks."""

    deployment: Deployment
    timings: tuple[NetworkTiming, ...] = ()
    """Timings in the order of the profile's networks."""
    held_out: HeldOutError | None = None
    seconds: float = 0.0
    """Wall-clock time this table took."""

    def column(self, name: str) -> NDArray[np.float64]:
        """One number per network, (n,): `latency_ms`, `reference_ms`, `spread_pct`, `memory_bytes` or `energy_mj`."""
        return np.array([getattr(timing, name) for timing in self.timings], dtype=np.float64)

    @property
    def measured(self) -> int:
        """Number of networks that could be measured."""
        return int(np.isfinite(self.column("latency_ms")).sum())

    @property
    def timed_blocks(self) -> int:
        """Number of block times that the runtime's profiler gave."""
        return sum(math.isfinite(ms) for timing in self.timings for ms in timing.block_ms)

    def extended(self, timings: Sequence[NetworkTiming], seconds: float) -> "DeploymentTable":
        """The table with the next networks' timings; its held-out error is no longer true then."""
        return DeploymentTable(self.deployment, (*self.timings, *timings), None, self.seconds + seconds)

    def steady_latency_ms(self) -> NDArray[np.float64]:
        """Latencies (n,) had the device always been as fast as it usually was; NaN where measuring failed.

        Slow drift (a busy neighbour on a shared host, a hot chip) hits all networks alike, so the reference network
        tells it from what the networks differ in.
        """
        latency, reference = self.column("latency_ms"), self.column("reference_ms")
        known = np.isfinite(reference)
        if not known.any():
            return latency
        return latency * np.where(known, np.median(reference[known]) / np.where(known, reference, 1.0), 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProfile:
    """Latencies measured on one device, with the device's fingerprint."""

    name: str
    description: str
    created: str
    fingerprint: HostFingerprint
    networks: tuple[Architecture, ...]
    output_size: Size
    """Size of the answers of the measured networks, see `search_spaces.signature.OutputSpec`."""
    tables: tuple[DeploymentTable, ...]
    sessions: int
    """Fresh sessions behind each figure."""
    disturbed: int = 0
    """Networks whose measurement stayed disturbed; they count, but say so."""
    energy_not_measured: str | None = None
    """Reason why there is no energy in it, None where there is."""
    spaced: tuple[DeploymentTable, ...] = ()
    """Deployments of `tables` called in other patterns than without a pause; most have timings of a few networks."""

    @property
    def threads(self) -> int:
        """The largest number of threads it knows."""
        return max(t.deployment.threads for t in self.tables)

    @property
    def devices(self) -> tuple[str, ...]:
        """Devices of its deployments, each once, in the order of its tables."""
        return tuple(dict.fromkeys(t.deployment.device for t in self.tables))

    @property
    def batch(self) -> int:
        """Images per call, the same in all its tables."""
        return common_batch(t.deployment for t in self.tables)

    @property
    def noise_floor_pct(self) -> float:
        """Median spread between fresh sessions over all networks and deployments."""
        spreads = np.concatenate([table.column("spread_pct") for table in self.tables])
        return float(np.nanmedian(spreads)) if np.isfinite(spreads).any() else math.nan

    def table(self, deployment: Deployment) -> DeploymentTable | None:
        return next((t for t in (*self.tables, *self.spaced) if t.deployment == deployment), None)

    def save(self, path: Path) -> None:
        """Write the profile with a checksum over its contents."""
        body: dict[str, Any] = {
            "schema": SCHEMA,
            "name": self.name,
            "description": self.description,
            "created": self.created,
            "fingerprint": self.fingerprint.to_json(),
            "networks": [space_of(a).to_json(a) for a in self.networks],
            "output_size": list(self.output_size),
            "sessions": self.sessions,
            "disturbed": self.disturbed,
            "energy_not_measured": self.energy_not_measured,
            "tables": [_table_to_json(t) for t in self.tables],
        }
        if self.spaced:
            body["spaced"] = [_table_to_json(t) for t in self.spaced]
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {**body, "sha256": _digest(body)})

    @classmethod
    def load(cls, path: Path) -> "DeviceProfile":
        """Read a profile; raises `UserError` for a missing, damaged, altered or newer file."""
        try:
            document = json.loads(path.read_text())
        except FileNotFoundError as error:
            raise UserError(f"there is no profile at {path}", "make one with `nas profile NAME --out FILE`") from error
        except OSError as error:
            raise UserError(
                f"cannot read the profile {path}: {error.strerror}", "give the file of a profile"
            ) from error
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UserError(
                f"{path} is not a profile: {error}", "make one with `nas profile NAME --out FILE`"
            ) from error
        if not isinstance(document, dict) or document.get("schema") != SCHEMA:
            raise UserError(f"{path} is not a profile of schema {SCHEMA}", "profile the device again with this version")
        claimed = document.pop("sha256", None)
        if claimed != _digest(document):
            raise UserError(f"the profile {path} was damaged or altered: its checksum does not match", "profile again")
        try:
            return cls._of(document)
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            problem = f"{type(error).__name__}: {error}"
            raise UserError(f"{path} is not a whole profile: {problem}", "profile the device again") from error
        except UserError as error:  # a space of another version, or one whose file is gone
            raise UserError(
                f"the profile {path} holds a network that cannot be read: {error}",
                "profile the device again, or move that file away",
            ) from error

    @classmethod
    def _of(cls, document: dict[str, Any]) -> "DeviceProfile":
        return cls(
            name=document["name"],
            description=document["description"],
            created=document["created"],
            fingerprint=HostFingerprint.from_json(document["fingerprint"]),
            networks=tuple(architecture_of_json(d) for d in document["networks"]),
            output_size=tuple(document["output_size"]),
            sessions=document["sessions"],
            disturbed=document["disturbed"],
            energy_not_measured=document["energy_not_measured"],
            tables=tuple(_table(t) for t in document["tables"]),
            spaced=tuple(_table(t) for t in document.get("spaced", ())),
        )

    def with_held_out(self, deployment: Deployment, error: HeldOutError | None) -> "DeviceProfile":
        """This profile with the error of one deployment's predictions, its tables in the same order."""
        tables = tuple(replace(t, held_out=error) if t.deployment == deployment else t for t in self.tables)
        return replace(self, tables=tables)

    def without_spaces(self, spaces: Container[str]) -> "DeviceProfile":
        """This profile without the networks of some spaces."""
        kept = [i for i, arch in enumerate(self.networks) if arch.space not in spaces]

        def without(tables: Sequence[DeploymentTable]) -> tuple[DeploymentTable, ...]:
            return tuple(replace(t, timings=tuple(t.timings[i] for i in kept), held_out=None) for t in tables)

        networks = tuple(self.networks[i] for i in kept)
        return replace(self, networks=networks, tables=without(self.tables), spaced=without(self.spaced))


def profiles_folder() -> Path:
    """Folder of a user's own profiles."""
    return user_cache() / "profiles"


def saved_profile(name: str) -> Path:
    """Path of a target's profile. Raises `UserError` for what cannot be the name of a file."""
    if not name or "/" in name or len(name.encode()) > _LONGEST_NAME:
        raise UserError(f"{name!r} cannot be the name of a target", "give a short name without '/', such as edge-box")
    return profiles_folder() / f"{name}.json"


def quick_profile(name: str) -> Path:
    """Path of a quick profile that a search keeps and that must not take the place of the saved one."""
    return profiles_folder() / "quick" / f"{name}.json"


def calls_profile(name: str) -> Path:
    """Path of the profile that a search completed by calls with pauses."""
    return profiles_folder() / "calls" / f"{name}.json"


def set_aside(path: Path) -> Path:
    """Keep a profile that is about to be replaced, as `NAME.json.old` beside it; returns where that is."""
    old = path.with_name(path.name + ".old")
    write_whole(old, path.read_bytes())
    return old


def _table_to_json(t: DeploymentTable) -> dict[str, Any]:
    return {
        "deployment": asdict(t.deployment),
        **{name: [_number(v) for v in t.column(name)] for name in _NUMBERS},
        "block_ms": [[_number(v) for v in timing.block_ms] for timing in t.timings],
        "held_out": None if t.held_out is None else asdict(t.held_out),
        "seconds": round(t.seconds, 1),
    }


def _table(document: dict[str, Any]) -> DeploymentTable:
    def number(value: float | None) -> float:
        return math.nan if value is None else float(value)

    columns = [[number(v) for v in document[name]] for name in _NUMBERS]
    timings = tuple(
        NetworkTiming(**dict(zip(_NUMBERS, values, strict=True)), block_ms=tuple(map(number, blocks)))
        for *values, blocks in zip(*columns, document["block_ms"], strict=True)
    )
    held_out = document["held_out"]
    return DeploymentTable(
        deployment=Deployment(**document["deployment"]),
        timings=timings,
        held_out=None if held_out is None else HeldOutError(**held_out),
        seconds=document["seconds"],
    )


def _number(value: float) -> float | None:
    return round(value, 5) if math.isfinite(value) else None


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
