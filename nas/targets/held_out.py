"""How far a profile's predictions are off on networks that were not used for fitting."""

import numpy as np
from numpy.typing import NDArray

from nas.deployment import Deployment
from nas.targets.fitting import costs_of, slots_of, training_data, usual_latency_ms
from nas.targets.profile import DeviceProfile, HeldOutError
from predictors.block_latency import MIN_NETWORKS, BlockLatencyPredictor
from predictors.block_table import NetworkBlocks


def held_out_error(profile: DeviceProfile, deployment: Deployment, every: int = 4) -> HeldOutError | None:
    """Fit on all but one in `every` networks of the profile and evaluate on those; None with too few of either.

    A profile's spaces take turns, and so do the places in each group of `every` networks that are held out: else all
    of them could be of one space.
    Held-out networks with blocks that none of the others has are left out: nothing is said of such.
    """
    table = profile.table(deployment)
    latency = usual_latency_ms(profile, table) if table else np.array([])
    measured = np.flatnonzero(np.isfinite(latency))
    held = (measured + measured // every) % every == every - 1
    train = measured[~held]
    if len(train) < MIN_NETWORKS:
        return None
    kinds = slots_of([profile.networks[i] for i in train], profile.output_size).occurring
    others = slots_of([profile.networks[i] for i in measured[held]], profile.output_size)
    known = np.array([family.name in kinds for family in others.families])[others.kind] | (others.count == 0)
    test = measured[held][known.all(axis=1)]
    if len(test) < 3:
        return None
    from scipy.stats import kendalltau

    fitted = BlockLatencyPredictor().fit(*training_data(profile, deployment, train))
    unseen = NetworkBlocks.of(slots_of([profile.networks[i] for i in test], profile.output_size))
    predicted, truth = fitted.predict(unseen).mean, latency[test]
    log_macs = np.log(costs_of(profile.networks, profile.output_size)["macs"])
    slope = np.polyfit(log_macs[train], np.log(latency[train]), 1)
    macs_only = np.exp(np.polyval(slope, log_macs[test]))

    def hits(prediction: NDArray[np.float64] | np.floating, tolerance: float) -> float:
        return float((np.abs(prediction / truth - 1) <= tolerance).mean())

    return HeldOutError(
        networks=len(test),
        mape=float(np.abs(predicted / truth - 1).mean()),
        within_5pct=hits(predicted, 0.05),
        within_10pct=hits(predicted, 0.10),
        kendall_tau=float(np.nan_to_num(kendalltau(predicted, truth).statistic)),  # NaN where all take equally long
        constant_within_10pct=hits(np.median(latency[train]), 0.10),
        macs_within_10pct=hits(macs_only, 0.10),
    )
