"""The check against published proxy scores, on a table and images made here."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from experiments.tabular.nb201 import Nb201Space
from experiments.zero_cost_check import PUBLISHED, main, spearman


def test_what_does_not_exist_does_not_count() -> None:
    ours = np.array([1.0, 2.0, 3.0, np.nan, 9.0])
    theirs = np.array([10.0, 20.0, 30.0, 0.0, -1e8])
    assert spearman(ours, theirs) == pytest.approx(1.0)


def test_page_is_resumed(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ops = np.array([[1, 0, 1, 2, 0, 4], [1, 1, 1, 1, 4, 1], [0, 0, 0, 2, 0, 0]] * 4)
    space = Nb201Space()
    names = [*PUBLISHED.values(), "zen"]
    proxies = rng.standard_normal((len(ops), len(names)))
    proxies[:, names.index("params")] = space.costs(ops)["params"] / 1e6
    np.savez(
        tmp_path / "nb201_zerocost_cifar10.npz",
        ops=ops.astype(np.uint8),
        prox_names=np.array(names),
        prox=proxies.astype(np.float32),
        val_acc=rng.random(len(ops)),
    )
    mosaic = rng.integers(0, 255, (25 * 32, 40 * 32, 3)).astype(np.uint8)
    Image.fromarray(mosaic).save(tmp_path / "train-00.webp", lossless=True, quality=0, method=0)
    np.savez(tmp_path / "labels.npz", train=np.arange(1000) % 10, test=np.zeros(0))
    scores, out = tmp_path / "scores.jsonl", tmp_path / "page.md"
    arguments = ["--data", str(tmp_path), "--images", str(tmp_path), "--out", str(out), "--scores", str(scores)]
    arguments += ["--networks", "10", "--batch", "4", "--twice", "4"]
    stopped = CliRunner().invoke(main, [*arguments, "--minutes", "0"], catch_exceptions=False)
    assert "too few networks" in stopped.output
    assert not out.exists()
    assert CliRunner().invoke(main, arguments, catch_exceptions=False).exit_code == 0
    assert "equal the published number, to the last one, in 10 of 10" in out.read_text()
    before = scores.read_text()
    assert len({json.loads(line)["key"] for line in before.splitlines()}) == 14
    CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert scores.read_text() == before
