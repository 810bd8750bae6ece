"""Another limit on a run that has been: every evaluation is used again, and nothing is trained where that answers."""

import json
import os
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import optuna

from nas.controller.config import SearchConfig
from nas.controller.engine import device_of, engine_of
from nas.controller.evaluators import PREDICTOR, trains
from nas.controller.inputs import load_inputs, require_data_of
from nas.controller.planning.budget import Budget, Interrupts
from nas.controller.planning.estimator_choice import read_choice
from nas.controller.planning.plan_record import read_final_plan
from nas.controller.prediction.target_record import write_target
from nas.controller.preparation import prepare_search
from nas.controller.runs.run_folder import RunFolder, check_folder, opened
from nas.controller.runs.storage import StudyStorage, copy_studies, open_storage, replaced_study
from nas.controller.search import Search, SearchResult, finished_result
from nas.controller.trials import SHORT
from nas.controller.values import Finalist
from nas.errors import UserError
from nas.files.writing import write_json
from nas.limits import NAMES as LIMITS
from nas.limits import Limits
from nas.measure.host import keep_to_usable_threads
from nas.progress import Progress, SilentProgress
from nas.tasks.same_data import record_splits

BUDGETS = ("budget_s", "max_trials", "max_cost_usd", "price_per_hour")
ENGINE = ("storage", "ray", "workers")
"""Settings that say where things are; `storage` is where the run's studies are, the answer has its own in its
folder."""
CHANGEABLE = (
    *LIMITS, *BUDGETS, *ENGINE, "objective", "top", "max_drop", "baselines", "command",
    "estimator",
)  # fmt: skip


def search_again(run: Path, changes: Mapping[str, Any], progress: Progress | None = None) -> SearchResult:
    """The run's search with `changes` to its limits (others stay), answered in `run`/limits/<limits>.

    Without a budget among the changes, a finalist of the run that keeps the new limits is the answer, without any
    training; where none does, the run's briefly trained candidates that are predicted to keep them go through a last
    round. With a budget, or where no candidate is left, the search goes on from all that is known.

    Raises `UserError` where `run` is no run or something else than limits and budget is changed, and what `run_search`
    raises.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    progress = progress or SilentProgress()
    old = RunFolder(run)
    config = changed_config(old, changes)
    folder = check_folder(config)
    finished = finished_result(folder)
    if finished is not None:
        require_data_of(config, folder.path, progress)
        progress.note(f"{folder.path} holds this result already")
        return finished
    studies = None if folder.reused.exists() else studies_on_server(old, changes.get("storage"))
    keep_to_usable_threads()
    budget = Budget(config.seconds, price_per_hour=config.price_per_hour)
    goes_on = any(changes.get(name) is not None for name in BUDGETS)
    # What an earlier process with these limits learned beside the run's record must not be learnt again, differently.
    known = folder.target if folder.target.exists() else old.target
    with device_of(config) as device:
        inputs = load_inputs(config, budget, progress, known, device)
        with opened(config, folder):
            record_splits(folder.path, inputs.data)
            write_target(folder.target, inputs.target, inputs.scorer.files)
            take_over(old, folder, studies)
            interrupts = Interrupts()
            with interrupts.handled(), engine_of(config, folder, inputs.data, budget.seconds, progress.note) as engine:
                with budget.stage("prepare"):
                    prepared = prepare_search(inputs, folder, budget, engine)
                search = Search(prepared, folder, budget, progress, interrupts, engine)
                return answer_again(search, run, goes_on=goes_on)


def answer_again(search: Search, run: Path, *, goes_on: bool) -> SearchResult:
    """The answer that the finalists of `run` give to the present limits, or a search that goes on from all that is
    known."""
    known = [] if goes_on else recorded_finalists(search)
    best = search.best(known)
    plan = read_final_plan(search.folder)
    if best and plan is not None:
        note = f"nothing was trained: {len(known)} finalists of {run} were checked again"
        return search.conclude(plan.recipe, search.candidates.evaluated(), known, best, notes=[note])
    if goes_on or not search.candidates.usable(search.candidates.evaluated()):
        search.folder.final_plan.unlink(missing_ok=True)
    return search.run([f"{len(search.candidates.evaluated())} candidates of {run} were used again"])


def changed_config(old: RunFolder, changes: Mapping[str, Any]) -> SearchConfig:
    """The old run's configuration with these changes."""
    if not old.config.exists():
        raise UserError(f"'{old.path}' is no run of this program", "give the folder that `nas search` printed as `run`")
    refused = [name for name in changes if name not in CHANGEABLE]
    if refused:
        raise UserError(
            f"with --run only limits, objective and budget can change, not {', '.join(refused)}",
            "start a new search with another --out instead",
        )
    recorded = json.loads(old.config.read_text())
    if "mode" in recorded:
        raise UserError(f"'{old.path}' is no run of a search among networks of a space", "name such a run's folder")
    if "limits" not in recorded:
        raise UserError(f"'{old.path}' is a run of another version: its limits cannot be read", "start a new search")
    known = {f.name for f in fields(SearchConfig)}
    check_estimator(old, changes.get("estimator"))
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in recorded.items() if k in known}
    limits = Limits.of(**{**recorded["limits"], **{name: changes[name] for name in LIMITS if name in changes}})
    others = {name: value for name, value in changes.items() if name not in LIMITS}
    if old.space.exists():
        values["space_document"] = old.space.read_text()
    config = SearchConfig(**{**values, "baselines": False, **others, "limits": limits, "storage": None})
    goal = config.objective if config.objective != recorded.get("objective", "accuracy") else ""
    label = "-".join(part for part in (goal, config.limits.label) if part) or "none"
    return replace(config, out=old.path / "limits" / label)


