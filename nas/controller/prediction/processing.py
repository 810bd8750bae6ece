"""Pre- and post-processing as a part of the limit: how long it takes on the target."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from nas.controller.config import SearchConfig
from nas.controller.prediction.target_model import TargetModel
from nas.errors import UserError
from nas.measure.pipeline import processing_ms, write_pipeline
from nas.progress import Progress
from nas.tasks import TaskData
from search_spaces import SearchSpace, TensorSpec

CALLS = 12
"""Timed calls for each input that the space's networks may have."""
SAMPLES = 1024
"""Random networks that show which inputs there are."""


def around_networks(
    config: SearchConfig, target: TargetModel, data: TaskData, space: SearchSpace, progress: Progress
) -> TargetModel:
    """The target with a model of the whole way from an example in memory to an answer.

    Only a prediction, like those of networks: what is delivered is measured with everything around it.

    Raises:
        UserError: the target is another machine.
    """
    if target.site is None or not target.site.here:
        raise UserError(
            f"--limit-on pipeline is measured where pre-processing runs, and target {config.target!r} is not this host",
            "search on the device itself, or leave out --limit-on",
        )
    progress.note("timing pre- and post-processing")
    found: dict[TensorSpec, float] = {}
    choices = space.sample(SAMPLES, np.random.default_rng(config.seed))
    inputs, places = space.inputs_of(choices)
    for place, input in enumerate(inputs):
        arch = space.architecture(choices[int(np.argmax(places == place))])
        signature = space.signature(arch, data.output_size)
        with TemporaryDirectory(prefix="nas-pipeline-") as folder:
            write_pipeline(Path(folder), data, signature)
            found[input] = processing_ms(Path(folder), signature, config.interval_ms, CALLS)
    least, most = min(found.values()), max(found.values())
    span = f"{least:.2g} ms" if len(found) == 1 else f"{least:.2g} to {most:.2g} ms"
    note = f"latencies are of the whole way from an example in memory to an answer, {span} of it around the network"
    return replace(target, model=target.model.around(found), notes=(*target.notes, note))
