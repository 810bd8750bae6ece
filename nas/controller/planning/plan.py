"""Rules that turn a budget into recipes: all networks get the same, and a repetition decides the same."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from nas.controller.config import Objective
from nas.deployment import Deployment
from nas.evaluation.short_training import ShortTraining
from nas.measure.job import window_seconds
from nas.measure.protocol import SECONDS_PER_MODEL
from nas.tasks import TrainingShape
from nas.training.recipe import Recipe

SEARCH_SHARE = 0.40
"""Share of the time left after preparation that a search with baselines gets; the random baseline gets as much, and the
well-known networks the rest."""
ALONE_SHARE = 0.97
"""The same of a search without baselines: what is left over is for trainings that take longer than expected."""
SHORT_SHARE = 0.25
"""Share of the search's time for short trainings; the rest trains and deploys the finalists."""

SHORT_TRAININGS = 12
"""Number of short trainings that the short phase should afford."""
FINALISTS = 2
FRONT_FINALISTS = 3
"""Number of finalists where a front is wanted, or the fastest network above an accuracy, or no candidate was trained
before: one training tells too little of any of these."""
MOST_FINALISTS = 8
"""Largest number of finalists, trained where time is left after the longest trainings of those wanted: short trainings
order the best candidates poorly. Beyond that the winner would rather be the luckiest on the validation split."""
STRETCH = 1.5
"""A training may take this much longer than it is expected to; then its learning rate has come down to zero and it
ends, whatever the number of epochs. Otherwise one slow network would eat the budget."""
CLOCK_EPOCHS = 2.0
"""Epochs of a finalist by those that are expected to fit: the clock is to end its training, so that no time is left
over where networks train faster than expected (up to 1.7 times as fast in searches of 15 minutes)."""
IN_TIME = 0.9
"""A further finalist is trained where at least this share of its time is left: the first ones may have taken a little
more than theirs."""
OPEN_END_S = 600.0
"""Seconds that trainings are planned for where trials alone end the search: then nothing may depend on the clock."""
REPORT_S = 4.0
"""Receipts, tables and the page at the end."""
ANYTIME_S = 15.0
"""Training of the finalist that answers an interrupt."""
FEWEST_S = 5.0
"""Seconds that the clock leaves any training, whatever is left of the budget."""
DEPLOY_S = 5.0
"""Exporting, quantising, checking and measuring one deployment of one small network: 4 to 7 s on two cores of a
Xeon at 2.5 GHz, where each of four deployments was counted alike."""
SESSIONS, SPACED_CALLS = 3, 20
"""In which a deployment is measured, and calls of each with pauses in between where no limit asks for more."""
TRAINING_SHARE, FEWEST_DEPLOYMENTS = 0.6, 2
"""Share of a finalist's time that its training gets where that leaves at least so many deployments to try."""

FEWER_THREADS = (1, 2, 4)
"""Threads that finalists are measured with besides all of them, where the user does not name a number."""
FEWER_THREADS_FROM_S = 120.0
"""Budgets below this try finalists with all threads alone: measuring with fewer takes seconds that training needs."""

TRAIN_S_PER_MAC, TRAIN_S_PER_ACTIVATION, TRAIN_S_PER_DEPTHWISE_MAC = 3.2e-11, 2.0e-9, 6.1e-10
"""Nominal seconds per image: they say how much more work one network is than another. They are those of bf16 training
on one thread of an AMD EPYC with AVX512-BF16, a non-negative fit to 24 networks of `mixed` at 32, 64 and 128 px with a
mean error of 7 % (`experiments.training_cost`). How long that work takes on the device that trains is measured, see
`nas.controller.planning.throughput`."""


UPDATE_S_PER_PRODUCT = 4e-11
"""Scale of `nominal_update_s`: twelve operations (three rounds of Newton-Schulz iteration) at 300 GFLOP/s. No
measurement is behind it, and it decides nothing: what a device takes by it is measured."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Wall-clock deadlines of the search proper, in seconds since the budget started."""

    search_short_until_s: float
    search_until_s: float


