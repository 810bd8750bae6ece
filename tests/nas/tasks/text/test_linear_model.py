"""The wide path computes the linear model that it begins as."""

import numpy as np
import torch

from nas.tasks import TASKS
from nas.tasks.text.linear_model import begin_wide
from search_spaces import resolve_space
from search_spaces.modules import folded
from tests.nas.tasks.text.sentences import text_data


def test_a_network_begins_as_a_good_linear_model() -> None:
    data, space = text_data(600), resolve_space("text")
    bag = space.restricted({"tokens": [16], "vocab": [1000]}).anchors[0]
    split = data.for_input("train", space.signature(bag, (2,)).input)
    ids = split.ids.astype(np.int64)
    found = []
    for _ in range(2):
        torch.manual_seed(0)
        network = space.build(bag, (2,))
        begin_wide(network, data.preprocess, ids, split.labels, 2, weights=None)
        found.append(network.wide(torch.from_numpy(ids)).detach())  # type: ignore[union-attr,operator]
    network.eval()
    wide = network.wide(torch.from_numpy(ids)).detach()  # type: ignore[union-attr,operator]
    assert (wide.argmax(1).numpy() == split.labels).mean() > 0.95
    val = data.for_input("val", split.input)
    scores = network.wide(torch.from_numpy(val.ids.astype(np.int64)))  # type: ignore[union-attr,operator]
    assert (scores.argmax(1).numpy() == val.labels).mean() > TASKS["text"].floors(data, 0)[0].accuracy + 0.2
    before = network.wide.words.weight.clone()  # type: ignore[union-attr,operator]
    begin_wide(network, data.preprocess, ids, 1 - split.labels, 2, weights=None)
    torch.testing.assert_close(network.wide.words.weight, before)  # type: ignore[union-attr,operator]
    assert torch.isfinite(folded(network)(torch.zeros(1, 16, dtype=torch.int64))).all()


def test_features_are_summed_in_the_table_of_their_tokens() -> None:
    """An entry that stands for others has their scores; tables, looked up and summed, tell the classes apart."""
    from nas.tasks.text.linear_model import fitted_tables

    rng = np.random.default_rng(0)
    labels = np.arange(60) % 2
    entries = rng.integers(1, 4, (60, 6)) + 3 * labels[:, None] * (rng.random((60, 6)) < 0.5)
    (table,), constants = fitted_tables([entries], [8], [(i,) for i in range(7)] + [(7, 1, 2)], labels, 2, weights=None)
    assert table.shape == (8, 3)
    np.testing.assert_allclose(table[7], table[1] + table[2], atol=1e-12)  # no text has entry 7 itself
    assert (table[1:, 2] > 0).all()
    sums = table[entries].sum(1)
    scores = sums[:, :2] / np.sqrt(sums[:, 2:]) + constants
    assert ((scores[:, 1] > scores[:, 0]) == (labels == 1)).mean() > 0.9
