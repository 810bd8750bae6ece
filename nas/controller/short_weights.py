"""Weights of short trainings, kept so that no network is handed over that is worse than it was when it was chosen.

A full training that the clock ends early, on a machine whose cores others take, can reach less than the short one did.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

KEPT = 16
"""Of a study, the best ones: finalists are chosen from far fewer."""
SUFFIX = ".safetensors"


@dataclass(frozen=True, slots=True)
class ShortWeights:
    """One safetensors file for each network, by its file name, in a folder for each study; each whole or not there."""

    folder: Path

    def keep(self, study: str, name: str, weights: bytes) -> None:
        """Write the weights of the network `name`; what there is of it is replaced."""
        path = self.folder / study / (name + SUFFIX)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(path.name + ".partial")
        partial.write_bytes(weights)
        os.replace(partial, path)

    def forget_others(self, study: str, names: Iterable[str]) -> None:
        """Remove what is kept of a study but for the networks `names`."""
        keep = {name + SUFFIX for name in names}
        for path in (self.folder / study).glob("*" + SUFFIX):
            if path.name not in keep:
                with suppress(FileNotFoundError):
                    path.unlink()

    def find(self, name: str) -> Path | None:
        """The weights of a network, of whichever study; None where none are kept."""
        return next((path for path in sorted(self.folder.glob(f"*/{name}{SUFFIX}"))), None)