@dataclass(frozen=True, slots=True)
class FinalPlan:
    """The recipe every compared network is trained with, and how many finalists there are."""

    recipe: Recipe
    size: int
    tried: tuple[str, ...] | None = None
    """Names of the deployments that finalists are tried in; None: in all of the search's."""
    full_image_s: float | None = None
    """Seconds of a full training for each training image by which candidates were ordered for this plan: in another
    order the last round would train another network than it was made for. None where no clock ends a training."""
    spare_s: float = field(default=0.0, compare=False)
    """Seconds of the last round that are left over where the most finalists are trained for the most epochs."""

    def deployments(self, known: Sequence[Deployment]) -> tuple[Deployment, ...]:
        """Those of the search's deployments that finalists are tried in."""
        return tuple(d for d in known if self.tried is None or d.name in self.tried)


def planned_s(budget_s: float) -> float:
    """The budget that work is planned for: a usual one where trials alone end the search (inf)."""
    return budget_s if math.isfinite(budget_s) else OPEN_END_S


def fewer_threads(budget_s: float, threads: int | None) -> tuple[int, ...]:
    """Numbers of threads that finalists are measured with besides all of them. `threads`: what the user asked for."""
    return FEWER_THREADS if threads is None and planned_s(budget_s) >= FEWER_THREADS_FROM_S else ()


def wanted_finalists(objective: Objective, winners: int, *, trained: bool = True) -> int:
    """More than are delivered, where the budget allows: the last round is what decides. `trained`: candidates were
    compared by short trainings."""
    return max(FINALISTS if objective == "accuracy" and trained else FRONT_FINALISTS, winners)


def schedule(elapsed_s: float, budget_s: float, *, baselines: bool) -> Schedule:
    """Divide what is left of the budget."""
    left = max(0.0, budget_s - elapsed_s - REPORT_S)
    share_s = (SEARCH_SHARE if baselines else ALONE_SHARE) * left
    return Schedule(search_short_until_s=elapsed_s + SHORT_SHARE * share_s, search_until_s=elapsed_s + share_s)


