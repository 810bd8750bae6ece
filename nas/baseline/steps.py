"""What all steps of a derivation share: its files, its budget, the teacher's units and the room it teaches in."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nas.baseline.config import BaselineConfig
from nas.baseline.folder import BaselineFolder, read_step, write_step
from nas.baseline.library import units_without_inplace
from nas.baseline.smaller import SHARES, require_same_units
from nas.baseline.students import Classroom, classroom
from nas.baseline.teacher import TeacherNetwork
from nas.controller.planning.budget import BookedStage, Budget
from nas.data.images import is_image_input, square_input
from nas.deployment import PIPELINE, Placement
from nas.errors import UserError
from nas.files.writing import write_json
from nas.measure.pipeline import write_pipeline
from nas.networks.derive import units_for
from nas.networks.derived import OWN_FORM, Form
from nas.networks.narrowing import NarrowedUnits, narrowed
from nas.networks.units import Unit
from nas.progress import Progress, Stage

AGAIN = 1.3
"""What is delivered takes so many times as long to deploy as the baseline took, at most."""


class Steps:
    """One run after its baseline was found good."""

    def __init__(
        self, config: BaselineConfig, folder: BaselineFolder, budget: Budget, progress: Progress,
        teacher: TeacherNetwork,
    ) -> None:  # fmt: skip
        self.config, self.folder, self.budget, self.progress = config, folder, budget, progress
        self.teacher, self.reference = teacher, teacher.reference
        self.input = self.reference.description.signature.input
        self.references: dict[Placement, float] = {}
        """Milliseconds of the reference network when the baseline was measured: how fast the machine was then."""
        self.notes = list(teacher.notes)
        self._narrowed: dict[float, NarrowedUnits | None] = {}
        self.teacher_epochs: dict[str, float] = {}
        """By the stage of a training, what it cost, see `nas.baseline.price`."""

    @cached_property
    def units(self) -> list[Unit]:
        """Those of the baseline."""
        network = copy.deepcopy(self.reference.network)
        units_without_inplace(network)
        return units_for(network, self.input)

    def narrowed(self, width: float) -> NarrowedUnits | None:
        """The baseline's units with a share of its channels; None, with a note, where it cannot have fewer."""
        if width not in self._narrowed:
            self._narrowed[width] = None
            try:
                self._narrowed[width] = narrowed(self.units, width)
            except UserError as error:
                note = f"networks are as wide as the baseline: {error}"
                self.notes += [note] * (note not in self.notes)
        return self._narrowed[width]

    @cached_property
    def resolutions(self) -> tuple[int, ...]:
        """Rows and columns of smaller images that the baseline's units take as well, the largest first; none, with a
        note, where they take no others, and none where one size alone was asked for."""
        if self.config.resolution is not None or not is_image_input(self.input):
            return ()
        found = []
        network = copy.deepcopy(self.reference.network)
        for resolution in sorted({round(share * self.input.shape[-1]) for share in SHARES}, reverse=True):
            try:
                require_same_units(network, self.units, square_input(self.input, resolution))
            except UserError as error:
                self.notes.append(f"networks take no images of {resolution} px: {error}")
            else:
                found.append(resolution)
        return tuple(found)

    @cached_property
    def room(self) -> Classroom:
        return classroom(self.teacher, self.config.seed)

    @property
    def origin(self) -> dict[str, Any]:
        """Identity of the baseline, on which everything depends that is learnt or measured."""
        return {"sha256": self.reference.sha256, "network": self.reference.description.to_json()}

    def left_s(self) -> float:
        """Seconds for training: what is delivered has to be deployed as well, which the baseline's time tells."""
        deploying_s = self.planned("deploying", lambda: round(AGAIN * self.budget.account().get("baseline", 0.0)))
        return max(0.0, self.budget.seconds - self.budget.elapsed_s - deploying_s)

    def planned(self, name: str, plan: Callable[[], int]) -> int:
        """A number that is decided once: a run that goes on after a kill comes to the same end."""
        known: dict[str, int] = read_step(self.folder.plan, self.origin) or {}
        if name not in known:
            known = {**known, name: plan()}
            write_step(self.folder.plan, self.origin, known)
        return known[name]

    def preparing(self, folder: Path, form: Form = OWN_FORM) -> None:
        """Add to the folder of a network of that form what is needed to time it."""
        if self.config.limit_on == PIPELINE:
            signature = replace(self.reference.description.signature, input=form.input(self.input))
            write_pipeline(folder, self.teacher.data, signature)

    @contextmanager
    def stage(self, name: str, total: float | None = None) -> Iterator[Stage]:
        """Tell the progress of a stage, and book its time."""
        with self.budget.stage(name), self.progress.stage(name.replace("_", " "), total) as bar:
            try:
                yield BookedStage(bar, self.budget, self.folder.account)
            finally:
                write_json(self.folder.account, self.budget.account())

    @contextmanager
    def scratch(self, name: str) -> Iterator[Path]:
        """A folder for files that are needed no longer afterwards."""
        with TemporaryDirectory(prefix=f"nas-{name}-") as place:
            yield Path(place)
