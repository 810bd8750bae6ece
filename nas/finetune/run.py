"""`finetune`: train a run's networks with a recipe, and say what that changed."""

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from nas import __version__
from nas.data.images import Preprocess
from nas.data_options import DataSource
from nas.deploy.quantised import FOLDER as QUANTISED
from nas.deploy.quantised import RECORD
from nas.errors import UserError
from nas.files.folders import NO_ROOM, check_writable, locked
from nas.files.records import read_record, write_record
from nas.files.writing import sha256_of, write_json
from nas.networks.description import NETWORK
from nas.networks.trained_on import FINE_TUNING, TRAINED_ON
from nas.progress import Progress, SilentProgress
from nas.tasks import TaskData, TaskSplit, task_of
from nas.tasks.recipes import recipe_named
from nas.training.recipe import Recipe
from nas.training.recipe_files import recipe_label

if TYPE_CHECKING:
    from nas.finetune.sources import Candidate
    from nas.training.distill import Teacher
    from nas.training.world import World

SCHEMA = 1
IDENTITY, RESULT = "finetune.json", FINE_TUNING
SMOKE_BATCHES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Everything that all networks of one call share."""

    recipe: Recipe
    label: str
    data: TaskData
    progress: Progress
    source: DataSource | None = None
    """How the data are found again; None: those of the run that the networks are of."""


def finetune(
    run: str | Path,
    *,
    recipe: str | None = None,
    overrides: Sequence[str] = (),
    top: int = 3,
    data: str | None = None,
    out: Path | None = None,
    resolution: int | None = None,
    smoke: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train the first networks of a run with a recipe; what was trained so before is read.

    Under `torchrun` all processes call this together; the first one writes the files.

    Args:
        run: its folder, or one network: `RUN#k`, a bundle's or a network's folder, `NAME.network.json`, or a library's
            with trained weights, `torchvision:NAME[:FILE]` or `timm:NAME[:FILE]`.
        recipe: a bundled name or a YAML file; None: the task's `default_recipe`.
        overrides: `key.sub=value`.
        top: how many networks, where no single one is named.
        data: another data set than the run's.
        out: the folder; default `finetune/<recipe>` in the run, or in the folder of the network where no run was named.
            Each network gets the sub-folder of its number.
        resolution: rows and columns of the input of a library's network; None: those of the images.
        smoke: only two batches of each stage, in a temporary folder.

    Returns:
        The document that `nas finetune --json` prints; accuracies are fractions.

    Raises:
        UserError: bad input, a full disk, or a folder with another fine-tuning.
    """
    from nas.finetune.sources import chosen_networks, load_data, networks_for
    from nas.measure.host import keep_to_usable_threads
    from nas.training.world import joined_world

    keep_to_usable_threads()
    chosen = chosen_networks(str(run), top)
    images, source = load_data(chosen, data)
    task = task_of(images)
    recipe = recipe or task.default_recipe
    settings = recipe_named(recipe, overrides, task)
    task.check_recipe(settings)  # before anything is written
    networks, images = networks_for(chosen, images, side=resolution, seed=settings.seed)
    label = recipe_label(recipe)
    place = out or chosen.folder / "finetune" / label
    if not smoke:
        check_writable(place)
    if smoke:
        settings, images = _shortened(settings, images)
    with joined_world() as world, TemporaryDirectory(prefix="nas-smoke-") as scratch:
        job = Job(recipe=settings, label=label, data=images, source=source, progress=progress or SilentProgress())
        for note in images.notes if world.is_first else ():
            job.progress.note(note)
        base = Path(world.agree(scratch)) if smoke else place
        results = [train_candidate(network, job, base / str(network.rank), world) for network in networks]
    return {
        "schema": SCHEMA,
        "nas_version": __version__,
        "run": str(chosen.folder),
        "recipe": label,
        "settings": settings.to_json(),
        "smoke": smoke,
        "out": None if smoke else str(place),
        "data": {"name": images.name, "classes": len(images.classes), "examples": task.examples} | _sizes(images),
        "metric": task.metric_of(images),
        "networks": results,
    }


