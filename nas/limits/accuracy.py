"""A floor under the accuracy of the deployed file: known of finished files alone."""

from dataclasses import dataclass

from nas.limits.limit import Limit, Observation, wrong


@dataclass(frozen=True, slots=True)
class AccuracyLimit(Limit):
    """Least accuracy of the deployed file, as a fraction of the validation split."""

    metric: str = "accuracy"
    """The fraction's name (`Task.metric`)."""

    name = "min_accuracy"
    noun = "accuracy"
    unit = "%"
    example = "90"
    help = "Limit: at least per cent of validation images right (detection: mAP@50, pose: OKS-mAP), by the file."
    at_most = False
    before_training = False

    def __post_init__(self) -> None:
        Limit.__post_init__(self)
        if self.value > 1:
            raise wrong(f"{100 * self.value:g} % {self.metric} makes no sense", "give at most 100")

    @property
    def label(self) -> str:
        return f"{100 * self.value:g}pct"

    def quantity(self, value: float) -> str:
        return f"{100 * value:g} % {self.metric}"

    def observed(self, seen: Observation) -> float | None:
        return seen.accuracy

    def reason(self, value: float, seen: Observation) -> str:
        return f"{self.metric} {value:.1%} is below {self.value:.1%}"
