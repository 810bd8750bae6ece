"""A search that begins from published weights: networks are tried on the data, the best is fine-tuned and delivered;
where no weights help, networks are searched and trained from nothing."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from nas.baseline.config import BaselineConfig
from nas.baseline.folder import read_step, write_step
from nas.baseline.run import deployments_for, input_for, run_baseline
from nas.baseline.starts import Choice, Start, chosen, most_accurate, offered
from nas.controller.config import SearchConfig
from nas.controller.planning.budget import Beforehand, BookedStage, Budget
from nas.controller.planning.plan_record import read_account
from nas.controller.runs.run_folder import RunFolder, check_identity, default_settings, held
from nas.controller.search import SearchResult, finished_result, run_search
from nas.controller.undelivered import beats
from nas.deploy.deploy import deploy
from nas.deployment import Deployment
from nas.errors import NotWorthItError, UserError
from nas.files.folders import check_writable
from nas.files.tensors import checksum
from nas.files.writing import write_json
from nas.finetune.run import Job, train_candidate
from nas.finetune.sources import Candidate, prepared_for
from nas.measure.host import keep_to_usable_threads
from nas.networks.description import NETWORK
from nas.networks.find import find_network
from nas.networks.starting import StartingNetwork, network_to_start_from
from nas.progress import Progress, SilentProgress, Stage
from nas.tasks import TaskData, task_named, task_of
from nas.tasks.floor import Floor
from nas.tasks.recipes import recipe_named
from nas.tasks.same_data import record_splits, require_same_data
from nas.text import duration, percent
from nas.training.folder import DivergedError
from nas.training.precision import resolve_device
from nas.training.world import World
from predictors.one_thread import one_thread

TRIAL_EPOCHS, FINAL_EPOCHS = 3, 20
"""Epochs of the trainings that networks are compared by, and of that of the one that is taken."""
TIMED_SHARE, TRIED_SHARE, FINAL_SHARE = 0.1, 0.25, 0.5
"""Shares of the budget for timing the networks, for all trainings that compare them, and for that of the one that is
taken, at most. What is left exports and measures it, and makes it faster where that is needed after all."""
LEFT_SHARE = 0.7
"""Share of what is left of the budget that a training may take, where that is less."""
LEAST_S = 1.0
"""Seconds that a training gets where the budget is spent."""
ANY_LOSS = 1.0
"""What the limit costs against the fine-tuned network is no reason to refuse: nobody has deployed that."""
STAGE, MODE = "weights", "weights"


def run_from_weights(
    weights: Sequence[str], config: BaselineConfig, search: SearchConfig, progress: Progress | None = None
) -> SearchResult:
    """Search under the limit of `config` from the best of `weights`, where one helps; else as `search` says.

    What is tried lies in a folder beside the run's, of its name and `-weights`; the same call goes on with it.

    Args:
        weights: networks of a library with trained weights, or `auto`, see `nas.baseline.starts.offered`.
        config: of a derivation; its `baseline` is replaced by the network that is taken.
        search: of a search on the same data under the same limit and within the same budget.
        progress: is told.

    Raises:
        UserError: a named network cannot be used, or a folder holds something else; what `run_baseline` and
            `run_search` raise.
    """
    progress = progress or SilentProgress()
    keep_to_usable_threads()
    run = config.run_dir.absolute()
    folder = RunFolder(run.with_name(f"{run.name}-weights"))
    identity = {**config.identity(), "mode": MODE, "weights": list(weights)}
    check_identity(folder, identity, default_settings(BaselineConfig))
    begun = folder.config.exists()
    finished = finished_result(RunFolder(run)) if begun else None
    if finished is not None:
        progress.note(f"{config.run_dir} holds this run's result already")
        return finished
    _require_room(run, begun=begun)
    budget = Budget(config.seconds, spent=read_account(folder))
    with budget.stage(STAGE):
        data: TaskData = task_named(config.task).load(config.data, seed=config.seed, options=config.data_options)
        require_same_data(folder.path, data)
        with held(folder, identity):
            record_splits(folder.path, data)
            trial = _Trial(config, folder, budget, _Booked(progress, budget, folder.account), data)
            choice = trial.choice(weights)
            progress.note(choice.why)
            notes, trained = choice.notes, None
            if choice.start is not None:
                trained = trial.fine_tuned(choice.start)
                progress.note(trained.note)
                notes = (*notes, trained.note)
    write_json(folder.account, budget.account())
    before = Beforehand(budget.account(), notes)
    if trained is None or trained.network is None:
        return run_search(replace(search, out=config.run_dir), progress, before)
    derived = replace(config, baseline=str(trained.network), max_loss=ANY_LOSS)
    result = run_baseline(derived, progress, beforehand=before)
    accuracy = float(result.document["best"][0]["accuracy"]["deployed"])
    if beats(accuracy, trial.floors, data):
        return result
    RunFolder(run).result.unlink()  # the same command is to say the same
    raise NotWorthItError(
        f"the network that keeps the limit reaches {percent(accuracy)} of the validation examples: no more than can be "
        "had without a network",
        "ask for a higher --latency-ms, or give a longer --budget, in another --out",
    )


def _require_room(run: Path, *, begun: bool) -> None:
    """Raises `UserError` where the run's folder cannot become that of this search, before anything is trained."""
    if not begun and run.is_dir() and any(run.iterdir()):
        raise UserError(f"{run} is not empty, and holds no search that began from these weights", "give another --out")
    check_writable(run)


