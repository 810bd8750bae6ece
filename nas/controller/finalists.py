"""The last round: train the best candidates with the full recipe, deploy them, and admit what keeps the limit."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nas.controller.arm import Evaluated
from nas.controller.scoring import LatencyScorer
from nas.data import ImageData
from nas.deployment import Deployment
from nas.evaluation.short_training import ShortTraining, trained
from nas.export.checkpoint import NetworkDescription
from nas.export.deploy import Deployed, UpperBound, deploy, deployed_accuracy
from nas.progress import Stage
from nas.targets.profiling import measure_networks
from nas.training.config import TrainConfig
from search_spaces import StagedSpace

SURE_STDS = 3.0
"""Predicted this many standard deviations below the limit, a candidate is not measured before it is trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalist:
    """A fully trained and deployed candidate."""

    evaluated: Evaluated
    trained_accuracy: float
    """Fraction of the validation split, in torch."""
    deployed: Deployed
    epochs: int
    """Finished epochs: fewer than the recipe's where the time limit ended the training."""
    test_accuracy: float | None
    """Of the deployed file on the test split; None where no deployment was accepted."""

    @property
    def within_limit(self) -> bool:
        return self.deployed.chosen is not None

    @property
    def deployed_accuracy(self) -> float:
        """Fraction of the validation split in the chosen deployment; -1 where there is none."""
        chosen = self.deployed.chosen
        return -1.0 if chosen is None or chosen.accuracy is None else chosen.accuracy


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalRound:
    """What all finalists share."""

    space: StagedSpace
    data: ImageData
    scorer: LatencyScorer
    deployments: tuple[Deployment, ...]
    recipe: TrainConfig
    limit_ms: float
    max_drop: float
    measured_here: bool

    def admissible(self, candidates: Sequence[Evaluated], count: int) -> list[Evaluated]:
        """The first `count` candidates whose untrained network keeps the limit when measured.

        Speed does not depend on the weights, so a candidate that would miss the limit costs seconds here instead of a
        training. Candidates predicted far below the limit are taken at their word: they are measured after training.
        """
        kept: list[Evaluated] = []
        for candidate in candidates:
            if len(kept) == count:
                break
            if not self.measured_here or self._surely_fast(candidate) or self._measured_fast(candidate):
                kept.append(candidate)
        return kept

    def train_and_deploy(self, candidate: Evaluated, folder: Path, bar: Stage) -> Finalist:
        """Train with the full recipe, export, try every deployment, and look at the test split once."""
        description = NetworkDescription(candidate.arch, self.data.num_classes, self.space.resolution(candidate.arch))
        network, result = trained(description, self.data, ShortTraining(self.recipe))
        bar.advance(1, note=f"trained {result.accuracy:.1%}")
        deployed = deploy(
            network,
            description,
            self.data,
            self.deployments,
            folder=folder,
            limit_ms=self.limit_ms,
            max_drop=self.max_drop,
            upper_bound=None if self.measured_here else self._upper_bound(candidate),
        )
        chosen = deployed.chosen
        test = None if chosen is None else deployed_accuracy(chosen, self.data, "test", description.resolution)
        return Finalist(
            evaluated=candidate,
            trained_accuracy=result.accuracy,
            deployed=deployed,
            epochs=len(result.curve),
            test_accuracy=test,
        )

    def _upper_bound(self, candidate: Evaluated) -> UpperBound:
        return lambda deployment: self.scorer.predicted(candidate.arch, deployment).upper_ms

    def _surely_fast(self, candidate: Evaluated) -> bool:
        latency = self.scorer.describe(candidate.arch)
        return latency.mean_ms + SURE_STDS * latency.std_ms <= self.limit_ms

    def _measured_fast(self, candidate: Evaluated) -> bool:
        possible = [
            d for d in self.deployments if self.scorer.predicted(candidate.arch, d).mean_ms <= 1.3 * self.limit_ms
        ]
        if not possible:
            return False
        return any(m.keeps(self.limit_ms) for m in measure_networks([candidate.arch], possible)[0])


def ranked(finalists: Sequence[Finalist]) -> list[Finalist]:
    """Those that keep the limit, most accurate deployed network first, faster first among equals."""
    admitted = [f for f in finalists if f.within_limit]

    def key(f: Finalist) -> tuple[float, float]:
        chosen = f.deployed.chosen
        assert chosen is not None
        return -f.deployed_accuracy, chosen.p50_ms

    return sorted(admitted, key=key)


def move_files(finalist: Finalist, folder: Path) -> Finalist:
    """Move a finalist's files to `folder` (replacing what is there) and return it with the new paths.

    Files of deployments that were not chosen stay behind: they are not delivered.
    """
    source = finalist.deployed.onnx.parent
    folder.parent.mkdir(parents=True, exist_ok=True)
    if folder.exists():
        shutil.rmtree(folder)
    shutil.move(str(source), str(folder))
    for t in finalist.deployed.tried:
        if not t.chosen and t.path is not None and t.path.stem != finalist.deployed.onnx.stem:
            for file in folder.glob(f"{t.path.stem}.*"):
                file.unlink()
    tried = tuple(
        replace(t, path=folder / t.path.name if t.chosen and t.path is not None else None)
        for t in finalist.deployed.tried
    )
    moved = replace(finalist.deployed, onnx=folder / finalist.deployed.onnx.name, tried=tried)
    return replace(finalist, deployed=moved)
