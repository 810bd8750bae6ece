"""The last round: train the best candidates with the full recipe, deploy them, and accept what keeps the limits."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from nas.bundles.bundle import deliver_files
from nas.controller.config import Objective
from nas.controller.elsewhere import Elsewhere
from nas.controller.objective import Ending, finalist_pool, next_finalist
from nas.controller.planning.plan import DEPLOY_S, FEWEST_S
from nas.controller.prediction.scoring import CandidateScorer
from nas.controller.promise import most_promising
from nas.controller.runs.records import (
    Before,
    Trained,
    deployed_network,
    figures_on_test,
    read_trained,
    trained_network,
)
from nas.controller.runs.run_folder import network_name
from nas.controller.runs.short_weights import ShortWeights
from nas.controller.values import Evaluated, Finalist
from nas.deploy.choosing import UpperBound, without_defect
from nas.deploy.in_time import LEFT_OUT
from nas.deploy.tried import Deployed, TriedDeployment, files_bytes
from nas.deployment import Deployment
from nas.evaluation.short_training import enough_to_compare
from nas.limits import AccuracyLimit, Limits, Observation, Violation
from nas.measure.measurement import Measurement
from nas.measure.pipeline import write_pipeline
from nas.measure.site import Site
from nas.networks.description import NetworkDescription
from nas.networks.weights import load_weights
from nas.progress import Stage
from nas.targets.preparing import deploy_untrained
from nas.tasks import TaskData, task_of
from nas.training.recipe import Recipe
from search_spaces import SearchSpace

SURE_STDS = 3.0
"""Predicted this many standard deviations below the limit, a candidate is not measured before it is trained."""
HOPELESS = 1.3
"""Predicted this many times over a limit, a deployment is not even measured."""
CLEAR = 1.1
"""One session of an untrained network decides where its latencies are so many times below or above the limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalRound:
    """Everything that all finalists share."""

    space: SearchSpace
    data: TaskData
    scorer: CandidateScorer
    deployments: tuple[Deployment, ...]
    """Those of `scorer.model` that finalists are tried in."""
    recipe: Recipe
    size: int
    """Finalists, if the objective needs so many."""
    objective: Objective
    limits: Limits
    max_drop: float
    site: Site | None
    """The machine that finalists are measured on; None: their latency is only predicted."""
    folder: Path
    """Holds a folder for each finalist, by its key."""
    full_image_s: float | None = None
    """Seconds of a full training for each training image by which candidates are ordered, see `FinalPlan`."""
    fewer_threads: tuple[int, ...] = ()
    """Threads that the fastest deployments are measured with besides those of `deployments`."""
    weights: ShortWeights | None = None
    """Weights of short trainings, for finalists whose full training comes to less."""
    skip_missed: bool = False
    """Finalists that were trained before and miss the present limits do not count as tried."""
    left_s: Callable[[], float] = lambda: math.inf
    """Seconds that are left of the budget now: trainings end earlier, and deployments are left out, to keep to them."""
    deploy_s: float = DEPLOY_S
    """Seconds that a training leaves for each deployment."""
    claim: Callable[[str], bool] = lambda network: True
    """Whether the network of that name is this machine's to train, where others work on the same search."""
    elsewhere: Elsewhere | None = None
    """Trains on other machines; None: this one does."""
    promising: dict[tuple[str, tuple[Deployment, ...]], bool] = field(default_factory=dict)
    """What `is_promising` found, by the candidate's key and the deployments: nothing is measured twice for it."""
    missed: list[Violation] = field(default_factory=list)
    """Limits that untrained networks were measured to miss."""

    def run(
        self, candidates: Sequence[Evaluated], bar: Stage, in_time: Callable[[], bool] = lambda: True
    ) -> Iterator[Finalist]:
        """Train and deploy finalists in the objective's order, one by one, at least one, others while `in_time`.

        As long as there is time, a candidate that would miss a limit is found before it is trained, see `is_promising`.
        """
        promising = most_promising(candidates, self.space, self.data.output_size, self.full_image_s)
        pool = finalist_pool(self.objective, promising, self._latency_ms)
        done: dict[str, Ending] = {}
        claims = dict[str, bool]()
        self._begin_elsewhere(pool, claims, in_time)
        while len(done) < self.size:
            candidate = next_finalist(self.objective, pool, done, self._latency_ms)
            if candidate is None:
                return
            sure = self.is_recorded(candidate) or self._under_way(candidate)
            if not sure and not in_time():
                # What an earlier process trained is looked at, before anything is trained in no time.
                if any(self.is_recorded(c) for c in pool if c.arch.key not in done):
                    pool.remove(candidate)
                    continue
                if done:
                    return
            another_is_left = len(pool) > len(done) + 1
            if not sure and another_is_left and not self._is_ours(candidate, claims):
                pool.remove(candidate)
                continue
            if sure or not in_time() or self.is_promising(candidate):
                found = self.finalist(candidate, bar)
                if self.skip_missed and found.trained.reused and not found.within_limit:
                    pool.remove(candidate)
                    continue
                done[candidate.arch.key] = self._ending(found)
                yield found
            else:
                pool.remove(candidate)

    def _is_ours(self, candidate: Evaluated, claims: dict[str, bool]) -> bool:
        """`claim`, asked once for each candidate."""
        key = candidate.arch.key
        if key not in claims:
            claims[key] = self.claim(network_name(key))
        return claims[key]

    def _begin_elsewhere(self, pool: list[Evaluated], claims: dict[str, bool], in_time: Callable[[], bool]) -> None:
        """Have other machines train as many finalists at once as are known from the start; candidates that are not to
        be trained leave the `pool`.

        All are measured before the first is begun: a measurement waits for what is trained on its machine.
        """
        if self.elsewhere is None:
            return
        at_once = self.size if self.objective in ("accuracy", "pareto") else 1  # who is next depends on the ones before
        chosen: dict[str, Evaluated] = {}
        while len(chosen) < min(at_once, self.elsewhere.executor.capacity):
            taken: dict[str, Ending] = dict.fromkeys(chosen, "kept")
            candidate = next_finalist(self.objective, pool, taken, self._latency_ms)
            if candidate is None:
                break
            if not self.is_recorded(candidate):
                ours = len(pool) == len(chosen) + 1 or self._is_ours(candidate, claims)
                if not ours or (in_time() and not self.is_promising(candidate)):
                    pool.remove(candidate)
                    continue
            chosen[candidate.arch.key] = candidate
        for candidate in chosen.values():
            if not self.is_recorded(candidate):
                self._train_elsewhere(candidate, self.elsewhere)

    def _under_way(self, candidate: Evaluated) -> bool:
        """True if the candidate's training was begun elsewhere, and its deployment fits into what is left."""
        begun = self.elsewhere is not None and self.elsewhere.knows(self.folder_of(candidate))
        return begun and self.left_s() >= self.deploy_s

    def _train_elsewhere(self, candidate: Evaluated, elsewhere: Elsewhere) -> None:
        folder, before = self.folder_of(candidate), self._before(candidate)
        elsewhere.begin(folder, self._description(candidate), self.recipe, before, self._training_limit_s())

    def _training_limit_s(self) -> float:
        return max(FEWEST_S, self.left_s() - self.deploy_s * len(self.deployments))

    def is_recorded(self, candidate: Evaluated) -> bool:
        """True if the candidate's training with this recipe was finished; it was promising then."""
        return read_trained(self.folder_of(candidate), self._description(candidate), self.recipe) is not None

    def is_promising(self, candidate: Evaluated) -> bool:
        """True if the untrained network keeps the limits that do not depend on the weights.

        A candidate that would miss one costs seconds here instead of a training. Candidates predicted far below the
        limits are taken at their word: they are measured after training.
        """
        if self.site is None:
            return bool(self.scorer.worst_ratio(self.space.choices([candidate.arch]))[0] <= 1.0)
        key = (candidate.arch.key, self.deployments)
        if key not in self.promising:
            self.promising[key] = self._surely_within(candidate) or self._measured_within(candidate, self.site)
        return self.promising[key]

    def without_hopeless(
        self, candidates: Sequence[Evaluated], full_image_s: float | None, in_time: Callable[[], bool]
    ) -> list[Evaluated]:
        """The candidates without those of the most promising that are measured to miss a limit, up to the first that is
        not, as far as they are found `in_time`; one is left in any case.

        So a last round is planned by the training of the candidate that it begins with: planned by that of a larger one
        that is then dropped, a smaller one ended after half of the time.
        """
        left = list(candidates)
        if self.objective != "accuracy" or self.site is None:
            return left
        for candidate in most_promising(candidates, self.space, self.data.output_size, full_image_s)[:-1]:
            if not in_time() or self.is_promising(candidate):
                break
            left.remove(candidate)
        return left

    def finalist(self, candidate: Evaluated, bar: Stage) -> Finalist:
        """Train with the full recipe, export, try every deployment, and look at the test split once.

        What the finalist's folder holds already is not done again.
        """
        description, folder = self._description(candidate), self.folder_of(candidate)
        trained_there = False
        if self.elsewhere is not None and (self.elsewhere.knows(folder) or not self.is_recorded(candidate)):
            if not self.elsewhere.knows(folder):
                self._train_elsewhere(candidate, self.elsewhere)
            self.elsewhere.finish(folder)
            trained_there = True
        network, outcome = trained_network(
            folder, description, self.data, self.recipe, self._before(candidate), limit_s=self._training_limit_s()
        )
        outcome = replace(outcome, reused=outcome.reused and not trained_there)
        bar.advance(1, note=f"trained {outcome.accuracy:.1%}")
        deployed = deployed_network(
            folder, network, description, self.data, self.deployments,
            max_drop=self.max_drop, rejection=lambda t: self._rejection(candidate, t),
            site=self.site, upper_bound=None if self.site else self._upper_bound(candidate),
            slack=self._slack(outcome.accuracy), isa=self._isa,
            fewer_threads=self.fewer_threads, left_s=self.left_s,
            expected_ms=lambda d: self.scorer.predicted(candidate.arch, d).mean_ms,
            least_calls=self.limits.least_calls,
        )  # fmt: skip
        return self.as_finalist(candidate, outcome, deployed)

    def as_finalist(self, candidate: Evaluated, outcome: Trained, deployed: Deployed) -> Finalist:
        """The finalist that these results make."""
        chosen = deployed.chosen
        # A file that lost too much accuracy is not near to being delivered, however fast it is.
        sound = without_defect(deployed.tried, self.max_drop) if chosen is None else []
        missed = [v for t in sound for v in self._violations(candidate, t)]
        test = None
        if chosen is not None:
            test = figures_on_test(self.folder_of(candidate), chosen, self.data, deployed.description)
        seen = self._seen(candidate, chosen) if chosen is not None else Observation()
        return Finalist(
            evaluated=candidate,
            trained=outcome,
            deployed=deployed,
            violations=tuple(missed),
            call_ms=usual(seen.latencies_ms),
            images_per_s=1e3 * seen.batch / usual(seen.medians_ms),
            test=test,
        )

    @property
    def _isa(self) -> tuple[str, ...]:
        """Instruction sets of the device that will run what is delivered, which need not be this host."""
        return (self.site.fingerprint if self.site is not None else self.scorer.model.profile.fingerprint).isa

    def _slack(self, accuracy: float) -> float | None:
        return slack_of(self.objective, self.data, accuracy)

    def folder_of(self, candidate: Evaluated) -> Path:
        return self.folder / network_name(candidate.arch.key)

    def _before(self, candidate: Evaluated) -> Before | None:
        """Weights and accuracy that the candidate's short training ended with, or None if its weights were not kept."""
        accuracy = candidate.short_accuracy
        weights = None if self.weights is None else self.weights.find(network_name(candidate.arch.key))
        if accuracy is None or weights is None:
            return None
        return Before(weights, accuracy if enough_to_compare(self.data) == 1 else self._accuracy_of(candidate, weights))

    def _accuracy_of(self, candidate: Evaluated, weights: Path) -> float:
        """Accuracy of the candidate with these weights, on all validation examples."""
        description = self._description(candidate)
        network, split = description.build(), self.data.for_input("val", description.signature.input)
        load_weights(network, weights)
        return task_of(self.data).accuracy(network, split, self.data.preprocess)

    def _description(self, candidate: Evaluated) -> NetworkDescription:
        return NetworkDescription.of_architecture(self.space, candidate.arch, self.data.output_size)

    def _latency_ms(self, candidate: Evaluated) -> float:
        return self.scorer.describe(candidate.arch).mean_ms

    def _upper_bound(self, candidate: Evaluated) -> UpperBound:
        return lambda deployment: self.scorer.predicted(candidate.arch, deployment).upper_ms

    def _rejection(self, candidate: Evaluated, t: TriedDeployment) -> str:
        return "; ".join(v.reason for v in self._violations(candidate, t))

    def _ending(self, found: Finalist) -> Ending:
        if found.within_limit:
            return "kept"
        # One file may be too slow and another too inaccurate: a faster network may keep both with the former.
        sound = without_defect(found.deployed.tried, self.max_drop)
        missed = [{v.name for v in self._violations(found.evaluated, t)} for t in sound]
        return "inaccurate" if missed and all(AccuracyLimit.name in names for names in missed) else "missed"

    def _violations(self, candidate: Evaluated, t: TriedDeployment) -> list[Violation]:
        return self.limits.violations(self._seen(candidate, t))

    def _seen(self, candidate: Evaluated, t: TriedDeployment) -> Observation:
        params = int(self.space.costs(self.space.choices([candidate.arch]), self.data.output_size)["params"][0])
        upper_ms = None if self.site else self.scorer.predicted(candidate.arch, t.deployment).upper_ms
        return seen_of(t, self.limits, params, upper_ms)

    def _surely_within(self, candidate: Evaluated) -> bool:
        if self.limits.needs_measured_probes:
            return False
        latency = self.scorer.describe(candidate.arch)
        unsure = [row for row, limit in enumerate(self.limits.predicted) if limit.sure_below is not None]
        if unsure:
            ratios = self.scorer.ratios(self.space.choices([candidate.arch]))
            at = self.scorer.model.deployments.index(latency.deployment)
            if any(ratios[row, at, 0] > (self.limits.predicted[row].sure_below or 1.0) for row in unsure):
                return False
        limit_ms = self.limits.call_limit_ms(latency.deployment.batch)
        return latency.mean_ms + SURE_STDS * latency.std_ms <= limit_ms

    def _measured_within(self, candidate: Evaluated, site: Site) -> bool:
        ratios = self.scorer.ratios(self.space.choices([candidate.arch]))[:, :, 0]
        known = zip(self.scorer.model.deployments, ratios.T, strict=True)
        possible = [d for d, r in known if (r <= HOPELESS).all() and d in self.deployments]
        if not possible:
            return False
        with TemporaryDirectory(prefix="nas-candidate-") as folder:
            requests = deploy_untrained(candidate.arch, possible, Path(folder), 0, self.data.output_size)
            write_pipeline(Path(folder), self.data, self._description(candidate).signature)
            sizes = {request: files_bytes(request.path) for request in requests}

            def missed(m: Measurement, slowness: float = 1.0) -> list[Violation]:
                """The limits that calls which take `slowness` times as long as those measured do not keep."""
                known = Observation(batch=m.request.deployment.batch, size_bytes=sizes[m.request])
                return self.limits.violations(self.limits.observe(known, m).slowed(slowness))

            def keeps(m: Measurement, slowness: float = 1.0) -> bool:
                return m.failed is None and not missed(m, slowness)

            found = site.measure(requests, sessions=1)
            if any(keeps(m, CLEAR) for m in found):
                return True
            near = [m.request for m in found if keeps(m, 1 / CLEAR)]
            if near:
                again = site.measure(near)
                if any(keeps(m) for m in again):
                    return True
                found = [*again, *(m for m in found if m.request not in near)]
            self.missed.extend(violation for m in found if m.failed is None for violation in missed(m))
            return False


