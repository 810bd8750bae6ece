"""All that happened in a search, as one value."""

from dataclasses import dataclass

from nas.controller.baselines import Baseline
from nas.controller.config import SearchConfig
from nas.controller.inputs import SearchInputs
from nas.controller.planning.estimator_choice import EstimatorChoice
from nas.controller.prediction.scoring import CandidateScorer
from nas.controller.prediction.target_model import TargetModel
from nas.controller.runs.run_folder import RunFolder
from nas.controller.values import Evaluated, Failed, Finalist, RandomBaseline
from nas.tasks import TaskData
from nas.tasks.floor import Floor
from nas.training.recipe import Recipe
from search_spaces import SearchSpace


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """All that happened in a search."""

    inputs: SearchInputs
    scorer: CandidateScorer
    folder: RunFolder
    short_s: float
    """Nominal seconds of a short training."""
    estimator: EstimatorChoice
    prepared_s: float
    """Seconds that the estimator took before its first candidate in this process, booked within a stage; a supernet's
    training is a stage of its own."""
    recipe: Recipe
    evaluated: tuple[Evaluated, ...]
    failed: tuple[Failed, ...]
    finalists: tuple[Finalist, ...]
    winners: tuple[Finalist, ...]
    random_baseline: RandomBaseline | None
    zoo: tuple[Baseline, ...]
    seconds: dict[str, float]
    """Seconds of each stage, and `total`."""
    estimate: dict[str, float]
    """The same as expected before the start."""
    cost_usd: float | None
    floors: tuple[Floor, ...]
    """Accuracies that these data allow without a network."""
    interrupted: bool
    """True if the search was asked to end early."""
    notes: tuple[str, ...]

    @property
    def config(self) -> SearchConfig:
        return self.inputs.config

    @property
    def data(self) -> TaskData:
        return self.inputs.data

    @property
    def space(self) -> SearchSpace:
        return self.inputs.space

    @property
    def target(self) -> TargetModel:
        return self.inputs.target
