"""A task whose pre-processing ends its process at a file that is called so, as a fault in a decoder does."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nas.tasks import task_named
from nas.tasks.artifacts import Prepared, Processor

_KNOWN = task_named("classification")


@dataclass(frozen=True)
class FatalProcessor:
    inner: Processor

    def preprocess(self, example: Any) -> Prepared:
        name = Path(example).name if isinstance(example, str | Path) else ""
        if name.startswith("fatal"):
            os.kill(os.getpid(), signal.SIGKILL)
        if name.startswith("hangs"):
            time.sleep(60)
        return self.inner.preprocess(example)

    def postprocess(self, output: Any, context: Any) -> list[dict[str, Any]]:
        return self.inner.postprocess(output, context)


class FatalArtifacts:
    def __getattr__(self, name: str) -> Any:
        return getattr(_KNOWN.artifacts, name)

    def processor(self, folder: Path) -> FatalProcessor:
        return FatalProcessor(_KNOWN.artifacts.processor(folder))


class FatalTask:
    artifacts = FatalArtifacts()

    def __getattr__(self, name: str) -> Any:
        return getattr(_KNOWN, name)


TASK = FatalTask()
REFERENCE = f"{__name__}:TASK"
