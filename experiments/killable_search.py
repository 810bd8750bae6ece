"""The small search that `experiments.kill_test` kills: real proposals, trainings and files, but quick ones.

In a module of its own, because its workers have to import what they are told to do.
"""

import os
from pathlib import Path

import numpy as np
import optuna
from numpy.typing import NDArray

from nas.controller.loop import SearchLoop
from nas.controller.planning.budget import Budget
from nas.controller.prediction.scoring import CandidateScorer
from nas.controller.runs.storage import open_storage
from nas.data import ImageData
from nas.evaluation.short_training import ShortTraining
from nas.executors.base import Evaluation, Failure, Outcome
from nas.executors.local import LocalExecutor
from nas.executors.training import train_briefly
from nas.files.folders import locked
from nas.limits import Limits
from nas.progress import SilentProgress
from nas.samplers import SurrogateSampler, SurrogateSettings
from nas.targets.latency import LatencyModel
from nas.targets.profile import DeviceProfile
from nas.targets.registry import bundled_path
from nas.tasks import TASKS, TaskData
from nas.tasks.classification.data.registry import load_dataset
from nas.training.result import EpochCallback
from search_spaces import Architecture, Choices, load_search_space

STUDY = "search"
LOG = "NAS_KILL_TEST_LOG"
"""Environment variable with the file in which every finished training writes a line."""
IMAGES = 96
LIMIT_MS = 2.0


def logged(task: Evaluation, data: TaskData, callback: EpochCallback | None) -> Outcome | Failure:
    """Train, then note that this network was trained."""
    result = train_briefly(task, data, callback)
    source = task.description.source
    if isinstance(result, Outcome) and isinstance(source, Architecture):
        with open(os.environ[LOG], "a", encoding="utf-8") as log:
            log.write(f"{source.key}\n")
    return result


def few(data: ImageData) -> ImageData:
    """A small part of the data, so that a training takes a second or less."""
    return ImageData(
        name=data.name,
        classes=data.classes,
        train=data.train.some(IMAGES),
        val=data.val.some(IMAGES),
        test=data.test.some(IMAGES),
        native_resolution=data.native_resolution,
        preprocess=data.preprocess,
        flip_ok=data.flip_ok,
    )


def search(folder: Path, trials: int, seed: int, storage: str | None) -> None:
    """Run or continue a search in this process."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    space = load_search_space("mixed").restrict("resolution", [32])
    data = few(load_dataset("digits"))
    profile = DeviceProfile.load(bundled_path("xeon-spr"))
    model = LatencyModel(profile, [profile.tables[0].deployment])  # one: each start fits it
    scorer = CandidateScorer(space, model, Limits.of(latency_ms=LIMIT_MS), data.output_size)
    recipe = ShortTraining(TASKS["classification"].recipe(epochs=1, precision="fp32", seed=seed))
    settings = SurrogateSettings(startup=4, population=128, generations=2)
    # A limit that is quick to check, and networks that are quick to train: the cheapest of the space.
    macs = space.costs(space.sample(256, np.random.default_rng(0)), data.output_size)["macs"]
    limit = float(np.quantile(macs, 0.02))

    def small(choices: Choices) -> NDArray[np.bool_]:
        within: NDArray[np.bool_] = space.costs(choices, data.output_size)["macs"] <= limit
        return within

    sampler = SurrogateSampler(space, small, settings=settings, seed=seed)
    with (
        locked(folder),
        LocalExecutor(data, folder / "work", evaluate=logged) as executor,
        SilentProgress().stage("short trainings") as bar,
    ):
        loop = SearchLoop(
            space=space, data=data, scorer=scorer, short=lambda arch: recipe, proxies=None,
            storage=open_storage(folder, storage), executor=executor,
        )  # fmt: skip
        study = loop.study(STUDY, sampler)
        loop.run(study, Budget(1e9), 1e9, bar, at_most=trials)
