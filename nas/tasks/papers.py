"""What each task adds to a bundle. A new task is one new module and one line in `PAPERS`."""

from collections.abc import Mapping
from typing import Any

from nas.tasks.artifacts import PREPROCESS, Figures, Papers, Sheet, read_preprocess
from nas.tasks.classification.artifacts import ClassificationPapers
from nas.tasks.detection.artifacts import DetectionPapers

__all__ = ["PAPERS", "PREPROCESS", "Figures", "Papers", "Sheet", "read_preprocess"]

PAPERS: Mapping[str, Papers[Any]] = {"classification": ClassificationPapers(), "detection": DetectionPapers()}
"""By the names of `nas.tasks.TASKS`."""
