"""A search that begins from published weights: networks are tried on the data, the best is fine-tuned, made to keep the
limit and delivered; where no weights help, networks are searched and trained from nothing."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from nas.baseline.config import BaselineConfig
from nas.baseline.folder import read_step, write_step
from nas.baseline.run import deployments_for, input_for, run_baseline
from nas.baseline.starts import Choice, Start, chosen, most_promising, offered
from nas.controller.config import SearchConfig
from nas.controller.planning.budget import Beforehand, Budget
from nas.controller.search import SearchResult, run_search
from nas.deploy.deploy import deploy
from nas.deployment import Deployment
from nas.errors import UserError
from nas.files.tensors import checksum
from nas.files.writing import write_json
from nas.finetune.run import Job, train_candidate
from nas.finetune.sources import Candidate, prepared_for
from nas.measure.host import keep_to_usable_threads
from nas.networks.description import NETWORK
from nas.networks.find import find_network
from nas.networks.starting import StartingNetwork, network_to_start_from
from nas.progress import Progress, SilentProgress
from nas.tasks import TaskData, task_named, task_of
from nas.tasks.recipes import recipe_named
from nas.text import duration, percent
from nas.training.world import World

TRIAL_EPOCHS, FINAL_EPOCHS = 3, 20
"""Epochs of the trainings that networks are compared by, and of that of the one that is taken."""
TIMED_SHARE, TRIED_SHARE = 0.1, 0.25
"""Shares of the budget for timing all networks and for all trainings that compare them, at most."""
FINAL_SHARE, FINAL_SHARE_TOO_SLOW = 0.6, 0.25
"""Share of the budget for the training of the one that is taken, at most; less where it has to be made faster then."""
ANY_LOSS = 1.0
"""What the limit costs against the fine-tuned network is no reason to refuse: nobody has deployed that."""
STAGE = "weights"


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
        UserError: a named network cannot be used; what `run_baseline` and `run_search` raise.
    """
    progress = progress or SilentProgress()
    keep_to_usable_threads()
    trial = _Trial(config, config.run_dir.with_name(f"{config.run_dir.name}-weights"), progress)
    with trial.budget.stage(STAGE):
        choice = trial.choice(weights)
        progress.note(choice.why)
        trained = None if choice.start is None else trial.fine_tuned(choice.start)
    before = Beforehand(trial.budget.account(), (*choice.notes, *([trained.note] if trained else ())))
    trial.save_account()
    if trained is None:
        return run_search(replace(search, out=config.run_dir), progress, before)
    return run_baseline(replace(config, baseline=str(trained.network), max_loss=ANY_LOSS), progress, beforehand=before)


@dataclass(frozen=True, slots=True, kw_only=True)
class _FineTuned:
    """A network that was trained on the data."""

    network: Path
    """Its `model.network.json`."""
    note: str
    """What was done, for people."""


@dataclass(frozen=True, slots=True, eq=False)
class _Ready:
    """A network of a library that can be trained on the data."""

    start: Start
    network: StartingNetwork
    data: TaskData
    """Normalised as it was trained, without test examples: those are for what is delivered."""


