"""Scores of an untrained network from one mini-batch: cheap, noisy, and never trusted without calibration.

Each takes a network, a batch `(n, ...)` of what it takes and labels `(n,)` int64, returns one number (higher
should mean better) and leaves the network as it was: weights, buffers, gradients, mode, hooks. The same network and
batch give the same score, so a score is fixed by the seeds of the initialisation and of the batch. They serve as extra
inputs of the learned accuracy predictor, which weighs them by how well they hold on the data at hand.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nas.errors import UnknownNameError
from nas.evaluation.activation_proxies import naswot
from nas.evaluation.gradient_proxies import grad_norm, synflow
from nas.evaluation.proxy_scratch import NoScoreError
from nas.tasks import TASKS, TaskData, task_of
from nas.tasks.examples import some_for_input
from search_spaces import Architecture, SearchSpace

Proxy = Callable[[nn.Module, Tensor, Tensor], float]


PROXIES: Mapping[str, Proxy] = {
    "grad_norm": grad_norm,
    "synflow": synflow,
    "naswot": naswot,
}

DEFAULT_PROXIES = TASKS["classification"].proxies
"""Proxies that a search adds to the structure of its candidates, which says parameters and MACs already."""


def zero_cost_scores(
    network: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    names: Sequence[str] = DEFAULT_PROXIES,
    proxies: Mapping[str, Proxy] = PROXIES,
) -> NDArray[np.float64]:
    """Scores (len(names),); one that does not exist or is not finite is NaN, which a predictor treats as missing.

    So a batch of one class costs the scores that need labels, a network without ReLU its naswot, and a network with
    NaN weights all that look at them. Raises `UserError` for a batch that is wrong for any network (labels out of
    range, a single input) and `UnknownNameError` for a name that is not in `proxies`.
    """
    for name in names:
        if name not in proxies:
            raise UnknownNameError("zero-cost proxy", name, proxies)
    scores = np.full(len(names), np.nan)
    for at, name in enumerate(names):
        try:
            scores[at] = proxies[name](network, inputs, labels)
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
    split = some_for_input(data, "train", space.signature(arch, data.output_size).input, images, seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = space.build(arch, data.output_size)
    batch = torch.from_numpy(data.inputs(split))
    return zero_cost_scores(network, batch, torch.from_numpy(task.proxy_labels(split)), task.proxies)