def seen_of(t: TriedDeployment, limits: Limits, params: int | None, upper_ms: float | None) -> Observation:
    """What is known of a deployment for `limits`; `upper_ms`: the predicted upper bound, None on a machine at hand."""
    known = Observation(batch=t.deployment.batch, params=params, size_bytes=t.size_bytes, accuracy=t.accuracy)
    if upper_ms is not None:
        return replace(known, latencies_ms=(upper_ms,), medians_ms=(upper_ms,), predicted=True)
    return limits.observe(known, t.measurement)


def slack_of(objective: Objective, data: TaskData, accuracy: float) -> float | None:
    """Accuracy that a faster deployment may cost beside the most accurate one where their answers are not known one by
    one (see `nas.deploy.choosing.tie_of`); None: all that `max_drop` allows.

    Where accuracy is the objective, one standard error of the network's `accuracy`: less cannot be told from chance on
    these examples.
    """
    return (task_of(data).standard_error(accuracy, data.val) or 0.0) if objective == "accuracy" else None


def not_reached(finalists: Sequence[Finalist]) -> list[str]:
    """A remark on the deployments that were left out of some finalist for lack of time; empty where there is none."""
    names = dict.fromkeys(t.name for f in finalists for t in f.deployed.tried if t.reason == LEFT_OUT)
    return [f"the budget did not reach {', '.join(names)} of some finalist"] if names else []


def usual(latencies_ms: Sequence[float]) -> float:
    """The median of the sessions; inf without any."""
    ordered = sorted(latencies_ms)
    return ordered[len(ordered) // 2] if ordered else float("inf")


def deliver(finalist: Finalist, folder: Path) -> Finalist:
    """Copy what is handed over of a finalist to `folder` (replacing what is there) and return it with the new paths."""
    return replace(finalist, deployed=deliver_files(finalist.deployed, folder))
