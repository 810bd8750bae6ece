"""Another limit on a run that has been: every evaluation is used again, and nothing is trained where that answers."""

import json
import os
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import optuna

from nas.controller.config import SearchConfig
from nas.controller.engine import device_of, engine_of
from nas.controller.evaluators import PREDICTOR, trains
from nas.controller.finalists import FinalRound
from nas.controller.inputs import load_inputs, require_data_of
from nas.controller.planning.budget import Budget, Interrupts
from nas.controller.planning.estimator_choice import read_choice
from nas.controller.planning.plan import FinalPlan
from nas.controller.planning.plan_record import read_account, read_final_plan
from nas.controller.prediction.target_record import write_target
from nas.controller.preparation import prepare_search
from nas.controller.runs.question import Question, read_question, state_of, write_question
from nas.controller.runs.run_folder import RunFolder, check_folder, default_settings, opened
from nas.controller.runs.storage import StudyStorage, add_trials, copy_studies, open_storage, replaced_study
from nas.controller.search import Search, SearchResult, finished_result
from nas.controller.trials import SHORT
from nas.controller.values import Evaluated, Finalist
from nas.errors import UserError
from nas.files.writing import write_json
from nas.limits import NAMES as LIMITS
from nas.limits import Limits
from nas.measure.host import keep_to_usable_threads
from nas.progress import Progress, SilentProgress
from nas.tasks.same_data import SPLITS_FILE, record_splits

BUDGETS = ("budget_s", "max_trials", "max_cost_usd", "price_per_hour")
ENGINE = ("storage", "ray", "workers")
"""Settings that say where things are; `storage` is where the run's studies are, the answer has its own in its
folder."""
DEFAULTS = default_settings(SearchConfig)
CHANGEABLE = (
    *LIMITS, *BUDGETS, *ENGINE, "objective", "top", "max_drop", "baselines", "command",
    "estimator",
)  # fmt: skip


def search_again(run: Path, changes: Mapping[str, Any], progress: Progress | None = None) -> SearchResult:
    """The run's search with `changes` to its limits (others stay), answered in `run`/limits/<what changed>.

    Without a budget among the changes, a finalist of the run that keeps the new limits is the answer, without any
    training; where none does, the run's briefly trained candidates that are predicted to keep them go through a last
    round. With a budget, or where no candidate is left, the search goes on from all that is known.

    A finished answer is only read, unless the run has learnt more since or another budget is asked for.

    Raises `UserError` where `run` is no run or something else than limits and budget is changed, and what `run_search`
    raises.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    progress = progress or SilentProgress()
    old = RunFolder(run)
    config = changed_config(old, changes)
    folder = check_folder(config, "remove that folder, which only holds an earlier answer of the run")
    budgets = {name: changes[name] for name in BUDGETS if changes.get(name) is not None}
    question, earlier = Question(budgets, state_of(old)), read_question(folder)
    finished = finished_result(folder)
    if finished is not None and question.answered_by(earlier):
        require_data_of(config, folder.path, progress)
        progress.note(f"{folder.path} holds this result already")
        return finished
    new = earlier is None or earlier.known != question.known
    studies = studies_on_server(old, changes.get("storage")) if new else None
    keep_to_usable_threads()
    spent = read_account(folder) if finished is None else {}  # a finished answer has had a budget of its own
    budget = Budget(config.seconds, spent=spent, price_per_hour=config.price_per_hour)
    with device_of(config) as device:
        inputs = load_inputs(config, budget, progress, target_record(old, folder), device)
        with opened(config, folder):
            record_splits(folder.path, inputs.data)
            write_target(folder.target, inputs.target, inputs.scorer.files)
            take_over(old, folder, studies, question)
            interrupts = Interrupts()
            with interrupts.handled(), engine_of(config, folder, inputs.data, budget.seconds, progress.note) as engine:
                with budget.stage("prepare"):
                    prepared = prepare_search(inputs, folder, budget, engine)
                search = Search(prepared, folder, budget, progress, interrupts, engine)
                return answer_again(search, old, goes_on=bool(question.budget))


def answer_again(search: Search, old: RunFolder, *, goes_on: bool) -> SearchResult:
    """The answer that the finalists of the `old` run give to the present limits, or a search that goes on from all that
    is known."""
    known = [] if goes_on else recorded_finalists(search, old)
    best = search.best([finalist for finalist, _ in known])
    if best:
        recipe = next(plan.recipe for finalist, plan in known if finalist.evaluated.arch == best[0].evaluated.arch)
        note = f"nothing was trained: {len(known)} finalists of {old.path} were checked again"
        finalists = [finalist for finalist, _ in known]
        return search.conclude(recipe, search.candidates.evaluated(), finalists, best, notes=[note])
    if not search.candidates.usable(search.candidates.evaluated()):
        search.folder.final_plan.unlink(missing_ok=True)
    return search.run([f"{len(search.candidates.evaluated())} candidates of {old.path} were used again"])


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
    return replace(config, out=old.path / "limits" / answer_label(config, recorded))


def answer_label(config: SearchConfig, recorded: Mapping[str, Any]) -> str:
    """Name of an answer's folder, by its limits and all else that is not as the run `recorded` it: every question has
    a folder of its own."""

    def changed(name: str) -> bool:
        return bool(getattr(config, name) != recorded.get(name, DEFAULTS[name]))

    parts = (
        config.objective if changed("objective") else "",
        config.limits.label,
        f"top{config.winners}" if changed("top") else "",
        f"drop{100 * config.max_drop:g}" if changed("max_drop") else "",
        config.estimator if changed("estimator") else "",
        "baselines" if config.baselines else "",  # an answer has none unless it is asked to
    )
    return "-".join(part for part in parts if part) or "none"


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


def estimator_of(folder: RunFolder) -> str:
    """The estimator of the folder's candidates; where none was chosen yet, one that trains."""
    choice = read_choice(folder)
    return SHORT if choice is None else choice.name


