"""Scores of an untrained network from one mini-batch: cheap, noisy, and never trusted without calibration.

Each takes a network, normalised images `(n, 3, h, w)` float32 and labels `(n,)` int64, returns one number (higher
should mean better) and leaves the network as it was: weights, buffers, gradients, mode, hooks. The same network and
batch give the same score, so a score is fixed by the seeds of the initialisation and of the batch. They serve as extra
inputs of the learned accuracy predictor, which weighs them by how well they hold on the data at hand.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from nas.errors import UnknownNameError
from nas.evaluation.activation_proxies import jacob_cov, naswot
from nas.evaluation.gradient_proxies import grad_norm, snip, synflow, zico
from nas.evaluation.proxy_scratch import NoScoreError, scoring
from nas.tasks import TASKS, TaskData, task_of
from search_spaces import Architecture, SearchSpace

Proxy = Callable[[nn.Module, Tensor, Tensor], float]


def params(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Number of parameters; the baseline that every other score must beat."""
    return float(sum(p.numel() for p in network.parameters()))


def macs(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Multiply-adds of convolutions and matrix products for one image, branches as they are while training."""
    with scoring(network) as copied, torch.no_grad(), FlopCounterMode(display=False) as counter:
        copied.eval()(images[:1])
    return float(counter.get_total_flops()) / 2


PROXIES: Mapping[str, Proxy] = {
    "params": params,
    "macs": macs,
    "grad_norm": grad_norm,
    "snip": snip,
    "synflow": synflow,
    "jacob_cov": jacob_cov,
    "naswot": naswot,
    "zico": zico,
}

DEFAULT_PROXIES = TASKS["classification"].proxies
"""What a search adds to the structure of its candidates, which says parameters and MACs already."""


def zero_cost_scores(
    network: nn.Module, images: Tensor, labels: Tensor, names: Sequence[str] = DEFAULT_PROXIES
) -> NDArray[np.float64]:
    """Scores (len(names),); one that does not exist or is not finite is NaN, which a predictor treats as missing.

    So a batch of one class costs the scores that need labels, a network without ReLU its naswot, and a network with
    NaN weights all that look at them. Raises `UserError` for a batch that is wrong for any network (labels out of
    range, a single image) and `UnknownNameError` for a name that is not in `PROXIES`.
    """
    for name in names:
        if name not in PROXIES:
            raise UnknownNameError("zero-cost proxy", name, PROXIES)
    scores = np.full(len(names), np.nan)
    for at, name in enumerate(names):
        try:
            scores[at] = PROXIES[name](network, images, labels)
        except NoScoreError:
            continue
    return np.where(np.isfinite(scores), scores, np.nan)


def candidate_scores(
    space: SearchSpace, data: TaskData, arch: Architecture, images: int, seed: int
) -> NDArray[np.float64]:
    """The scores of an untrained network that its task's `proxies` name, on `images` training images drawn by `seed`.

    The initialisation is drawn by `seed` too; torch's global random state is left as it was.
    """
    task = task_of(data)
    split = data.at("train", space.resolution(arch)).some(images, seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = space.build(arch, data.num_classes)
    batch = torch.from_numpy(data.preprocess.array(split.images))
    return zero_cost_scores(network, batch, torch.from_numpy(task.proxy_labels(split)), task.proxies)


def rank_aggregate(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """One score (n,) from several (n, k): the sum over columns of log(rank / n), rank n for the best.

    The non-linear aggregate of AZ-NAS (Lee & Ham 2024, https://arxiv.org/abs/2403.19232): the logarithm makes a low
    rank in one column weigh more than a high one in another, so that no single proxy decides. It needs the candidates
    to compare with. Ties share their mean rank; NaN counts as the lowest.
    """
    from scipy.stats import rankdata

    lowest_first = np.where(np.isnan(scores), -np.inf, scores)
    ranks: NDArray[np.float64] = rankdata(lowest_first, axis=0)
    total: NDArray[np.float64] = np.log(ranks / len(scores)).sum(axis=1)
    return total
