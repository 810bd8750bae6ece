"""Weights of short trainings, kept so that no network is handed over that is worse than it was when it was chosen.

A full training that the clock ends early, on a machine whose cores others take, can reach less than the short one did.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from nas.files.writing import write_whole

KEPT = 16
"""Number of a study's candidates whose weights are kept, the best ones: finalists are chosen from far fewer."""
SUFFIX = ".safetensors"


@dataclass(frozen=True, slots=True)
class ShortWeights:
    """One safetensors file for each network, by its file name, in a folder for each study; each whole or not there."""

    folder: Path

    def keep(self, study: str, name: str, weights: bytes) -> None:
        """Write the weights of the network `name`; what there is of it is replaced."""
        path = self.folder / study / (name + SUFFIX)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, weights)

    def forget_others(self, study: str, names: Iterable[str]) -> None:
        """Remove what is kept of a study but for the networks `names`."""
        keep = {name + SUFFIX for name in names}
        for path in (self.folder / study).glob("*" + SUFFIX):
            if path.name not in keep:
                path.unlink(missing_ok=True)

    def find(self, name: str) -> Path | None:
        """The weights of a network, of whichever study; None where none are kept."""
        return next((path for path in sorted(self.folder.glob(f"*/{name}{SUFFIX}"))), None)
