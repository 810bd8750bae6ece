"""Settings that were chosen by measurement, kept for the next start: `serving.json` in the bundle's folder.

Where that folder cannot be written to they are kept in the user's cache. They are true of one bundle on one kind of
host, so the file has an entry for each host, and says which bundle it is about.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nas.files.cache import user_cache
from nas.files.writing import sha256_of, write_json
from nas.measure.host import HostFingerprint, fingerprint
from nas.networks.find import RECEIPT
from nas.serving.settings import ServingSettings
from nas.targets.registry import material_differences

NAME = "serving.json"
SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Settings as they were chosen on a host like this one."""

    slo_ms: float
    """The limit on answers that they were chosen for."""
    settings: ServingSettings


def load_stored(folder: Path, host: HostFingerprint | None = None) -> Stored | None:
    """The settings that were chosen last for the bundle in `folder` on a host like this one; None without any.

    A file that is damaged, of another version or about another bundle counts as none.
    """
    ours = host or fingerprint()
    for entry in reversed(_entries(folder)):
        try:
            if not material_differences(ours, HostFingerprint.from_json(entry["fingerprint"])):
                settings = ServingSettings.from_json(entry["settings"])
                return Stored(slo_ms=float(entry["slo_ms"]), settings=settings)
        except (KeyError, TypeError, ValueError):
            continue
    return None


def store(folder: Path, chosen: Stored, host: HostFingerprint | None = None) -> Path:
    """Keep settings for this host, instead of any earlier ones; the file."""
    ours = host or fingerprint()
    others = [entry for entry in _entries(folder) if not _is_of(entry, ours)]
    entry = {
        "slo_ms": chosen.slo_ms,
        "settings": chosen.settings.to_json(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "fingerprint": ours.to_json(),
    }
    path = _path(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"schema": SCHEMA, "receipt_sha256": sha256_of(folder / RECEIPT), "hosts": [*others, entry]})
    return path


def _path(folder: Path) -> Path:
    """Where settings of the bundle in `folder` are kept."""
    if os.access(folder, os.W_OK):
        return folder / NAME
    return user_cache() / "serving" / f"{sha256_of(folder / RECEIPT)}.json"


def _entries(folder: Path) -> list[Mapping[str, Any]]:
    """Of all hosts, for this very bundle."""
    try:
        document = json.loads(_path(folder).read_text(encoding="utf-8"))
        ours = document["schema"] == SCHEMA and document["receipt_sha256"] == sha256_of(folder / RECEIPT)
        return [dict(entry) for entry in document["hosts"]] if ours else []
    except (OSError, KeyError, TypeError, ValueError):
        return []


def _is_of(entry: Mapping[str, Any], host: HostFingerprint) -> bool:
    try:
        return not material_differences(host, HostFingerprint.from_json(entry["fingerprint"]))
    except (KeyError, TypeError, ValueError):
        return True  # nobody can use it