def studies_on_server(old: RunFolder, url: str | None) -> StudyStorage | None:
    """The database that holds the run's studies, at `url` or where the run recorded; None for one with its own file.

    Raises `UserError` where it cannot be had.
    """
    if url is None and not old.server.exists():
        return None
    try:
        return open_storage(old.path, url or json.loads(old.server.read_text())["where"])
    except UserError as error:
        if url is not None:
            raise
        raise UserError(
            f"the studies of {old.path} are not at hand: {error}", "give the whole URL with --storage"
        ) from error


def check_estimator(old: RunFolder, wanted: str | None) -> None:
    """Raises `UserError` where `wanted` is an estimator whose values do not go with those of the run."""
    choice = read_choice(old)
    name = choice.name if choice is not None else SHORT
    comparable = {name} if not trains(name) else {SHORT, PREDICTOR}
    if wanted is not None and wanted not in ("auto", *comparable):
        raise UserError(
            f"the candidates of {old.path} were evaluated by {name!r}, which does not go with {wanted!r}",
            "leave out --estimator, or start a new search with another --out",
        )


def take_over(old: RunFolder, new: RunFolder, studies: StudyStorage | None = None) -> None:
    """Copy the studies (from a server where they are on one), and link everything that was trained and deployed; what
    is there already stays."""
    if new.reused.exists():
        return
    if studies is not None:
        copy_studies(studies, new.path)
    elif old.study.exists():
        with (
            replaced_study(new.study) as staged,
            closing(sqlite3.connect(old.study)) as source,
            closing(sqlite3.connect(staged)) as copy,
        ):
            source.backup(copy)
    if old.finalists.exists():
        shutil.copytree(old.finalists, new.finalists, copy_function=_link, dirs_exist_ok=True)
    if old.short_weights.exists():
        shutil.copytree(old.short_weights, new.short_weights, copy_function=_link, dirs_exist_ok=True)
    if old.final_plan.exists():
        shutil.copy2(old.final_plan, new.final_plan)
    if old.plan.exists():
        known = json.loads(old.plan.read_text())
        write_json(new.plan, {**known, "budget_s": -1.0, "deadlines": []})  # times of its own, trainings like the run's
    choice = read_choice(old)
    if choice is not None and not trains(choice.name):  # else it may be another one now, with the same trainings
        shutil.copy2(old.estimator, new.estimator)
        if old.supernet.exists():
            _link(str(old.supernet), str(new.supernet))
    write_json(new.reused, {"run": str(old.path)})


def recorded_finalists(search: Search) -> list[Finalist]:
    """Every finalist the run has trained, checked against the present limits; deployed, where a kill prevented that."""
    plan = read_final_plan(search.folder)
    if plan is None:
        return []
    final = replace(search.final_round(plan), skip_missed=False)
    recorded = [e for e in search.candidates.evaluated() if final.is_recorded(e)]
    with search.progress.stage("checking finalists again", len(recorded)) as bar:
        return [final.finalist(e, bar) for e in recorded]


def _link(source: str, target: str) -> str:
    """A hard link where the file system has them: records are replaced, never changed in place."""
    if not os.path.exists(target):
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)
    return target