def comparable(estimator: str) -> set[str]:
    """The estimators whose values go with those of this one."""
    return {SHORT, PREDICTOR} if trains(estimator) else {estimator}


def check_estimator(old: RunFolder, wanted: str | None) -> None:
    """Raises `UserError` where `wanted` is an estimator whose values do not go with those of the run."""
    name = estimator_of(old)
    if wanted is not None and wanted not in ("auto", *comparable(name)):
        raise UserError(
            f"the candidates of {old.path} were evaluated by {name!r}, which does not go with {wanted!r}",
            "leave out --estimator, or start a new search with another --out",
        )


def target_record(old: RunFolder, new: RunFolder) -> Path:
    """Where to read what is known of the target: an answer that was begun goes on with its own record, which may hold
    measurements for its limit; the run's record else.

    Beside it lie the splits that the data must still have: one without them would let changed data pass.
    """
    own = new.target.exists() and (new.path / SPLITS_FILE).exists()
    return new.target if own else old.target


def take_over(
    old: RunFolder, new: RunFolder, studies: StudyStorage | None = None, question: Question | None = None
) -> None:
    """Bring what the run knows into an answer's folder for a question: the studies (from a server where they are on
    one), and links to everything that was trained and deployed; what is there already stays.

    An answer that was begun for this question stays as it is, and so does what it knows where another estimator than
    the run's gave its values. The record of the question comes last: where a process is
    killed before, the next one does all of it again.
    """
    question = question or Question()
    earlier, finished = read_question(new), finished_result(new) is not None
    if earlier == question:
        return
    fits = estimator_of(new) in comparable(estimator_of(old))
    if earlier is None or (fits and earlier.known != question.known):
        _take_studies(old, new, studies, begun=earlier is not None)
        for source, target in ((old.finalists, new.finalists), (old.short_weights, new.short_weights)):
            if source.exists():
                shutil.copytree(source, target, copy_function=_link, dirs_exist_ok=True)
    if earlier is None:
        _take_decisions(old, new)
    if not question.budget:
        if old.final_plan.exists() and not new.final_plan.exists():
            shutil.copy2(old.final_plan, new.final_plan)
    elif finished or earlier is None or earlier.budget != question.budget:  # else its last round goes on
        new.final_plan.unlink(missing_ok=True)
    if finished:
        new.account.unlink(missing_ok=True)
        new.result.unlink()
    write_question(new, question, old)


def _take_studies(old: RunFolder, new: RunFolder, studies: StudyStorage | None, *, begun: bool) -> None:
    """Copy the run's studies; to those of an answer that was `begun` only what the run has evaluated since is added."""
    with TemporaryDirectory() as aside:
        copied = Path(aside) if begun and new.study.exists() else new.path
        if studies is not None:
            copy_studies(studies, copied)
        elif old.study.exists():
            with (
                replaced_study(RunFolder(copied).study) as staged,
                closing(sqlite3.connect(old.study)) as source,
                closing(sqlite3.connect(staged)) as copy,
            ):
                source.backup(copy)
        if copied != new.path and RunFolder(copied).study.exists():
            add_trials(RunFolder(copied).study, new.study)


def _take_decisions(old: RunFolder, new: RunFolder) -> None:
    """Copy the decisions that hold for any limits, and what was made by them."""
    if old.plan.exists():
        known = json.loads(old.plan.read_text())
        write_json(new.plan, {**known, "budget_s": -1.0, "deadlines": []})  # times of its own, trainings like the run's
    choice = read_choice(old)
    if choice is not None and not trains(choice.name):  # else it may be another one now, with the same trainings
        shutil.copy2(old.estimator, new.estimator)
        if old.supernet.exists():
            _link(str(old.supernet), str(new.supernet))


def recorded_finalists(search: Search, old: RunFolder) -> list[tuple[Finalist, FinalPlan]]:
    """Every finalist that the answer or the run has trained, checked against the present limits, with the plan of its
    round; deployed, where a kill prevented that."""
    found = dict[str, tuple[FinalRound, Evaluated, FinalPlan]]()
    for plan in (read_final_plan(search.folder), read_final_plan(old)):
        if plan is not None:
            final = replace(search.final_round(plan), skip_missed=False)
            recorded = [e for e in search.candidates.evaluated() if final.is_recorded(e)]
            found = {e.arch.key: (final, e, plan) for e in recorded} | found
    with search.progress.stage("checking finalists again", len(found)) as bar:
        return [(final.finalist(e, bar), plan) for final, e, plan in found.values()]


def _link(source: str, target: str) -> str:
    """A hard link where the file system has them: records are replaced, never changed in place."""
    if not os.path.exists(target):
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)
    return target