def nominal_image_s(costs: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    """The work of training one image of each network, (n,) nominal seconds, from `SearchSpace.costs` alone.

    Not a measurement on purpose: what is proposed depends on it, and the same seed has to propose the same candidates
    also when the machine happens to be slower.
    """
    seconds: NDArray[np.float64] = (
        TRAIN_S_PER_MAC * costs["macs"]
        + TRAIN_S_PER_ACTIVATION * costs["activations"]
        + TRAIN_S_PER_DEPTHWISE_MAC * costs["depthwise_macs"]
    )
    return seconds


def nominal_update_s(costs: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    """The work of one step of an optimiser that makes orthogonal steps, (n,) nominal seconds, from `SearchSpace.costs`.

    A layer's matrix product takes its weights times its width, and the width goes with the root of the weights.
    """
    seconds: NDArray[np.float64] = UPDATE_S_PER_PRODUCT * costs["params"] * np.sqrt(costs["params"] / costs["layers"])
    return seconds


def deployment_s(interval_ms: float, least_calls: int, call_ms: float = 0.0) -> float:
    """Seconds that measuring and all else of one deployment takes.

    Args:
        interval_ms: from the start of a call to that of the next; 0: calls without pauses.
        least_calls: calls that limits ask for in each session; 0: any number.
        call_ms: a call takes at most so long; 0: not known.
    """
    if interval_ms:
        return DEPLOY_S + SESSIONS * max(SPACED_CALLS, least_calls) * interval_ms / 1e3
    seconds = max(window_seconds(SECONDS_PER_MODEL, least_calls), least_calls * call_ms / 1e3)
    return DEPLOY_S + SESSIONS * (seconds - SECONDS_PER_MODEL)


def affordable_image_s(
    available_s: float, train_images: int, deployments: int, shape: TrainingShape, deploy_s: float = DEPLOY_S
) -> float:
    """Seconds per image beyond which a finalist cannot be trained for the fewest epochs in `available_s`.

    `deploy_s`: of one deployment, here and below.
    """
    tried = affordable_deployments(available_s, deployments, deploy_s)
    training_s = max(0.4 * available_s, available_s - deploy_s * tried)
    return training_s / (shape.final_epochs[0] * train_images)


def affordable_deployments(available_s: float, deployments: int, deploy_s: float = DEPLOY_S) -> int:
    """How many of so many deployments one finalist is tried in, with `available_s` for its training and them.

    In a short budget trying all of them would take most of it: then the network has learnt too little in each.
    """
    affordable = int((1 - TRAINING_SHARE) * available_s / deploy_s)
    return max(fewest_deployments(available_s, deployments, deploy_s), min(deployments, affordable))


def fewest_deployments(available_s: float, deployments: int, deploy_s: float = DEPLOY_S) -> int:
    """How many of so many deployments are tried however little time there is.

    One alone where each takes long, as for slow calls with pauses (300 calls at 20/s are 15 s), and more would leave
    the training less than a third: they took a minute's search half as long again.
    """
    slow = deploy_s > FEWEST_DEPLOYMENTS * DEPLOY_S and FEWEST_DEPLOYMENTS * deploy_s > 2 / 3 * available_s
    return min(deployments, 1 if slow else FEWEST_DEPLOYMENTS)


def short_training(
    recipe: Recipe, train_images: int, image_s: Callable[[int], float], seconds: float, shape: TrainingShape
) -> ShortTraining:
    """The recipe for comparing candidates: as many epochs and images as fit into `seconds`.

    `image_s` is the candidate's nominal training time per image in batches of so many images, so that all candidates
    get the same time: what counts in the end is the accuracy a network reaches within the budget, and a slow one
    reaches it later. A recipe with `least_steps` makes batches smaller where images are few, and these take longer.
    """
    lowest, highest = shape.short_epochs
    batch = recipe.fixed_batch_size
    while True:
        passes = seconds / image_s(batch)
        epochs = int(min(highest, max(lowest, passes // train_images)))
        images = min(train_images, max(shape.min_short_images, int(passes / epochs)))
        short = recipe.changed(epochs=epochs)
        needed = short.batch_for(images)
        if needed >= batch:
            return ShortTraining(short, images if images < train_images else None)
        batch = needed


def final_time_s(
    planned_s: float, short_s: float, left_s: float, deployments: int, deploy_s: float = DEPLOY_S
) -> float:
    """Seconds for the last round: as planned, but enough for one finalist to be trained as long as it was briefly.

    Preparation or slow trainings may have used up what was planned. A network must not be handed over that learned
    less than when it was chosen, so the time of the baselines goes first, as far as the budget's `left_s` reach.
    `short_s`: the longest of the leaders' short trainings.
    """
    least_s = short_s + deploy_s * deployments
    return max(planned_s, min(least_s, left_s / STRETCH))


def final_plan(
    recipe: Recipe,
    epoch_s: float,
    available_s: float,
    deployments: int,
    wanted: int = FINALISTS,
    *,
    most: int = MOST_FINALISTS,
    shape: TrainingShape,
    deploy_s: float = DEPLOY_S,
    clocked: bool = True,
    at_once: int = 1,
) -> FinalPlan:
    """Number of finalists, up to `wanted`, and of epochs that `available_s` allows.

    Another finalist is only worth it where all get enough epochs; more than `wanted`, up to `most`, where all get the
    most. Where trainings are `clocked`, the clock ends them: that also where not even the fewest epochs fit. `at_once`:
    trainings that run side by side; deployments do not.
    """
    lowest, highest = shape.final_epochs
    counts = range(1, max(wanted, most) + 1)
    rounds = {count: math.ceil(count / at_once) for count in counts}
    shares = {c: available_s / rounds[c] - deploy_s * deployments * (c / rounds[c]) for c in counts}
    affordable = {count: int(share / max(epoch_s, 1e-9)) for count, share in shares.items()}
    least = {count: min(shape.enough_epochs, highest) if count <= wanted else highest for count in shares}
    possible = [c for c, share in shares.items() if share >= FEWEST_S and affordable[c] >= least[c]]
    count = max(possible, default=1)
    if not clocked:
        epochs = min(highest, shape.enough_epochs, max(lowest, affordable[count]))
        return FinalPlan(recipe.changed(epochs=epochs, time_limit_s=None), count)
    epochs = min(highest, max(lowest, math.ceil(CLOCK_EPOCHS * affordable[count])))
    limit_s = max(FEWEST_S, min(STRETCH * epochs * epoch_s, shares[count]))
    whole_s = rounds[count] * highest * epoch_s + deploy_s * deployments * count
    spare_s = max(0.0, available_s - whole_s) if count == len(counts) and epochs == highest else 0.0
    return FinalPlan(recipe.changed(epochs=epochs, time_limit_s=limit_s), count, spare_s=spare_s)


def open_end_plan(
    recipe: Recipe, epoch_s: float, deployments: int, wanted: int, *, shape: TrainingShape, baselines: bool
) -> FinalPlan:
    """`final_plan` where trials alone end the search: `epoch_s` is nominal, no clock ends a training, and there is no
    time left over for more finalists."""
    deadlines = schedule(0.0, OPEN_END_S, baselines=baselines)
    final_s = deadlines.search_until_s - deadlines.search_short_until_s
    return final_plan(recipe, epoch_s, final_s, deployments, wanted, most=wanted, shape=shape, clocked=False)


def room_for_baseline(
    elapsed_s: float, budget_s: float, spent: Mapping[str, float], evaluations: int, finalists: int
) -> bool:
    """True if one network can still be trained briefly and fully as the search's were, `spent` being its account.

    A search that ran over its time must not have its random_baseline run over it as well.
    """
    short_s = spent.get("short_training", 0.0) / max(1, evaluations)
    final_s = spent.get("final_training", 0.0) / max(1, finalists)
    return elapsed_s + short_s + final_s <= budget_s - REPORT_S


def estimate(
    elapsed_s: float,
    budget_s: float,
    short_s: float,
    trials: int | None,
    *,
    baselines: bool,
    phase: str = "short_training",
    supernet_s: float = 0.0,
) -> dict[str, float]:
    """Seconds by stage that a search is expected to take, before it starts; `prepare` is what it took so far.

    `short_s`: of evaluating each candidate. `trials`: at most so many. `phase`: name of the stage that evaluates them.
    `supernet_s`: of training a supernet for that. Nothing is left over on purpose: stages end earlier when their work
    does.
    """
    open_end = not math.isfinite(budget_s)
    deadlines = schedule(elapsed_s, elapsed_s + OPEN_END_S if open_end else budget_s, baselines=baselines)
    short = deadlines.search_short_until_s - elapsed_s
    supernet_s = min(supernet_s, short)
    short -= supernet_s
    if trials is not None:
        short = trials * short_s if open_end else min(short, trials * short_s)
    final = deadlines.search_until_s - deadlines.search_short_until_s
    stages = {"prepare": elapsed_s, **({"supernet": supernet_s} if supernet_s else {})}
    stages |= {phase: short, "final_training": final}
    if baselines:
        stages["random_baseline"] = short + final
        rest = budget_s - sum(stages.values())
        stages["baselines"] = max(0.0, rest) if not open_end else short + final
    rounded = {name: round(seconds, 1) for name, seconds in stages.items()}
    return {**rounded, "total": round(sum(rounded.values()), 1)}
