"""The decisions of a search that must not change when it is continued: when its parts end, and what it trains with."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nas.controller.planning.budget import Budget
from nas.controller.planning.plan import REPORT_S, FinalPlan, Schedule, schedule
from nas.controller.planning.recipes import Recipes
from nas.controller.planning.throughput import TrainingThroughput
from nas.controller.runs.run_folder import RunFolder
from nas.files.writing import write_json
from nas.training.recipe import Recipe


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """Decisions made at the start of a search."""

    deadlines: Schedule
    recipes: Recipes

    @staticmethod
    def zoo_until_s(budget: Budget) -> float:
        """Second of the budget by which the well-known networks have to be done; with an open end they get as much time
        as the search took."""
        if math.isfinite(budget.seconds):
            return budget.seconds - REPORT_S
        spent = budget.account()
        return budget.elapsed_s + spent.get("short_training", 0.0) + spent.get("final_training", 0.0)


def search_plan(
    folder: RunFolder, budget: Budget, recipes: Callable[[TrainingThroughput | None], Recipes], *, baselines: bool
) -> SearchPlan:
    """The plan recorded in `folder`, or a new one, recorded. With another budget only its throughput is kept."""
    known: dict[str, Any] = json.loads(folder.plan.read_text()) if folder.plan.exists() else {}
    made = recipes(TrainingThroughput.from_json(known["throughput"]) if "throughput" in known else None)
    budget_s = budget.seconds if math.isfinite(budget.seconds) else None
    if known and known["budget_s"] == budget_s:
        deadlines = Schedule(*(math.inf if s is None else s for s in known["deadlines"]))
        return SearchPlan(deadlines, made)
    deadlines = schedule(budget.elapsed_s, budget.seconds, baselines=baselines)
    times = [s if math.isfinite(s) else None for s in (deadlines.search_short_until_s, deadlines.search_until_s)]
    write_json(folder.plan, {"budget_s": budget_s, "deadlines": times, "throughput": made.throughput.to_json()})
    return SearchPlan(deadlines, made)


def read_final_plan(folder: RunFolder) -> FinalPlan | None:
    """The plan of the last round, where the run has come to it."""
    if not folder.final_plan.exists():
        return None
    document = json.loads(folder.final_plan.read_text())
    tried = document.get("tried")
    recipe = Recipe.of(document["recipe"], "final plan")
    return FinalPlan(
        recipe, document["size"], None if tried is None else tuple(tried), full_image_s=document.get("full_image_s")
    )


def write_final_plan(folder: RunFolder, plan: FinalPlan) -> None:
    known = {"recipe": plan.recipe.to_json(), "size": plan.size, "full_image_s": plan.full_image_s}
    tried = {} if plan.tried is None else {"tried": list(plan.tried)}
    write_json(folder.final_plan, known | tried)


def read_account(folder: RunFolder) -> dict[str, float]:
    """Seconds by stage that earlier processes of the run have spent."""
    spent: dict[str, float] = json.loads(folder.account.read_text()) if folder.account.exists() else {}
    return spent
