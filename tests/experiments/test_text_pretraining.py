import numpy as np
import pytest
import torch

from experiments.text_gate import architecture
from experiments.text_pretraining import pretrain, states
from search_spaces import TextSpace, resolve_space
from search_spaces.text_modules import PAD, TextNetwork


@pytest.mark.parametrize("kind", ["bag", "text CNN", "transformer 2 x 128"])
def test_hidden_tokens_are_learnt_from_what_is_around_them(kind: str) -> None:
    """Texts of runs: a hidden token is one more or less than its neighbours."""
    space = resolve_space("text")
    assert isinstance(space, TextSpace)
    arch = architecture(space, kind, "none", 32, 2000)
    torch.manual_seed(0)
    network = space.build(arch, (2,))
    assert isinstance(network, TextNetwork)
    starts = np.random.default_rng(0).integers(1, 40, (256, 1))
    ids = torch.from_numpy(starts + np.arange(32)).long()
    ids[:, 20:] = PAD
    head = network.head.state_dict()["linear.weight"].clone()
    losses = pretrain(network, ids, 4, 0, torch.device("cpu"))
    assert losses[-1] < 0.7 * losses[0]
    assert torch.equal(network.head.state_dict()["linear.weight"], head), "labels come later"
    seen = states(network, ids[:2], (ids[:2] != PAD).float())
    assert seen.shape[:2] == (2, 32)
