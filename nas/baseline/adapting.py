"""What was brought, made to answer for the data: a library's network for other classes is fine-tuned first."""

from dataclasses import dataclass

from nas.baseline.config import BaselineConfig
from nas.baseline.folder import BaselineFolder, read_step, write_step
from nas.data.images import Preprocess
from nas.files.writing import sha256_of
from nas.finetune.run import Job, train_candidate
from nas.finetune.sources import Candidate, prepared_for
from nas.networks.description import NETWORK, load_network, weights_path
from nas.networks.find import TRAINED_KINDS, find_network
from nas.networks.reference import FORMS, Reference, load_reference
from nas.networks.starting import StartingNetwork, network_to_start_from
from nas.progress import Progress
from nas.tasks import TaskData, task_of
from nas.tasks.recipes import recipe_named
from nas.text import duration, percent
from nas.training.precision import resolve_device
from nas.training.world import World
from search_spaces import TensorSpec

SHARE, EPOCHS = 0.25, 20
"""Share of the budget, and epochs, that fine-tuning takes at most."""


def brought(config: BaselineConfig, data: TaskData, input: TensorSpec) -> Reference | StartingNetwork:
    """The network that `config` names: trained on the classes of `data`, or a library's that has still to be.

    Raises:
        UserError: there is none, or it is of no use here, see `nas.networks.reference.load_reference`.
    """
    found = find_network(config.baseline, accept=TRAINED_KINDS, forms=FORMS)
    if found.published is not None:
        start = network_to_start_from(found, data, input, config.seed)
        if not start.whole:
            return start
    return load_reference(config.baseline, data, input)


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapted:
    """A network that was fine-tuned on the data."""

    reference: Reference
    note: str
    """What was done, for people."""


def adapted(
    start: StartingNetwork, config: BaselineConfig, folder: BaselineFolder, data: TaskData, progress: Progress
) -> Adapted:
    """The network after it was fine-tuned on `data` with the task's fast recipe, in `folder.adapted`.

    What was trained there before is read or continued.

    Raises:
        UserError: the disk is full, or the folder was changed.
    """
    task, data = task_of(data), prepared_for(start, data)
    identity = {"sha256": start.sha256, "network": start.description.to_json()}
    limit_s = read_step(folder.adapting, identity)
    if not isinstance(limit_s, float):
        limit_s = SHARE * config.seconds
        write_step(folder.adapting, identity, limit_s)
    recipe = recipe_named(task.default_recipe, (), task)
    recipe = recipe.changed(epochs=EPOCHS, seed=config.seed, time_limit_s=limit_s)
    job = Job(recipe=recipe, label="fine-tuning the baseline", data=data, progress=progress)
    candidate = Candidate(rank=1, description=start.description, sha256=start.sha256, start=start)
    told = train_candidate(candidate, job, folder.adapted, World(0, 1, resolve_device("auto")))
    path = folder.adapted / NETWORK
    reference = Reference(
        text=config.baseline,
        description=start.description,
        network=load_network(path, fold=False),
        sha256=sha256_of(weights_path(path)),
        preprocess=data.preprocess if isinstance(data.preprocess, Preprocess) else None,
        weights=f"{start.weights}, fine-tuned on these data",
    )
    note = (
        f"{start.weights} know other classes: the baseline was given a new last layer and fine-tuned on these data for "
        f"{told['epochs']} epochs ({duration(told['seconds'])}), to {percent(told['accuracy']['after'])} of the "
        "validation examples"
    )
    return Adapted(reference=reference, note=note)
