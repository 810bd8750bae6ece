"""The folder of a derivation: what is learnt and measured lies in files, so that the same command goes on."""

import json
from pathlib import Path
from typing import Any

from nas.controller.runs.run_folder import RunFolder
from nas.files.writing import sha256_of, write_json


class BaselineFolder(RunFolder):
    """Paths of a run that derives networks from a baseline, beside those that every run has."""

    @property
    def baseline_network(self) -> Path:
        """The baseline in every deployment, see `nas.controller.runs.records`."""
        return self.path / "baseline"

    @property
    def adapted(self) -> Path:
        """A library's network that was fine-tuned on the data, see `nas.baseline.adapting`."""
        return self.path / "adapted"

    @property
    def adapting(self) -> Path:
        """How long that may take."""
        return self.path / "adapting.json"

    @property
    def times(self) -> Path:
        """Times of all options, see `nas.baseline.times`."""
        return self.path / "times.json"

    @property
    def library(self) -> Path:
        """What the options have learnt, see `nas.baseline.library`."""
        return self.path / "library.safetensors"

    @property
    def losses(self) -> Path:
        """What each option loses in its place."""
        return self.path / "losses.json"

    @property
    def shortlist(self) -> Path:
        """Networks that were assembled, measured and compared."""
        return self.path / "shortlist.json"


def read_step(path: Path, identity: dict[str, Any]) -> Any | None:
    """What an earlier process wrote of a step with just this identity; None where there is nothing to believe."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    plain = json.loads(json.dumps(identity))
    return document["found"] if isinstance(document, dict) and document.get("of") == plain else None


def write_step(path: Path, identity: dict[str, Any], found: Any) -> None:
    """Write what a step found, for `read_step`."""
    write_json(path, {"of": identity, "found": found})


def checksum(path: Path) -> str | None:
    """Checksum of a file; None where there is none."""
    return sha256_of(path) if path.is_file() else None
