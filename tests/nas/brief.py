"""Searches whose trainings have few epochs, and whose measurements few calls.

In a test's own process by the fixtures `brief` and `impatient`; in another one, `python -m tests.nas.brief search` is
`nas search` with both.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest

from nas.controller.prediction import probes, target_model
from nas.deploy.deploy import deploy
from nas.evaluation.estimators import ZeroCostEstimator
from nas.measure import protocol
from nas.samplers import surrogate
from nas.samplers.surrogate import SurrogateSettings
from nas.targets import calling, completing, profiling
from nas.targets.preparing import networks_to_measure
from nas.tasks import TrainingShape
from nas.tasks.classification.task import Classification
from nas.tasks.detection.task import Detection
from search_spaces import Architecture, SearchSpace

EPOCHS = TrainingShape(short_epochs=(1, 1), min_short_images=512, final_epochs=(2, 2))


def shorten(patch: pytest.MonkeyPatch, shape: TrainingShape = EPOCHS, *, sessions: int = 1) -> None:
    """Candidates and finalists of both tasks are trained as `shape` says, and what is deployed is measured in so many
    fresh sessions, as long as the patch lasts."""
    patch.setitem(deploy.__kwdefaults__, "sessions", sessions)
    patch.setattr(Classification, "shape", shape)
    patch.setattr(Detection, "shape", shape)
    # What is learnt in so few epochs is worth less than a linear model.
    patch.setattr(Classification, "floors", lambda task, data, seed: ())
    # A zero-cost score takes as long as such a training; of two networks one is chosen as well as of eight.
    patch.setattr(surrogate, "SurrogateSettings", partial(SurrogateSettings, startup_pool=2, shortlist=2))
    patch.setitem(ZeroCostEstimator.__init__.__kwdefaults__, "reference", 3)


def shallow_networks(spaces: Sequence[SearchSpace], *arguments: Any, **more: Any) -> list[Architecture]:
    """In place of `nas.targets.preparing.networks_to_measure`: every part of a network has its fewest blocks, of which
    the time to export it depends."""
    return networks_to_measure([shallow(space) for space in spaces], *arguments, **more)


def shallow(space: SearchSpace) -> SearchSpace:
    """The networks of a space that have the fewest blocks."""
    for decision in space.decisions:
        if decision.name.endswith(".depth"):
            space = space.restrict(decision.name, decision.options[:1])
    return space


def hurry(patch: pytest.MonkeyPatch) -> None:
    """Few and small networks are measured, with few calls and never again: enough where any latency will do.

    They are prepared in this process, since each worker that does it imports torch for seconds first.
    """
    patch.setattr(protocol, "REPEATS", 0)
    patch.setitem(deploy.__kwdefaults__, "sessions", 1)
    patch.setitem(protocol.measure.__kwdefaults__, "seconds_per_model", 0.03)
    patch.setitem(calling.with_calls.__kwdefaults__, "networks", calling.LEAST)
    for module in (calling, completing, profiling, target_model):
        patch.setattr(module, "preparer", nullcontext)
    patch.setattr(profiling, "networks_to_measure", shallow_networks)
    patch.setattr(probes, "PROBES", probes.FEW_PROBES)
    patch.setattr(profiling, "SECONDS_PER_MODEL", 0.03)
    patch.setattr(profiling, "NODE_SECONDS", 0.03)
    patch.setattr(target_model, "SPEED_SESSIONS", 1)


if __name__ == "__main__":
    from nas.cli.main import main

    with pytest.MonkeyPatch.context() as context:
        shorten(context)
        hurry(context)
        main()
