"""What a derivation came to, as plain values for its documents."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from nas.baseline.config import BaselineConfig
from nas.baseline.contract import PairedLoss, Verdict
from nas.baseline.folder import BaselineFolder
from nas.baseline.shortlist import Proposal, Shortlist
from nas.baseline.teacher import TeacherNetwork
from nas.baseline.times import UnitTimes
from nas.deploy.tried import Deployed, TriedDeployment
from nas.limits import Limits
from nas.measure.site import Site
from nas.networks.derived import Form
from nas.networks.description import NetworkDescription
from nas.networks.units import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What is known of all options in one form, for each unit; of all units as one, `KEEP`, where the baseline is
    delivered as it is."""

    form: Form
    macs: tuple[Mapping[str, int], ...]
    params: tuple[Mapping[str, int], ...]
    losses: tuple[Mapping[str, float], ...]
    """What each option loses alone, with the baseline's images; empty where the baseline is delivered as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The network that is handed over."""

    description: NetworkDescription
    deployed: Deployed
    proposal: Proposal
    test: Mapping[str, float] | None
    loss: PairedLoss
    """Against the baseline in fp32, on the validation examples."""
    verdict: Verdict
    test_loss: PairedLoss | None
    """Against the baseline in its own deployment, on the test examples."""
    trained_accuracy: float
    epochs: int

    @property
    def chosen(self) -> TriedDeployment:
        found = self.deployed.chosen
        assert found is not None
        return found


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything that is told of a run."""

    config: BaselineConfig
    folder: BaselineFolder
    teacher: TeacherNetwork
    limits: Limits
    untouched: Deployed
    untouched_test: Mapping[str, float] | None
    units: tuple[Unit, ...]
    """Of the baseline; empty where it is delivered as it is."""
    offers: tuple[Offer, ...]
    """One for each form, the baseline's own first."""
    shortlist: Shortlist | None
    tables: tuple[UnitTimes, ...]
    delivered: Delivered
    baseline_ms: float
    """What the baseline in its fastest deployment took beside the network that is delivered."""
    account: Mapping[str, float]
    teacher_epochs: Mapping[str, float]
    """By the stage of a training, what it cost, see `nas.baseline.price`; empty where nothing was trained."""
    notes: tuple[str, ...]
    site: Site

    @property
    def own(self) -> TriedDeployment:
        """The baseline's fastest deployment."""
        found = self.untouched.chosen
        assert found is not None
        return found

    def offer(self, proposal: Proposal) -> Offer:
        """Of the form of a network."""
        (found,) = (offer for offer in self.offers if offer.form == proposal.form)
        return found

    @property
    def limit_ms(self) -> float:
        return self.limits.call_limit_ms(1)

    @cached_property
    def speedup(self) -> float:
        """Against the baseline in its own fastest deployment."""
        return self.baseline_ms / self.delivered.chosen.p50_ms

    @cached_property
    def same_speedup(self) -> float | None:
        """Against the baseline in the deployment of what is delivered; None where that was not measured."""
        chosen = self.delivered.chosen.deployment
        same = [t for t in self.untouched.tried if t.deployment == chosen]
        if not same or not math.isfinite(same[0].p50_ms):
            return None
        # both as fast as the machine was when what is delivered was measured
        return self.speedup * same[0].p50_ms / self.own.p50_ms