class _Booked:
    """Progress whose stages save the account at each step, so that a killed process has spent what it has spent."""

    def __init__(self, progress: Progress, budget: Budget, path: Path) -> None:
        self._progress, self._budget, self._path = progress, budget, path

    @contextmanager
    def stage(self, name: str, total: float | None = None) -> Iterator[Stage]:
        with self._progress.stage(name, total) as bar:
            yield BookedStage(bar, self._budget, self._path)

    def note(self, text: str) -> None:
        self._progress.note(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class _FineTuned:
    """What came of the training on the data."""

    network: Path | None
    """Its `model.network.json`; None where it is of no use."""
    note: str
    """What was done, for people."""


class _Trial:
    """Networks of a library on the data of one run, within its budget. What was found is read, not found again."""

    def __init__(
        self, config: BaselineConfig, folder: RunFolder, budget: Budget, progress: Progress, data: TaskData
    ) -> None:
        self.config, self.folder, self.budget, self.progress = config, folder.path, budget, progress
        self.whole = data
        # The test examples are for what is delivered.
        self.data: TaskData = data.with_splits(train=data.train, val=data.val, test=data.test.some(0))
        self.limit_ms = config.limits.call_limit_ms(1)

    def choice(self, weights: Sequence[str]) -> Choice:
        """The network to begin from."""
        return Choice.from_json(self._once("choice", lambda: self._choice(weights).to_json()))

    def fine_tuned(self, start: Start) -> _FineTuned:
        """The network trained on the data for as long as there is time."""
        folder = self.folder / "final"
        found = self._once("final", lambda: self._final(start, folder))
        if found["accuracy"] is None:
            return _FineTuned(
                network=None, note=f"the fine-tuning of {start.network} diverged: networks are trained from nothing"
            )
        head = "" if found["whole"] else "given a last layer for these data and "
        epochs = f"{found['epochs']} epoch{'s' * (found['epochs'] != 1)}"
        note = (
            f"{start.network} was {head}fine-tuned from {start.weights} for {epochs} "
            f"({duration(found['seconds'])}), to {percent(found['accuracy'])} of the validation examples"
        )
        if not beats(found["accuracy"], self.floors, self.data):
            worth = "that is no more than can be had without a network, and networks are trained from nothing"
            return _FineTuned(network=None, note=f"{note}: {worth}")
        return _FineTuned(network=folder / NETWORK, note=note)

    @cached_property
    def floors(self) -> tuple[Floor, ...]:
        """What can be had without a network."""
        with one_thread():
            return task_of(self.whole).floors(self.whole, self.config.seed)

    # -- steps -----------------------------------------------------------------------------------

    def _final(self, start: Start, folder: Path) -> dict[str, Any]:
        """What the training of the network that was taken came to; no accuracy where it diverged."""
        limit_s = self._once("final-seconds", lambda: self._seconds(FINAL_SHARE))
        network = self._network(start)
        try:
            told = self._training(network, folder, FINAL_EPOCHS, limit_s)
        except DivergedError:
            return {"accuracy": None}
        known = {name: told[name] for name in ("epochs", "seconds")}
        return {**known, "accuracy": told["accuracy"]["after"], "whole": network.whole}

    def _choice(self, weights: Sequence[str]) -> Choice:
        timed = self._timed(weights)
        usable = [s for s in timed if not s.reason]
        limit_s = self._once("tried-seconds", lambda: self._seconds(TRIED_SHARE) / (len(usable) + 1))
        tried = [self._tried(s, limit_s) for s in usable]
        everything = (*tried, *(s for s in timed if s.reason))
        best = most_accurate(tried)
        if best is None:
            return chosen(None, None, None, everything)
        random = _from_random_weights(self._network(best), self.config.seed)
        scratch = self._accuracy(random, self.folder / "random", limit_s)
        error = task_of(self.data).standard_error(best.accuracy or 0.0, self.data.val)
        return chosen(best, scratch or 0.0, error, everything)

    def _timed(self, weights: Sequence[str]) -> list[Start]:
        """What each network takes in its fastest deployment, or a reason why it is out of the question.

        Raises:
            UserError: a network that was named cannot be had, or not be exported.
        """
        names = self._once("networks", lambda: offered(weights, self.data.task))
        until_s = self._once("timed-until", lambda: self.budget.elapsed_s + TIMED_SHARE * self.budget.seconds)
        deployments = deployments_for(self.config)
        found: list[Start] = []
        with self.progress.stage("timing published networks", len(names)) as bar:
            for name in names:
                late = bool(found) and self.budget.elapsed_s > until_s
                seen = self._once(
                    f"timed-{_label(name)}", partial(self._seen, name, name in weights, late, deployments)
                )
                found.append(Start.from_json(seen))
                bar.advance(1, note=name)
        return found

    def _seen(self, name: str, named: bool, late: bool, deployments: Sequence[Deployment]) -> dict[str, Any]:
        """One network, as `_timed`; `late`: there is no time for it."""
        if late:
            return Start(network=name, reason="the budget did not reach it").to_json()
        try:
            return self._fastest(name, deployments).to_json()
        except UserError as error:
            if named:
                raise
            return Start(network=name, reason=str(error)).to_json()

    def _fastest(self, name: str, deployments: Sequence[Deployment]) -> Start:
        """The network with its latency in the deployment in which it is fastest. Raises `UserError`."""
        network = self._loaded(name)
        start = Start(network=name, weights=network.weights, sha256=network.sha256)
        with TemporaryDirectory(prefix="nas-start-") as folder:
            try:
                deployed = deploy(
                    network.network, network.description, prepared_for(network, self.data), deployments,
                    folder=Path(folder), max_drop=self.config.max_drop, trained=False, sessions=1,
                )  # fmt: skip
            except (UserError, OSError, MemoryError):
                raise
            except Exception as error:  # whatever an exporter raises on a network that it does not know
                reason = str(error).strip().partition("\n")[0] or type(error).__name__
                raise UserError(f"{name} cannot be exported: {reason}", "give another network") from error
        known = [t for t in deployed.tried if t.measurement is not None and t.measurement.failed is None]
        fastest = min(known, key=lambda t: t.p50_ms, default=None)
        if fastest is None:
            reasons = [t.measurement.failed if t.measurement is not None else t.reason for t in deployed.tried]
            return replace(start, reason=next(filter(None, reasons), "nothing here runs it"))
        return start.timed(fastest.name, fastest.p50_ms, self.limit_ms)

    def _tried(self, start: Start, limit_s: float) -> Start:
        """With its accuracy after a short training."""
        accuracy = self._accuracy(self._network(start), self.folder / _label(start.network), limit_s)
        return replace(start, accuracy=accuracy, reason="its training diverged" if accuracy is None else "")

    def _accuracy(self, network: StartingNetwork, folder: Path, limit_s: float) -> float | None:
        """Of the validation examples after a short training; None where that diverged."""
        try:
            return float(self._training(network, folder, TRIAL_EPOCHS, limit_s)["accuracy"]["after"])
        except DivergedError:
            return None

    def _training(self, network: StartingNetwork, folder: Path, epochs: int, limit_s: float) -> dict[str, Any]:
        """Trained in `folder` with the task's usual recipe, or what was trained there before."""
        task = task_of(self.data)
        recipe = recipe_named(task.default_recipe, (), task)
        recipe = recipe.changed(epochs=epochs, seed=self.config.seed, time_limit_s=limit_s)
        data = prepared_for(network, self.data)
        job = Job(recipe=recipe, label=f"training from {network.weights}", data=data, progress=self.progress)
        candidate = Candidate(rank=1, description=network.description, sha256=network.sha256, start=network)
        return train_candidate(candidate, job, folder, World(0, 1, resolve_device("auto")))

    def _network(self, start: Start) -> StartingNetwork:
        """The network that was timed. Raises `UserError` where its weights have changed since."""
        network = self._loaded(start.network)
        if network.sha256 != start.sha256:
            raise UserError(
                f"the weights of {start.network} were changed since this search was begun",
                "begin anew in another --out",
            )
        return network

    def _loaded(self, name: str) -> StartingNetwork:
        """The network with its weights and an answer for these data."""
        return network_to_start_from(find_network(name), self.data, input_for(self.config, self.data), self.config.seed)

    def _seconds(self, share: float) -> float:
        """A share of the budget, where so much is left beside what has to follow."""
        return max(LEAST_S, min(share * self.budget.seconds, LEFT_SHARE * self.budget.left_s))

    def _once(self, name: str, find: Callable[[], Any]) -> Any:
        """What an earlier process found under this name; else what `find` finds, for later ones."""
        path = self.folder / f"{name}.json"
        known = read_step(path, {})
        if known is None:
            known = find()
            write_step(path, {}, known)
        return json.loads(json.dumps(known))


def _label(name: str) -> str:
    """Name of the files about a network."""
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def _from_random_weights(network: StartingNetwork, seed: int) -> StartingNetwork:
    """The same network as nobody has trained it."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        untrained = network.description.build().eval()
    return replace(
        network, network=untrained, whole=False, weights="random weights", sha256=checksum(untrained.state_dict())
    )
