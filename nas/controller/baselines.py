"""Well-known networks as baselines, in the best deployment that keeps the limit, trained where time allows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from nas.controller.elsewhere import Elsewhere
from nas.controller.planning.budget import Budget
from nas.controller.planning.plan import DEPLOY_S, FEWEST_S
from nas.controller.runs.records import Trained, deployed_network, figures_on_test, read_trained, trained_network
from nas.deploy.choosing import no_rejection
from nas.deploy.deploy import deploy
from nas.deploy.tried import Deployed
from nas.deployment import Deployment
from nas.measure.site import Site
from nas.networks.description import NetworkDescription
from nas.progress import Stage
from nas.tasks import TaskData, task_of
from nas.training.precision import Precision
from nas.training.recipe import Recipe
from search_spaces import TensorSpec

CHEAPEST_FIRST = (
    "resnet10_w50", "resnet10_w75", "resnet10", "mobilenet_v3_small", "resnet18", "mobilenet_v3_large",
    "regnet_y_400mf", "efficientnet_b0", "resnet50",
)  # fmt: skip
"""Order in which the budget is spent on a zoo; names missing here come last, in their own order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A well-known network on this data and device."""

    name: str
    deployed: Deployed
    trained_accuracy: float | None
    """None where only its latency was measured."""
    test: Mapping[str, float] | None
    """See `Finalist.test`."""
    params: int
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooRound:
    """Everything that all well-known networks share with the winner: data, input, recipe, deployments."""

    data: TaskData
    input: TensorSpec
    deployments: tuple[Deployment, ...]
    """Tried for trained networks."""
    quick: Deployment
    """The one deployment in which untrained networks are timed: the winner's."""
    recipe: Recipe
    max_drop: float
    folder: Path
    site: Site
    """The machine they are measured on."""
    elsewhere: Elsewhere | None = None
    """The machines that train them, several at once; None: this one."""

    def run(self, budget: Budget, until_s: float, bar: Stage) -> list[Baseline]:
        """First the latency of every network, then trainings in order of cost, while they fit into the time."""
        names = in_order(task_of(self.data).baselines)
        found: dict[str, Baseline] = {}
        longest = 0.0
        for name in names:
            began = budget.elapsed_s
            if began + longest > until_s:
                break
            found[name] = self._latency_only(name)
            longest = max(longest, budget.elapsed_s - began)
            bar.advance(1, note=name)
        at_once = 1 if self.elsewhere is None else self.elsewhere.executor.capacity
        timed = list(found)
        for start in range(0, len(timed), at_once):
            chosen: list[str] = []
            for name in timed[start : start + at_once]:
                if self._is_recorded(name) or budget.elapsed_s + self._needed_s(name, len(chosen) + 1) <= until_s:
                    chosen.append(name)
            self._begin_elsewhere(chosen, until_s - budget.elapsed_s)
            for name in chosen:
                found[name] = self._train(name, lambda: until_s - budget.elapsed_s)
                bar.advance(1, note=f"{name} trained")
        return list(found.values())

    def _is_recorded(self, name: str) -> bool:
        return (self.folder / name / "deployed.json").exists()

    @property
    def _deploy_s(self) -> float:
        """Seconds of deploying one trained network: they take longer than the one measurement of an untrained one."""
        return DEPLOY_S * len(self.deployments)

    def _needed_s(self, name: str, together: int) -> float:
        """Seconds until the network is trained, and so many deployed, one after the other."""
        return self._deploy_s * together + self._training_s(name)

    def _begin_elsewhere(self, names: Sequence[str], left_s: float) -> None:
        """Have other machines, if there are any, train these networks at the same time."""
        if self.elsewhere is None:
            return
        limit_s = max(FEWEST_S, left_s - self._deploy_s * len(names))
        for name in names:
            description = self._description(name)
            if read_trained(self.folder / name, description, self.recipe) is None:
                self.elsewhere.begin(self.folder / name, description, self.recipe, None, limit_s)

    def _training_s(self, name: str) -> float:
        """Seconds that training the network would take, extrapolated from a few steps."""
        from nas.training.precision import resolve_device
        from nas.training.setup import ENOUGH_S, Setup, step_seconds

        batch = self.recipe.batch_for(len(self.data.train))
        setup = Setup(precision=precision_of(self.recipe), channels_last=True, batch_size=batch)
        step = step_seconds(
            self._description(name).build(), self.input, setup, resolve_device("auto"), enough_s=ENOUGH_S
        )
        steps = -(-len(self.data.train) // batch) * self.recipe.epochs
        return 1.25 * step * steps  # a quarter for validation and augmentation

    def _train(self, name: str, left_s: Callable[[], float]) -> Baseline:
        description, folder = self._description(name), self.folder / name
        if self.elsewhere is not None and self.elsewhere.knows(folder):
            self.elsewhere.finish(folder)
        limit_s = max(FEWEST_S, left_s() - self._deploy_s)
        network, outcome = trained_network(folder, description, self.data, self.recipe, limit_s=limit_s)
        deployed = deployed_network(
            folder, network, description, self.data, self.deployments,
            max_drop=self.max_drop, rejection=no_rejection, site=self.site, isa=self.site.fingerprint.isa,
            left_s=left_s,
        )  # fmt: skip
        chosen = deployed.chosen
        test = None if chosen is None else figures_on_test(folder, chosen, self.data, description)
        return Baseline(
            name=name, deployed=deployed, trained_accuracy=outcome.accuracy, test=test,
            params=_parameters(network), note=training_note(outcome, self.recipe),
        )  # fmt: skip

    def _latency_only(self, name: str) -> Baseline:
        from search_spaces.modules import set_norm_statistics

        network = self._description(name).build()
        examples = self.data.for_input("train", self.input).some(16)
        set_norm_statistics(network, torch.from_numpy(self.data.inputs(examples)))
        deployed = deploy(
            network, self._description(name), self.data, (self.quick,),
            folder=self.folder / f"{name}-untrained", max_drop=self.max_drop, trained=False,
            measurer=self.site.measure,
        )  # fmt: skip
        return Baseline(
            name=name, deployed=deployed, trained_accuracy=None, test=None, params=_parameters(network),
            note="latency only: the budget does not allow its training",
        )  # fmt: skip

    def _description(self, name: str) -> NetworkDescription:
        return NetworkDescription.of_baseline(name, self.data.output_size, self.input)


def training_note(outcome: Trained, recipe: Recipe) -> str:
    """Epochs that a network was trained and, where they are fewer than the recipe's, the reason why it ended."""
    if outcome.epochs == recipe.epochs:
        return f"{outcome.epochs} epochs"
    done = f"{outcome.epochs} of {recipe.epochs} epochs"
    if outcome.stopped == "diverged":
        return f"{done}: its training diverged, so its accuracy is 0"
    return f"{done}: the time limit ended its training"


def precision_of(recipe: Recipe) -> Precision:
    """The precision a search fixed for all its trainings."""
    return "bf16" if recipe.precision == "bf16" else "fp32"


def in_order(zoo: Iterable[str]) -> list[str]:
    """The names in the order in which the budget is spent on them."""
    return sorted(zoo, key=lambda n: CHEAPEST_FIRST.index(n) if n in CHEAPEST_FIRST else len(CHEAPEST_FIRST))


def names_not_reached(zoo: Iterable[str], found: Sequence[Baseline]) -> list[str]:
    """Networks of the zoo that the budget did not reach at all."""
    reached = {b.name for b in found}
    return [name for name in zoo if name not in reached]


def _parameters(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())
