"""From a trained network to a faster one: the steps in their order, each of which lies in files once it is done."""

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from nas.baseline.config import BaselineConfig
from nas.baseline.contract import PairedLoss, paired_loss
from nas.baseline.folder import BaselineFolder, checksum, read_step, write_step
from nas.baseline.library import Lessons, Library, begin, replacement_losses, teach, units_without_inplace
from nas.baseline.result import Delivered, Evidence, write_evidence
from nas.baseline.shortlist import ENOUGH, Proposal, Shortlist, fastest_ms, shortlist
from nas.baseline.students import Classroom, Student, assemble, classroom, epoch_seconds, train_student
from nas.baseline.teacher import TeacherNetwork, deployed_hits, judged
from nas.baseline.times import UnitTimes, measure_options, worthwhile
from nas.controller.planning.budget import BookedStage, Budget
from nas.controller.planning.plan_record import read_account
from nas.controller.runs.records import deployed_network, figures_on_test
from nas.controller.runs.run_folder import check_identity, network_name, record_identity
from nas.controller.search import FEWER_THREADS, SearchResult, finished_result
from nas.deploy.choosing import Rejection, no_rejection
from nas.deploy.tried import Deployed, TriedDeployment, files_of
from nas.deployment import PIPELINE, Deployment
from nas.errors import InfeasibleError, LimitMissedError, NotDeliverableError, UserError
from nas.files.records import write_record
from nas.files.writing import write_json
from nas.limits import Limits, Observation
from nas.measure.host import keep_to_usable_threads, threads_here
from nas.measure.pipeline import write_pipeline
from nas.measure.site import this_host
from nas.networks.derive import units_for
from nas.networks.derived import source_key
from nas.networks.description import NETWORK, NetworkDescription, save_network
from nas.networks.options import options_of
from nas.networks.reference import load_reference
from nas.networks.run_networks import TRAINED
from nas.networks.units import Unit
from nas.progress import Progress, SilentProgress, Stage
from nas.runtimes import deployments_here, nothing_runs
from nas.tasks import TaskData, task_named
from nas.text import milliseconds, percent
from search_spaces import TensorSpec

CONSIDERED = 2
"""Deployments that networks are made for, those in which the baseline is fastest: in each, other options are cheap."""
LIBRARY_SHARE, TRIED_SHARE = 0.25, 0.25
"""Shares of the time that is left when they begin: for the library, and then for comparing students."""
BEGUN_ON = 256
"""Training examples that the library's closed-form start is computed on."""
LESSON = 64
"""Examples in a step of the library."""
LEAST_STEPS, MOST_EPOCHS = 30, 4
"""Of the library: fewer steps teach nothing, and in more passes there is nothing more to learn."""
MOST_STUDENT_EPOCHS = 100
ATTEMPTS, FASTER = 2, 0.93
"""Networks that are trained to the end at most, and how much faster than the first one the second has to be."""
AGAIN = 1.3
"""What is delivered takes so many times as long to deploy as the baseline took, at most."""


def run_baseline(
    config: BaselineConfig,
    progress: Progress | None = None,
    before: Callable[[BaselineFolder], None] = lambda folder: None,
) -> SearchResult:
    """Derive a network as `config` says; a run folder that holds a finished run of it is only read.

    `before` is called with the run's folder before its first step.

    Raises:
        UserError: wrong input, a network that cannot be taken apart, or a run folder of another configuration.
        InfeasibleError: no network of the baseline's units keeps the limit.
        LimitMissedError: none kept the limit and the allowed loss when it was measured.
    """
    progress = progress or SilentProgress()
    folder = BaselineFolder(config.run_dir)
    keep_to_usable_threads()
    budget = Budget(config.seconds, spent=read_account(folder))
    with budget.stage("prepare"):
        data = task_named(config.task).load(config.data, seed=config.seed)
        if len(data.val) == 0:
            raise UserError(f"the data {config.data!r} have no validation examples", "give data with at least one")
        reference = load_reference(config.baseline, data, _input(config, data))
    identity = {**config.identity(), "baseline_sha256": reference.sha256}
    check_identity(folder, identity)
    finished = finished_result(folder)
    if finished is not None:
        progress.note(f"{folder.path} holds this run's result already")
        return finished
    record_identity(folder, identity)
    before(folder)
    with budget.stage("baseline"):
        progress.note(f"baseline: {reference.text}, weights from {reference.weights}")
        teacher = judged(reference, data)
        for note in teacher.notes:
            progress.note(note)
    return Derivation(config, folder, budget, progress, teacher).run()


