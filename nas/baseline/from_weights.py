"""A search that begins from published weights: networks are tried on the data, the best is fine-tuned and delivered;
where no weights help, networks are searched and trained from nothing."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
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
from nas.controller.runs.run_folder import RunFolder, check_identity, held
from nas.controller.search import SearchResult, run_search
from nas.deploy.deploy import deploy
from nas.deployment import Deployment
from nas.errors import UserError
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
from nas.tasks.recipes import recipe_named
from nas.tasks.same_data import record_splits, require_same_data
from nas.text import duration, percent
from nas.training.folder import DivergedError
from nas.training.world import World

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
    identity = {"mode": MODE, "weights": list(weights), **config.identity()}
    check_identity(folder, identity)
    _require_room(run, begun=folder.config.exists())
    budget = Budget(config.seconds, spent=read_account(folder))
    with budget.stage(STAGE):
        data: TaskData = task_named(config.task).load(config.data, seed=config.seed, options=config.data_options)
        require_same_data(folder.path, data)
        with held(folder, identity):
            record_splits(folder.path, data)
            trial = _Trial(config, folder, budget, _Booked(progress, budget, folder.account), data)
            choice = trial.choice(weights)
            progress.note(choice.why)
            trained = None if choice.start is None else trial.fine_tuned(choice.start)
    write_json(folder.account, budget.account())
    before = Beforehand(budget.account(), (*choice.notes, *([trained.note] if trained else ())))
    if trained is None:
        return run_search(replace(search, out=config.run_dir), progress, before)
    derived = replace(config, baseline=str(trained.network), max_loss=ANY_LOSS)
    return run_baseline(derived, progress, beforehand=before)


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
    """A network that was trained on the data."""

    network: Path
    """Its `model.network.json`."""
    note: str
    """What was done, for people."""


class _Trial:
    """Networks of a library on the data of one run, within its budget. What was found is read, not found again."""

    def __init__(
        self, config: BaselineConfig, folder: RunFolder, budget: Budget, progress: Progress, data: TaskData
    ) -> None:
        self.config, self.folder, self.budget, self.progress = config, folder.path, budget, progress
        # The test examples are for what is delivered.
        self.data: TaskData = data.with_splits(train=data.train, val=data.val, test=data.test.some(0))
        self.limit_ms = config.limits.call_limit_ms(1)

    def choice(self, weights: Sequence[str]) -> Choice:
        """The network to begin from."""
        return Choice.from_json(self._once("choice", lambda: self._choice(weights).to_json()))

    def fine_tuned(self, start: Start) -> _FineTuned:
        """The network trained on the data for as long as there is time."""
        limit_s = self._once("final-seconds", lambda: self._seconds(FINAL_SHARE))
        network, folder = self._network(start.network), self.folder / "final"
        told = self._training(network, self.folder / "final", FINAL_EPOCHS, limit_s)
        head = "" if network.whole else "given a last layer for these data and "
        epochs = f"{told['epochs']} epoch{'s' * (told['epochs'] != 1)}"
        note = (
            f"{start.network} was {head}fine-tuned from {start.weights} for {epochs} ({duration(told['seconds'])}), to "
            f"{percent(told['accuracy']['after'])} of the validation examples"
        )
        return _FineTuned(network=folder / NETWORK, note=note)

    # -- steps -----------------------------------------------------------------------------------

    def _choice(self, weights: Sequence[str]) -> Choice:
        found = self._once("timed", lambda: [s.to_json() for s in self._timed(weights)])
        timed = [Start.from_json(s) for s in found]
        usable = [s for s in timed if not s.reason]
        limit_s = self._once("tried-seconds", lambda: self._seconds(TRIED_SHARE) / (len(usable) + 1))
        tried = [self._tried(s, limit_s) for s in usable]
        everything = (*tried, *(s for s in timed if s.reason))
        best = most_accurate(tried)
        if best is None:
            return chosen(None, None, None, everything)
        random = _from_random_weights(self._network(best.network), self.config.seed)
        scratch = self._accuracy(random, self.folder / "random", limit_s)[0]
        error = task_of(self.data).standard_error(best.accuracy or 0.0, self.data.val)
        return chosen(best, scratch or 0.0, error, everything)

    def _timed(self, weights: Sequence[str]) -> list[Start]:
        """What each network takes in its fastest deployment, or a reason why it is out of the question.

        Raises:
            UserError: a network that was named cannot be had, or not be exported.
        """
        names, deployments = offered(weights, self.data.task), deployments_for(self.config)
        until_s = self.budget.elapsed_s + TIMED_SHARE * self.budget.seconds
        found: list[Start] = []
        with self.progress.stage("timing published networks", len(names)) as bar:
            for name in names:
                start = Start(network=name, reason="the budget did not reach it")
                if not found or self.budget.elapsed_s <= until_s:
                    try:
                        start = self._fastest(name, deployments)
                    except UserError as error:
                        if name in weights:
                            raise
                        start = replace(start, reason=str(error))
                found.append(start)
                bar.advance(1, note=name)
        return found

    def _fastest(self, name: str, deployments: Sequence[Deployment]) -> Start:
        """The network with its latency in the deployment in which it is fastest. Raises `UserError`."""
        network = self._network(name)
        start = Start(network=name, weights=network.weights)
        with TemporaryDirectory(prefix="timed-", dir=self.folder) as folder:
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
            return replace(start, reason="nothing here runs it")
        return start.timed(fastest.name, fastest.p50_ms, self.limit_ms)

    def _tried(self, start: Start, limit_s: float) -> Start:
        """With its accuracy after a short training."""
        folder = self.folder / hashlib.sha256(start.network.encode()).hexdigest()[:16]
        accuracy, epochs = self._accuracy(self._network(start.network), folder, limit_s)
        if accuracy is None:
            return replace(start, reason="its training diverged")
        return replace(start, accuracy=accuracy, epochs=epochs)

    def _accuracy(self, network: StartingNetwork, folder: Path, limit_s: float) -> tuple[float | None, int]:
        """Of the validation examples after a short training, None where that diverged; and its whole epochs."""
        try:
            told = self._training(network, folder, TRIAL_EPOCHS, limit_s)
        except DivergedError:
            return None, 0
        return float(told["accuracy"]["after"]), int(told["epochs"])

    def _training(self, network: StartingNetwork, folder: Path, epochs: int, limit_s: float) -> dict[str, Any]:
        """Trained in `folder` with the task's usual recipe, or what was trained there before."""
        task = task_of(self.data)
        recipe = recipe_named(task.default_recipe, (), task)
        recipe = recipe.changed(epochs=epochs, seed=self.config.seed, time_limit_s=limit_s)
        data = prepared_for(network, self.data)
        job = Job(recipe=recipe, label=f"training from {network.weights}", data=data, progress=self.progress)
        candidate = Candidate(rank=1, description=network.description, sha256=network.sha256, start=network)
        return train_candidate(candidate, job, folder, World(0, 1, torch.device("cpu")))

    def _network(self, name: str) -> StartingNetwork:
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


def _from_random_weights(network: StartingNetwork, seed: int) -> StartingNetwork:
    """The same network as nobody has trained it."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        untrained = network.description.build().eval()
    return replace(
        network, network=untrained, whole=False, weights="random weights", sha256=checksum(untrained.state_dict())
    )