def train_candidate(candidate: "Candidate", job: Job, folder: Path, world: "World") -> dict[str, Any]:
    """Train one network in its folder, or read what was trained there with just the same.

    Raises:
        UserError: the folder holds something else, another process trains in it, or the training cannot go on.
    """
    from nas.finetune.sources import as_trained, other_labels

    own, scratch = job.data.preprocess, job.recipe.start == "scratch"
    job = replace(job, data=as_trained(candidate, job.data, scratch=scratch))
    identity = _identity(candidate, job)
    # Usual entries are left out: older records do not have them.
    if job.data.preprocess != own:
        identity["preprocess"] = _recorded(candidate, job.data)
    others = None if scratch else other_labels(candidate, job.data)
    if others is not None:
        identity["start_classes"] = list(others)
    # Only the first process looks: the others might see what it has just written.
    found = world.agree(_known(folder, identity) if world.is_first else None)
    # Not in the record: the folder may be moved.
    checkpoint = str(folder / NETWORK)
    if found is not None:
        return {**found, "checkpoint": checkpoint, "reused": True}
    if world.is_first:
        _claim(folder, identity)
    try:
        with (
            locked(folder) if world.is_first else nullcontext(),
            job.progress.stage(f"{job.label}: network {candidate.rank}", job.recipe.epochs or None) as bar,
        ):
            document = _trained(candidate, job, folder, world, bar.advance)
        if world.is_first:
            files = [folder / f"{kind}{end}" for kind in ("model", "last") for end in (".network.json", ".safetensors")]
            write_record(folder, RESULT, {"identity": identity, **document}, files)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise UserError(
            f"cannot write into '{folder}': {error.strerror}",
            "make room, then run the same command again: it goes on from the last checkpoint",
        ) from error
    return {**world.agree(document), "checkpoint": checkpoint, "reused": False}


def _trained(
    candidate: "Candidate", job: Job, folder: Path, world: "World", advance: Callable[[float, str | None], None]
) -> dict[str, Any]:
    from nas.finetune.finished import finish
    from nas.finetune.quantisation import train_quantized
    from nas.finetune.sources import parameters, starting_network
    from nas.networks.teachers import load_teacher
    from nas.tasks.examples import examples_of
    from nas.training.folder import kept_setup, train_in
    from nas.training.loop import Training
    from nas.training.setup import choose_setup
    from nas.training.tracing import traced
    from search_spaces.modules import folded

    recipe, data = job.recipe, job.data
    task, device = task_of(data), world.device
    spec = candidate.description.signature.input
    examples = examples_of(data, spec, validate_on=recipe.validate_on)
    scratch = recipe.start == "scratch"
    network, start = starting_network(candidate, data, recipe.seed, scratch=scratch)
    if not recipe.epochs and start != "trained":
        raise UserError(f"a network from {start} needs training", "set epochs to at least 1")
    if recipe.qat.epochs:
        traced(network, finely=True)  # what quantisation-aware training will need, not after hours of the other
    network.to(device)
    teacher: Teacher | None = None
    if recipe.distillation.teacher is not None:
        teacher = load_teacher(recipe.distillation.teacher, data, spec, device)
    objective = task.objective(network, examples, recipe, device=device, teacher=teacher)
    before = None
    if start == "trained" and world.is_first:
        before = objective.validate(folded(network), "fp32").accuracy
    setup = world.agree(
        (kept_setup(folder) or choose_setup(recipe, network, spec, len(examples.train), device))
        if world.is_first
        else None
    )
    assert setup is not None
    training = Training(network, objective, recipe, world=world, setup=setup, teacher=teacher)
    train_in(folder, training, lambda record: advance(1, f"{record.val_accuracy:.1%}"))
    description = candidate.description.resized(data.output_size)
    document: dict[str, Any] = {}
    if world.is_first:
        finished = finish(training, description, data, folder)
        deployed = folded(finished.network).to(device)
        curve = training.curve
        test = None
        if len(data.test):
            test = task.accuracy(deployed, data.for_input("test", spec), data.preprocess, device=str(device))
        document = {
            "rank": candidate.rank,
            "key": candidate.name,
            "input": task.input_label(spec),
            "params": parameters(deployed),
            "start": start,
            "accuracy": {"before": before, "after": finished.accuracy, "test": test, **_kinds(finished.accuracies)},
            "delivered": finished.kind,
            "epochs": len(curve),
            "best_epoch": training.best_epoch,
            "stopped_early": training.lacks_gain and len(curve) < recipe.epochs,
            "seconds": sum(record.seconds for record in curve),
            "images_per_s": _median([record.examples_per_s for record in curve]),
            "data_wait_share": _median([record.data_wait_share for record in curve]),
            "processes": world.size,
            **asdict(setup),
            TRAINED_ON: job.source.to_json() if job.source is not None else None,
            "qat": None,
        }
        network = finished.network
    if recipe.qat.epochs and world.is_first:
        # One process: the stage is short, and its ranges are one process's.
        weights = folder / "model.safetensors"
        document["qat"] = train_quantized(network, description, data, recipe, setup, folder / QUANTISED, weights)
    return document