def _input(config: BaselineConfig, data: TaskData) -> TensorSpec:
    own = data.train.input
    if config.resolution is None:
        return own
    return TensorSpec((own.shape[0], config.resolution, config.resolution), own.dtype, own.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A network that was trained by the teacher."""

    network: nn.Module
    description: NetworkDescription
    proposal: Proposal
    accuracy: float
    """On the validation examples, in torch."""
    epochs: int
    folder: Path


class Derivation:
    """The steps of one run after its baseline was found good, in the order of `run`."""

    def __init__(
        self, config: BaselineConfig, folder: BaselineFolder, budget: Budget, progress: Progress,
        teacher: TeacherNetwork,
    ) -> None:  # fmt: skip
        self.config, self.folder, self.budget, self.progress = config, folder, budget, progress
        self.teacher, self.reference = teacher, teacher.reference
        self.site = this_host()
        self.notes = list(teacher.notes)
        self.input = self.reference.description.signature.input

    def run(self) -> SearchResult:
        """All steps in their order."""
        began = time.monotonic()
        with self._stage("baseline") as bar:
            untouched = self._deployed(
                self.folder.baseline_network, self.reference.network, self.reference.description, no_rejection
            )
            bar.advance(1, note=f"{percent(self.teacher.accuracy)} in torch")
        self.deploy_s = AGAIN * (time.monotonic() - began)
        fastest = untouched.chosen
        if fastest is None:
            reasons = "; ".join(f"{t.name}: {t.reason}" for t in untouched.tried)
            raise NotDeliverableError(f"no deployment of the baseline can be used ({reasons})", "see --max-drop")
        limits = self._limits(fastest)
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
            return self._conclude(limits, untouched, trained, untouched, None)
        found, tables, library, losses = self._proposed(untouched, limit_ms)
        bound_ms = limit_ms
        for attempt in range(ATTEMPTS):
            trained = self._taught(library, found, bound_ms, attempt)
            deployed = self._deployed(
                trained.folder, trained.network, trained.description, partial(self._missed, limits)
            )
            if deployed.chosen is not None:
                break
            # What was measured when it was chosen was too fast by something: the next one has that to spare.
            bound_ms = FASTER * (trained.proposal.measured_ms or bound_ms)
            self.notes.append(f"a network that had kept {limits.asked} kept it no more after its training")
            if not found.within(bound_ms):
                break
        if deployed.chosen is None:
            nearest = min((t.p50_ms for t in deployed.tried if t.measurement is not None), default=float("nan"))
            raise LimitMissedError(
                f"the network that was made kept {limits.asked} no more when it was measured again; the nearest came "
                f"to {milliseconds(nearest)} ms",
                "ask for a higher --latency-ms or a lower --speedup, or run the same command on a quieter machine",
            )
        return self._conclude(limits, untouched, trained, deployed, (found, tables, library, losses))

    # -- steps -----------------------------------------------------------------------------------

    def _limits(self, fastest: TriedDeployment) -> Limits:
        if self.config.speedup is None:
            return self.config.limits
        return Limits.of(latency_ms=float(f"{fastest.p50_ms / self.config.speedup:.4g}"))

    def _proposed(
        self, untouched: Deployed, limit_ms: float
    ) -> tuple[Shortlist, list[UnitTimes], Library, list[dict[str, float]]]:
        """Measure the options, teach those that are worth it, and shortlist networks of them."""
        units = self.units
        tables = self._times(self._considered(untouched))
        deployment, floor_ms = fastest_ms(tables)
        if floor_ms > limit_ms:
            raise InfeasibleError(
                f"no network made of the units of {self.reference.text} keeps {milliseconds(limit_ms)} ms: the fastest "
                f"one takes about {milliseconds(floor_ms)} ms ({deployment.name})",
                f"ask for {milliseconds(1.2 * floor_ms)} ms or more, or search from scratch: leave out --baseline",
            )
        offered = worthwhile(tables)
        library = self._library(units, offered)
        losses = self._losses(library)
        return self._shortlist(library, losses, tables, limit_ms), tables, library, losses

    @cached_property
    def units(self) -> list[Unit]:
        """Those of the baseline."""
        network = copy.deepcopy(self.reference.network)
        units_without_inplace(network)
        return units_for(network, self.input)

    @cached_property
    def room(self) -> Classroom:
        return classroom(self.teacher, self.config.seed)

    @cached_property
    def deployments(self) -> list[Deployment]:
        """All that were asked for."""
        config = self.config
        known = deployments_here(threads_here(config.threads), config.runtimes)
        known = [d for d in known if config.precisions is None or d.precision in config.precisions]
        if not known:
            raise UserError(*nothing_runs("cpu", config.runtimes))
        return [d.called(config.interval_ms).covering(config.limit_on) for d in known]

    def _considered(self, untouched: Deployed) -> list[Deployment]:
        """Those in which the baseline is fastest, of all that keep its accuracy."""
        usable = [t for t in untouched.tried if t.accepted and not t.fewer_threads]
        return [t.deployment for t in sorted(usable, key=lambda t: t.p50_ms)[:CONSIDERED]]

    def _deployed(
        self, folder: Path, network: nn.Module, description: NetworkDescription, rejection: Rejection
    ) -> Deployed:
        return deployed_network(
            folder, network, description, self.teacher.data, self.deployments,
            max_drop=self.config.max_drop, rejection=rejection, site=self.site,
            fewer_threads=FEWER_THREADS if self.config.threads is None else (),
        )  # fmt: skip

    def _missed(self, limits: Limits, t: TriedDeployment) -> str:
        seen = Observation(batch=t.deployment.batch, size_bytes=t.size_bytes, accuracy=t.accuracy)
        return "; ".join(v.reason for v in limits.violations(limits.observe(seen, t.measurement)))

    def _times(self, deployments: Sequence[Deployment]) -> list[UnitTimes]:
        identity = {**self._origin, "deployments": [asdict(d) for d in deployments]}
        found = read_step(self.folder.times, identity)
        if found is not None:
            return [UnitTimes.from_json(document) for document in found]
        everything = Library(self.units, [list(options_of(unit)) for unit in self.units])
        with self._stage("options", 1 + len({o for names in everything.offered for o in names})) as bar:
            with self._scratch("options") as place:
                tables = measure_options(
                    everything, self.input, deployments, place, self._preparing, lambda name: bar.advance(1, note=name)
                )
            bar.advance(1)
        write_step(self.folder.times, identity, [table.to_json() for table in tables])
        return tables

    def _library(self, units: Sequence[Unit], offered: Sequence[Sequence[str]]) -> Library:
        library = Library(units, offered, self.config.seed)
        room = self.room
        size = min(LESSON, max(2, room.objective.train_examples // 2))
        batches = partial(room.batches, size, self.config.seed)
        with self._stage("library") as opening:
            steps = self._planned("library", lambda: self._library_steps(library, batches, size))
            if not self.folder.library.exists():
                begin(library, torch.cat(room.inputs)[:BEGUN_ON])
            opening.advance(0)
        with self._stage("library", steps) as bar:
            teach(library, batches, Lessons(steps, self.config.seed), self.folder.library, lambda step: bar.advance(1))
        return library

    def _library_steps(self, library: Library, batches: Callable[[int], Iterator[torch.Tensor]], size: int) -> int:
        """Steps that fit into the library's share of the time."""
        trial = Library(self.units, [names[1:] for names in library.offered])
        teach(trial, batches, Lessons(1))  # torch and its caches warm up
        began = time.monotonic()
        teach(trial, batches, Lessons(2))
        step_s = (time.monotonic() - began) / 2
        most = MOST_EPOCHS * max(1, self.room.objective.train_examples // size)
        return max(LEAST_STEPS, min(most, int(LIBRARY_SHARE * self._left_s() / step_s)))

    def _losses(self, library: Library) -> list[dict[str, float]]:
        identity = {**self._origin, "library": checksum(self.folder.library)}
        found = read_step(self.folder.losses, identity)
        if found is None:
            inputs = self.room.inputs
            with self._stage("losses", len(inputs)) as bar:
                found = replacement_losses(library, inputs, self.room.distance, lambda done: bar.advance(1))
            write_step(self.folder.losses, identity, found)
        return [dict(named) for named in found]

    def _shortlist(
        self, library: Library, losses: list[dict[str, float]], tables: Sequence[UnitTimes], limit_ms: float
    ) -> Shortlist:
        identity = {
            "losses": checksum(self.folder.losses), "times": checksum(self.folder.times), "limit_ms": limit_ms
        }  # fmt: skip
        found = read_step(self.folder.shortlist, identity)
        if found is not None:
            return Shortlist.from_json(found)
        with self._stage("shortlist") as bar, self._scratch("shortlist") as place:
            made = shortlist(
                self.room, library, losses, tables, limit_ms, place, self._preparing, lambda: bar.advance(1)
            )
        write_step(self.folder.shortlist, identity, made.to_json())
        return made

    def _taught(self, library: Library, found: Shortlist, limit_ms: float, attempt: int) -> Trained:
        """Train the best of the shortlist as whole networks: several a little, the best of them to the end."""
        again = f"-{attempt}" * (attempt > 0)
        within = found.within(limit_ms)
        if not within:
            nearest = min((p.measured_ms for p in found.proposals if p.measured_ms is not None), default=float("nan"))
            raise LimitMissedError(
                f"no network made of the baseline's units kept {milliseconds(limit_ms)} ms when it was measured; the "
                f"nearest came to {milliseconds(nearest)} ms",
                "ask for a higher --latency-ms or a lower --speedup",
            )
        distinct = list({p.options: p for p in reversed(within)}.values())[::-1][:ENOUGH]
        students = [self._student(library, p) for p in distinct]
        epoch_s = [epoch_seconds(self.room, s.network) for s in students]
        epochs = self._planned(f"tried{again}", lambda: int(TRIED_SHARE * self._left_s() / sum(epoch_s)))
        began, doubt = time.monotonic(), 1.0
        if len(students) > 1 and epochs:
            with self._stage("students", len(students)) as bar:
                for student in students:
                    train_student(self.room, student, "tried", epochs)
                    bar.advance(1, note=percent(student.accuracy))
            best = max(range(len(students)), key=lambda i: students[i].accuracy)
            doubt = (time.monotonic() - began) / (epochs * sum(epoch_s))
        else:
            best, epochs = 0, 0
        chosen, name = students[best], distinct[best]
        further = self._planned(
            f"final{again}", lambda: max(1, min(MOST_STUDENT_EPOCHS, int(self._left_s() / (doubt * epoch_s[best]))))
        )
        with self._stage("final_training", 1) as bar:
            train_student(self.room, chosen, "final", further)
            bar.advance(1, note=percent(chosen.accuracy))
        for student, proposal in zip(students, distinct, strict=True):
            trained = epochs + further * (student is chosen)
            if trained:
                self._save(student, proposal, trained)
        return Trained(
            network=chosen.network, description=chosen.description, proposal=name, accuracy=chosen.accuracy,
            epochs=epochs + further, folder=chosen.folder,
        )  # fmt: skip

    def _student(self, library: Library, proposal: Proposal) -> Student:
        description = self.reference.description.derived(proposal.options)
        folder = self.folder.finalists / network_name(f"derived:{source_key(description.source)}")
        return Student(
            network=assemble(self.room, library, proposal.options), description=description, folder=folder,
            accuracy=proposal.accuracy,
        )  # fmt: skip

    def _save(self, student: Student, proposal: Proposal, epochs: int) -> None:
        """The student as a network of the run, see `nas.networks.run_networks`."""
        save_network(student.network, student.description, student.folder / NETWORK)
        document = {
            "network": student.description.to_json(), "accuracy": student.accuracy, "epochs": epochs,
            "proposal": proposal.to_json(),
        }  # fmt: skip
        write_record(student.folder, TRAINED, document, files_of(student.folder / NETWORK))

    def _conclude(
        self,
        limits: Limits,
        untouched: Deployed,
        trained: Trained,
        deployed: Deployed,
        made: tuple[Shortlist, list[UnitTimes], Library, list[dict[str, float]]] | None,
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
            before, after = (deployed_hits(t, data, "test", signature) for t in (own, chosen))
            test_loss = paired_loss(before, after)
        library = made[2] if made else Library(self.units, [()] * len(self.units))
        macs, params = library.costs()
        evidence = Evidence(
            config=self.config, folder=self.folder, teacher=self.teacher, limits=limits, untouched=untouched,
            untouched_test=untouched_test, units=tuple(self.units), macs=tuple(macs), params=tuple(params),
            shortlist=made[0] if made else None, tables=tuple(made[0].tables) if made else (),
            losses=tuple(made[3]) if made else (),
            delivered=Delivered(
                description=trained.description, deployed=deployed, proposal=trained.proposal, test=test, loss=loss,
                verdict=verdict, test_loss=test_loss, trained_accuracy=trained.accuracy, epochs=trained.epochs,
            ),
            account=self.budget.account(), notes=tuple(self.notes), site=self.site,
        )  # fmt: skip
        document = write_evidence(evidence)
        write_json(self.folder.account, self.budget.account())
        return SearchResult(document, self.folder.path, 0)

    def _lost_too_much(self, loss: PairedLoss, limits: Limits, own: TriedDeployment) -> LimitMissedError:
        return LimitMissedError(
            f"the best network within {limits.asked} loses {100 * loss.mean:.1f} points of the validation examples "
            f"({loss.worse} lost, {loss.better} won), more than --max-loss {100 * self.config.max_loss:g}; without a "
            f"loss the baseline takes {milliseconds(own.p50_ms)} ms ({own.name})",
            "allow a higher --max-loss or latency, or give a longer --budget in another --out; what was trained is "
            f"{self.folder.path}#1",
        )

    # -- helpers ---------------------------------------------------------------------------------

    @property
    def _origin(self) -> dict[str, Any]:
        return {"sha256": self.reference.sha256, "network": self.reference.description.to_json()}

    def _left_s(self) -> float:
        """Seconds for training: what is delivered has to be deployed as well."""
        return max(0.0, self.budget.seconds - self.budget.elapsed_s - self.deploy_s)

    def _planned(self, name: str, plan: Callable[[], int]) -> int:
        """A number that is decided once: a run that goes on after a kill comes to the same end."""
        known: dict[str, int] = read_step(self.folder.plan, self._origin) or {}
        if name not in known:
            known = {**known, name: plan()}
            write_step(self.folder.plan, self._origin, known)
        return known[name]

    def _preparing(self, folder: Path) -> None:
        if self.config.limit_on == PIPELINE:
            write_pipeline(folder, self.teacher.data, self.reference.description.signature)

    @contextmanager
    def _stage(self, name: str, total: float | None = None) -> Iterator[Stage]:
        with self.budget.stage(name), self.progress.stage(name.replace("_", " "), total) as bar:
            try:
                yield BookedStage(bar, self.budget, self.folder.account)
            finally:
                write_json(self.folder.account, self.budget.account())

    @contextmanager
    def _scratch(self, name: str) -> Iterator[Path]:
        with TemporaryDirectory(prefix=f"nas-{name}-") as place:
            yield Path(place)