class _Trial:
    """Networks of a library on the data of one run, within its budget."""

    def __init__(self, config: BaselineConfig, folder: Path, progress: Progress) -> None:
        self.config, self.folder, self.progress = config, folder, progress
        self._account = folder / "account.json"
        spent = json.loads(self._account.read_text()) if self._account.exists() else None
        self.budget = Budget(config.seconds, spent=spent)
        self.limit_ms = config.limits.call_limit_ms(1)
        data = task_named(config.task).load(config.data, seed=config.seed, options=config.data_options)
        self.data: TaskData = data.with_splits(train=data.train, val=data.val, test=data.test.some(0))

    def choice(self, weights: Sequence[str]) -> Choice:
        """The network to begin from, as an earlier process chose it or by trying those that are offered."""
        record = self.folder / "starts.json"
        identity = {"weights": list(weights), **self.config.identity(), "data": self.data.name}
        known = read_step(record, identity)
        if known is not None:
            return Choice.from_json(known)
        ready, unusable = self._ready(offered(weights, self.data.task), named=set(weights))
        ready = self._timed(ready, named=set(weights)) if ready else []
        tried = [r.start for r in ready if r.start.reason]
        ready = [r for r in ready if not r.start.reason]
        limit_s = TRIED_SHARE * self.budget.seconds / (len(ready) + 1)
        for number, r in enumerate(ready, 1):
            accuracy, epochs = self._tried(r, str(number), limit_s)
            tried.append(replace(r.start, accuracy=accuracy, epochs=epochs))
        best = most_promising(tried, self.limit_ms)
        scratch = error = None
        if best is not None:
            network = next(r for r in ready if r.start.network == best.network)
            scratch, _ = self._tried(_from_random_weights(network, self.config.seed), "random", limit_s)
            error = task_of(self.data).standard_error(best.accuracy or 0.0, self.data.val)
        found = chosen(best, scratch, error, (*tried, *unusable))
        self.folder.mkdir(parents=True, exist_ok=True)
        write_step(record, identity, found.to_json())
        return found

    def fine_tuned(self, start: Start) -> _FineTuned:
        """The network trained on the data for as long as there is time."""
        (ready,), _ = self._ready([start.network], named={start.network})
        share = FINAL_SHARE if start.keeps(self.limit_ms) else FINAL_SHARE_TOO_SLOW
        folder = self.folder / "final"
        told = self._training(ready, folder, FINAL_EPOCHS, share * self.budget.seconds)
        note = (
            f"{start.network} was given a last layer for these data and fine-tuned from {start.weights} for "
            f"{told['epochs']} epochs ({duration(told['seconds'])}), to {percent(told['accuracy']['after'])} of the "
            "validation examples"
        )
        return _FineTuned(network=folder / NETWORK, note=note)

    def save_account(self) -> None:
        """Record the time so far, so that a killed process has spent what it has spent."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self._account, self.budget.account())

    # -- steps -----------------------------------------------------------------------------------

    def _ready(self, names: Sequence[str], named: set[str]) -> tuple[list[_Ready], list[Start]]:
        """The networks with their weights, and those that cannot be had. Raises `UserError` for a `named` one."""
        ready, unusable = [], []
        for name in names:
            try:
                network = network_to_start_from(
                    find_network(name), self.data, input_for(self.config, self.data), self.config.seed
                )
            except UserError as error:
                if name in named:
                    raise
                unusable.append(Start(network=name, reason=str(error)))
                continue
            start = Start(network=name, weights=network.weights)
            ready.append(_Ready(start, network, prepared_for(network, self.data)))
        return ready, unusable

    def _timed(self, ready: Sequence[_Ready], named: set[str]) -> list[_Ready]:
        """With what each takes in its fastest deployment, or a reason why it is out of the question. Raises what keeps
        a `named` one from being exported."""
        deployments, until_s = deployments_for(self.config), self.budget.elapsed_s + TIMED_SHARE * self.budget.seconds
        found: list[_Ready] = []
        with self.progress.stage("timing published networks", len(ready)) as bar:
            for number, r in enumerate(ready, 1):
                start = replace(r.start, reason="the budget did not reach it")
                if not found or self.budget.elapsed_s <= until_s:
                    try:
                        start = self._fastest(r, deployments, self.folder / str(number) / "timed")
                    except Exception as error:
                        if start.network in named:
                            raise
                        start = replace(start, reason=f"it cannot be exported: {error}")
                found.append(replace(r, start=start))
                bar.advance(1, note=start.network)
        self.save_account()
        return found

    def _fastest(self, ready: _Ready, deployments: Sequence[Deployment], folder: Path) -> Start:
        """The start with its latency in the deployment in which it is fastest."""
        deployed = deploy(
            ready.network.network, ready.network.description, ready.data, deployments,
            folder=folder, max_drop=self.config.max_drop, trained=False, sessions=1,
        )  # fmt: skip
        known = [t for t in deployed.tried if t.measurement is not None and t.measurement.failed is None]
        fastest = min(known, key=lambda t: t.p50_ms, default=None)
        if fastest is None:
            return replace(ready.start, reason="nothing here runs it")
        return replace(ready.start, deployment=fastest.name, latency_ms=fastest.p50_ms).judged(self.limit_ms)

    def _tried(self, ready: _Ready, name: str, limit_s: float) -> tuple[float, int]:
        """Accuracy on the validation examples after a short training, a fraction, and its epochs."""
        told = self._training(ready, self.folder / name / "tried", TRIAL_EPOCHS, limit_s)
        return float(told["accuracy"]["after"]), int(told["epochs"])

    def _training(self, ready: _Ready, folder: Path, epochs: int, limit_s: float) -> dict[str, Any]:
        """Trained in `folder` with the task's usual recipe, or what was trained there before."""
        task = task_of(self.data)
        recipe = recipe_named(task.default_recipe, (), task)
        recipe = recipe.changed(epochs=epochs, seed=self.config.seed, time_limit_s=limit_s)
        label = f"training {ready.start.network} from {ready.network.weights}"
        job = Job(recipe=recipe, label=label, data=ready.data, progress=self.progress)
        start = ready.network
        candidate = Candidate(rank=1, description=start.description, sha256=start.sha256, start=start)
        told = train_candidate(candidate, job, folder, World(0, 1, torch.device("cpu")))
        self.save_account()
        return told


def _from_random_weights(ready: _Ready, seed: int) -> _Ready:
    """The same network as nobody has trained it."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = ready.network.description.build().eval()
    start = replace(
        ready.network, network=network, whole=False, weights="random weights", sha256=checksum(network.state_dict())
    )
    return replace(ready, network=start)