def _known(folder: Path, identity: dict[str, Any]) -> dict[str, Any] | None:
    found = read_record(folder, RESULT, {"identity": identity})
    if found is None or (found["qat"] is not None and read_record(folder / QUANTISED, RECORD, {}) is None):
        return None
    return {k: v for k, v in found.items() if k not in ("identity", "sha256")}


def _identity(candidate: "Candidate", job: Job) -> dict[str, Any]:
    from nas.networks.teachers import teacher_of

    identity: dict[str, Any] = {
        "network": candidate.description.to_json(),
        "start_sha256": candidate.sha256 if job.recipe.start == "trained" else None,
        "recipe": job.recipe.to_json(),
        "data": {"name": job.data.name, "classes": list(job.data.classes), **_sizes(job.data)},
    }
    teacher = job.recipe.distillation.teacher
    if teacher is not None:
        weights = teacher_of(teacher).weights
        identity["teacher_sha256"] = sha256_of(weights) if weights is not None and weights.is_file() else None
    plain: dict[str, Any] = json.loads(json.dumps(identity))
    return plain


def _recorded(candidate: "Candidate", data: TaskData) -> Any:
    """What the conversion of examples is recognised by."""
    found = data.preprocess
    if isinstance(found, Preprocess):
        return {"mean": list(found.mean), "std": list(found.std)}
    documents = task_of(data).artifacts.documents(found, candidate.description.signature)
    return hashlib.sha256(json.dumps(documents, sort_keys=True).encode()).hexdigest()


def _claim(folder: Path, identity: dict[str, Any]) -> None:
    """Make the folder ready for a training of just this, or find that it is.

    Raises:
        UserError: it holds another one, or cannot be written.
    """
    path = folder / IDENTITY
    try:
        if path.exists():
            differing = _differences(json.loads(path.read_text()), identity)
            if differing:
                raise UserError(
                    f"'{folder}' holds another fine-tuning ({', '.join(differing)} differ)",
                    "give another --out, or remove it",
                )
            return
        folder.mkdir(parents=True, exist_ok=True)
        write_json(path, identity)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot use the folder '{folder}': {error}", "give another --out") from error


def _differences(old: Any, new: Any, path: str = "") -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        keys = dict.fromkeys([*old, *new])
        return [d for k in keys for d in _differences(old.get(k), new.get(k), f"{path}.{k}".lstrip("."))]
    return [] if old == new else [path]


def _shortened(recipe: Recipe, data: TaskData) -> tuple[Recipe, TaskData]:
    """Two batches of each stage."""
    size = recipe.batch_size if recipe.batch_size != "auto" else 32
    count = SMOKE_BATCHES * size * recipe.accumulate_steps

    def some(split: TaskSplit) -> TaskSplit:
        return split.some(count)

    few = data.with_splits(train=some(data.train), val=some(data.val), test=some(data.test))
    return recipe.changed(epochs=min(1, recipe.epochs), qat={"epochs": min(1, recipe.qat.epochs)}), few


def _kinds(accuracies: Any) -> dict[str, float]:
    return {kind: float(accuracies[kind]) for kind in ("last", "best", "average") if kind in accuracies}


def _sizes(data: TaskData) -> dict[str, int]:
    return {"train": len(data.train), "val": len(data.val), "test": len(data.test)}


def _median(values: list[float]) -> float | None:
    return sorted(values)[len(values) // 2] if values else None
