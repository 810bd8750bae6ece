"""From a trained network to a faster one: the steps in their order, each of which lies in files once it is done."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

from torch import nn

from nas.baseline.adapting import adapted, brought
from nas.baseline.beside import Beside
from nas.baseline.config import BaselineConfig
from nas.baseline.contract import PairedLoss, paired_loss
from nas.baseline.finals import Trained, train_best
from nas.baseline.folder import BaselineFolder
from nas.baseline.outcome import Delivered, Evidence, Offer
from nas.baseline.proposing import Made, propose
from nas.baseline.result import write_evidence
from nas.baseline.shortlist import Proposal
from nas.baseline.steps import Steps
from nas.baseline.teacher import TeacherNetwork, deployed_hits, evaluated_teacher
from nas.controller.finalists import slack_of
from nas.controller.planning.budget import NOTHING, Beforehand, Budget
from nas.controller.planning.plan import FEWER_THREADS
from nas.controller.planning.plan_record import read_account
from nas.controller.runs.records import deployed_network, figures_on_test
from nas.controller.runs.run_folder import check_identity, default_settings, held
from nas.controller.search import SearchResult, finished_result
from nas.data.images import square_input
from nas.deploy.choosing import Rejection
from nas.deploy.tried import Deployed, TriedDeployment
from nas.deployment import Deployment
from nas.errors import LimitMissedError, NotDeliverableError, UserError
from nas.files.writing import write_json
from nas.limits import Limits, Observation
from nas.measure.host import keep_to_usable_threads, threads_here
from nas.measure.site import Site, this_host
from nas.networks.derived import OWN_FORM
from nas.networks.description import NetworkDescription
from nas.networks.options import KEEP
from nas.networks.reference import Reference
from nas.networks.units import run_counted
from nas.progress import Progress, SilentProgress
from nas.runtimes import deployments_here, nothing_runs
from nas.tasks import TaskData, task_named
from nas.tasks.baseline import PYTHON
from nas.tasks.same_data import record_splits, require_same_data
from nas.text import milliseconds, percent
from search_spaces import TensorSpec
from search_spaces.modules import folded

CONSIDERED = 2
"""Deployments that networks are made for, those in which the baseline is fastest: in each, other options are cheap."""
ATTEMPTS, FASTER = 2, 0.93
"""Networks that are trained to the end at most, and how much faster than the first one the second has to be."""


def run_baseline(
    config: BaselineConfig,
    progress: Progress | None = None,
    before: Callable[[BaselineFolder], None] = lambda folder: None,
    origin: Path | None = None,
    beforehand: Beforehand = NOTHING,
) -> SearchResult:
    """Derive a network as `config` says; a run folder that holds a finished run of it is only read.

    `before` is called with the run's folder before its first step. `origin` is the folder of another run on the same
    data, whose results are taken over. What was done `beforehand` counts against the budget.

    Raises:
        UserError: wrong input, a network that cannot be taken apart, or a run folder of another configuration.
        InfeasibleError: no network of the baseline's units keeps the limit.
        LimitMissedError: none kept the limit and the allowed loss when it was measured.
    """
    progress = progress or SilentProgress()
    folder = BaselineFolder(config.run_dir)
    keep_to_usable_threads()
    budget = Budget(config.seconds, spent=read_account(folder) or beforehand.seconds)
    with budget.stage("prepare"):
        data = task_named(config.task).load(config.data, seed=config.seed, options=config.data_options)
        if len(data.val) == 0:
            raise UserError(f"the data {config.data!r} have no validation examples", "give data with at least one")
        found = brought(config, data, input_for(config, data))
    identity = {**config.identity(), "baseline_sha256": found.sha256}
    check_identity(folder, identity, default_settings(BaselineConfig))
    require_same_data(origin or folder.path, data)
    finished = finished_result(folder)
    if finished is not None:
        progress.note(f"{folder.path} holds this run's result already")
        return finished
    with held(folder, identity):
        record_splits(folder.path, data)
        before(folder)
        with budget.stage("baseline"):
            progress.note(f"baseline: {config.baseline}, weights from {found.weights}")
            if str(found.description.source).startswith(PYTHON):
                progress.note(f"the code of {config.baseline} was run to build it")
            if isinstance(found, Reference):
                teacher = evaluated_teacher(found, data)
            else:
                made = adapted(found, config, folder, data, progress)
                teacher = evaluated_teacher(made.reference, data)
                teacher = replace(teacher, notes=(made.note, *teacher.notes))
            for note in teacher.notes:
                progress.note(note)
            teacher = replace(teacher, notes=(*beforehand.notes, *teacher.notes))
        return Derivation(config, folder, budget, progress, teacher).run()


def measured(deployed: Deployed) -> list[TriedDeployment]:
    """The deployments whose latency is known."""
    return [t for t in deployed.tried if t.measurement is not None and t.measurement.failed is None]


def considered(tried: Sequence[TriedDeployment]) -> list[TriedDeployment]:
    """The baseline in the deployments that networks are made for: the `CONSIDERED` fastest that keep its accuracy.

    Where it keeps that in none that computes in int8, the last of them makes room for the fastest that does, if it is
    faster than all: what rounds badly in a baseline, such as gates and depthwise convolutions, may be what is replaced.
    """
    own = sorted((t for t in tried if math.isfinite(t.p50_ms) and not t.fewer_threads), key=lambda t: t.p50_ms)
    fastest: dict[Deployment, TriedDeployment] = {}
    for t in own:
        if t.accepted:
            fastest.setdefault(t.deployment, t)
    accurate = list(fastest.values())[:CONSIDERED]
    rounded = [t for t in own if t.deployment.computes_in == "int8" and t.accuracy is not None]
    none_keeps = bool(rounded) and not any(t.accepted for t in rounded)
    if CONSIDERED > 1 and none_keeps and rounded[0].p50_ms < accurate[0].p50_ms:
        return [*accurate[: CONSIDERED - 1], rounded[0]]
    return accurate


def input_for(config: BaselineConfig, data: TaskData) -> TensorSpec:
    """The input of a network whose own is not known."""
    own = data.train.input
    return own if config.resolution is None else square_input(own, config.resolution)


def deployments_for(config: BaselineConfig) -> list[Deployment]:
    """All deployments on this host that were asked for, called as `config` says. Raises `UserError` without any."""
    known = deployments_here(threads_here(config.threads), config.runtimes)
    known = [d for d in known if config.precisions is None or d.precision in config.precisions]
    if not known:
        raise UserError(*nothing_runs("cpu", config.runtimes))
    return [d.called(config.interval_ms).covering(config.limit_on) for d in known]


class Derivation(Steps):
    """The steps of one run after its baseline was found good, in the order of `run`."""

    def __init__(
        self, config: BaselineConfig, folder: BaselineFolder, budget: Budget, progress: Progress,
        teacher: TeacherNetwork,
    ) -> None:  # fmt: skip
        super().__init__(config, folder, budget, progress, teacher)
        self.site = this_host()

    def run(self) -> SearchResult:
        """All steps in their order."""
        with self.stage("baseline") as bar:
            untouched = self._deployed(
                self.folder.baseline_network, self.reference.network, self.reference.description, self._lossy,
                self.site,
            )  # fmt: skip
            bar.advance(1, note=f"{percent(self.teacher.accuracy)} in torch")
        fastest = untouched.chosen
        if fastest is None:
            reasons = "; ".join(f"{t.name}: {t.reason}" for t in untouched.tried)
            raise NotDeliverableError(
                f"no deployment of the baseline can be used ({reasons})", "allow more with --max-loss or --max-drop"
            )
        limits = self._limits(fastest.p50_ms)
        limit_ms = limits.call_limit_ms(1)
        self.progress.note(
            f"the baseline takes {milliseconds(fastest.p50_ms)} ms in {fastest.name}; "
            f"asked for: {milliseconds(limit_ms)} ms"
        )
        if not self._missed(limits, fastest):
            self.notes.append("the baseline keeps the limit as it is: nothing was changed")
            own = Proposal(
                options=(), origin="the baseline", deployment=fastest.deployment.name, score=0.0,
                predicted_ms=fastest.p50_ms, loss=0.0, accuracy=self.teacher.accuracy, measured_ms=fastest.p50_ms,
            )  # fmt: skip
            trained = Trained(
                network=self.reference.network, description=self.reference.description, proposal=own,
                accuracy=self.teacher.accuracy, epochs=0, folder=self.folder.baseline_network,
            )  # fmt: skip
            return self._conclude(limits, untouched, trained, untouched, None, fastest.p50_ms)
        for t in untouched.tried:
            if t.measurement is not None and t.measurement.failed is None:
                self.references[t.deployment.placement] = t.measurement.reference_p50_ms
        made = propose(self, self._considered(untouched), limit_ms)
        bound_ms = limit_ms
        for attempt in range(ATTEMPTS):
            trained = train_best(self, made, bound_ms, attempt)
            beside = Beside(self.site, fastest, trained.folder)
            deployed = self._deployed(
                trained.folder, trained.network, trained.description,
                partial(self._missed_beside, beside, fastest.p50_ms), beside.site,
            )  # fmt: skip
            limits = self._limits(beside.p50_ms or fastest.p50_ms)
            if deployed.chosen is not None or any(not self._missed(limits, t) for t in measured(deployed)):
                break
            # What was measured when it was chosen was too fast by something: the next one has that to spare.
            bound_ms = FASTER * (trained.proposal.measured_ms or bound_ms)
            self.notes.append(f"a network that had kept {limits.asked} kept it no more after its training")
            if not made.shortlist.within(bound_ms):
                break
        if deployed.chosen is None:
            within = [t for t in measured(deployed) if not self._missed(limits, t) and t.accuracy is not None]
            if within:
                best = max(within, key=lambda t: t.accuracy or 0.0)
                signature = trained.description.signature
                hits = deployed_hits(best, self.teacher.data, "val", signature)
                raise self._lost_too_much(paired_loss(self.teacher.hits, hits), limits, fastest)
            nearest = min((t.p50_ms for t in measured(deployed)), default=float("nan"))
            raise LimitMissedError(
                f"the network that was made kept {limits.asked} no more when it was measured again; the nearest came "
                f"to {milliseconds(nearest)} ms",
                f"ask for a higher --latency-ms or a lower --speedup: nas search --run {self.folder.path} --speedup X, "
                "when the machine is quieter",
            )
        return self._conclude(limits, untouched, trained, deployed, made, beside.p50_ms or fastest.p50_ms)

    # -- steps -----------------------------------------------------------------------------------

    def _limits(self, baseline_ms: float) -> Limits:
        """What was asked for, where the baseline takes so many milliseconds."""
        if self.config.speedup is None:
            return self.config.limits
        return Limits.of(latency_ms=float(f"{baseline_ms / self.config.speedup:.4g}"))

    @cached_property
    def deployments(self) -> list[Deployment]:
        return deployments_for(self.config)

    def _considered(self, untouched: Deployed) -> list[Deployment]:
        """Those that networks are made for, with a note where the baseline itself is too inaccurate in one."""
        found = considered(untouched.tried)
        self.notes += [
            f"the baseline loses too much in {t.name}, but networks made of it may not: they are made for it as well"
            for t in found
            if not t.accepted
        ]
        return [t.deployment for t in found]

    def _deployed(
        self, folder: Path, network: nn.Module, description: NetworkDescription, rejection: Rejection, site: Site
    ) -> Deployed:
        teacher = self.teacher
        return deployed_network(
            folder, network, description, teacher.data, self.deployments,
            max_drop=self.config.max_drop, rejection=rejection, site=site,
            slack=slack_of("accuracy", teacher.data, teacher.accuracy) if self.config.accuracy_first else None,
            fewer_threads=FEWER_THREADS if self.config.threads is None else (),
        )  # fmt: skip

    def _missed_beside(self, beside: Beside, baseline_ms: float, t: TriedDeployment) -> str:
        return self._missed(self._limits(beside.p50_ms or baseline_ms), t) or self._lossy(t)

    def _lossy(self, t: TriedDeployment) -> str:
        """Reason why a deployment loses more than is allowed; empty where it does not."""
        if t.accuracy is None or self.teacher.accuracy - t.accuracy <= self.config.max_loss + 1e-9:
            return ""
        lost = 100 * (self.teacher.accuracy - t.accuracy)
        return f"it loses {lost:.1f} points against the baseline, more than --max-loss {100 * self.config.max_loss:g}"

    def _missed(self, limits: Limits, t: TriedDeployment) -> str:
        seen = Observation(batch=t.deployment.batch, size_bytes=t.size_bytes, accuracy=t.accuracy)
        return "; ".join(v.reason for v in limits.violations(limits.observe(seen, t.measurement)))

    def _conclude(
        self,
        limits: Limits,
        untouched: Deployed,
        trained: Trained,
        deployed: Deployed,
        made: Made | None,
        baseline_ms: float,
    ) -> SearchResult:
        """Compare with the baseline, refuse what loses too much, and write the evidence."""
        data, signature = self.teacher.data, trained.description.signature
        chosen, own = deployed.chosen, untouched.chosen
        assert chosen is not None
        assert own is not None
        loss = paired_loss(self.teacher.hits, deployed_hits(chosen, data, "val", signature))
        verdict = loss.verdict(self.config.max_loss)
        if verdict == "missed":
            raise self._lost_too_much(loss, limits, own)
        if verdict != "kept":
            self.notes.append(
                f"--max-loss {100 * self.config.max_loss:g} is kept, not proven: of {loss.examples} validation "
                f"examples {loss.worse} are lost and {loss.better} won; as much as {100 * loss.high:.1f} points may be"
            )
        test = figures_on_test(trained.folder, chosen, data, trained.description) if len(data.test) else None
        untouched_test = None
        test_loss = None
        if len(data.test):
            untouched_test = figures_on_test(self.folder.baseline_network, own, data, self.reference.description)
            before = deployed_hits(own, data, "test", self.reference.description.signature)
            test_loss = paired_loss(before, deployed_hits(chosen, data, "test", signature))
        evidence = Evidence(
            config=self.config, folder=self.folder, teacher=self.teacher, limits=limits, untouched=untouched,
            untouched_test=untouched_test, units=tuple(self.units) if made else (),
            offers=self._offers(made, chosen.deployment) if made else (self._whole_offer(),),
            shortlist=made.shortlist if made else None, tables=made.shortlist.tables if made else (),
            delivered=Delivered(
                description=trained.description, deployed=deployed, proposal=trained.proposal, test=test, loss=loss,
                verdict=verdict, test_loss=test_loss, trained_accuracy=trained.accuracy, epochs=trained.epochs,
            ),
            baseline_ms=baseline_ms, account=self.budget.account(), teacher_epochs=self.teacher_epochs,
            notes=tuple(self.notes), site=self.site,
        )  # fmt: skip
        document = write_evidence(evidence)
        write_json(self.folder.account, self.budget.account())
        return SearchResult(document, self.folder.path, 0)

    def _offers(self, made: Made, deployment: Deployment) -> tuple[Offer, ...]:
        found = []
        for form in made.forms:
            macs, params = made.library(form.width).costs(form.resolution)
            losses = tuple(made.lost(form.width, deployment))
            found.append(Offer(form=form, macs=tuple(macs), params=tuple(params), losses=losses))
        return tuple(found)

    def _whole_offer(self) -> Offer:
        """Of the baseline as one unit, which may be of a kind that cannot be taken apart."""
        network = folded(self.reference.network)
        _, macs = run_counted(network, self.input.draw_torch(1))
        params = sum(p.numel() for p in network.parameters())
        return Offer(form=OWN_FORM, macs=({KEEP: macs},), params=({KEEP: params},), losses=())

    def _lost_too_much(self, loss: PairedLoss, limits: Limits, own: TriedDeployment) -> LimitMissedError:
        return LimitMissedError(
            f"the best network within {limits.asked} loses {100 * loss.mean:.1f} points of the validation examples "
            f"({loss.worse} lost, {loss.better} won), more than --max-loss {100 * self.config.max_loss:g}; without a "
            f"loss the baseline takes {milliseconds(own.p50_ms)} ms ({own.name})",
            f"allow more: nas search --run {self.folder.path} --max-loss X, or another --latency-ms or --speedup; give "
            "a longer --budget in another --out; or search from nothing, with the baseline as the --teacher",
        )
