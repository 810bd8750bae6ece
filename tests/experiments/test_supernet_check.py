"""The comparison of estimates with trained networks, on a handful of tiny trainings."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.stats import kendalltau

from experiments.supernet_check import Part, main
from experiments.supernet_page import tau_interval
from tests.nas.evaluation.small import write_coloured_images


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_coloured_images(tmp_path / "colours.npz", train=32, val=16)


def run(*arguments: object) -> str:
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.slow
def test_from_trainings_to_the_page(data: Path, tmp_path: Path) -> None:
    networks, out = tmp_path / "networks.json", tmp_path / "page.md"
    common = ("--data", data, "--networks-file", networks)
    train = ("train-alone", *common, "--epochs", 2, "--batch", 16, "--widths", 1, "--depth", 1)
    run(*train, "--networks", 2)
    first = json.loads(networks.read_text())["networks"]
    run(*train, "--networks", 5)  # goes on
    document = json.loads(networks.read_text())
    assert document["networks"][:2] == first
    assert len({record["key"] for record in document["networks"]}) == 5
    for record in document["networks"]:
        assert len(record["curve"]) == 2
        assert record["core_seconds"] > 0
    other = CliRunner().invoke(main, [*map(str, train[:-1]), "2"])
    assert other.exit_code == 1
    assert "holds networks of another part" in other.output
    arguments = ("compare", *common, "--out", out, "--work", tmp_path / "work", "--steps", 2, "--batch", 16)
    arguments += ("--adapt", 1, "--adapt", 2, "--short", 2)
    run(*arguments)
    page = out.read_text()
    for name in (
        "parameters",
        "MACs",
        "naswot",
        "rank aggregate",
        "learned predictor, structure and proxies",
        "first 1 of 2 epochs",
        "2 steps from scratch",
        "supernet",
        "supernet, 1 steps of each path alone",
        "supernet, 2 steps of each path alone, by its loss",
    ):
        assert f"\n| {name}" in page
    assert out.with_suffix(".svg").read_text().count("<circle") >= 10
    assert "step" not in run(*arguments, "--again", networks)  # everything is known already
    assert "trained a second time" in out.read_text()


def test_the_same_networks_are_drawn_for_any_count() -> None:
    part = Part()
    drawn = part.draw(6, seed=1)
    assert part.draw(3, seed=1) == drawn[:3]
    space = part.restricted()
    assert part.affordable(space.choices(drawn)).all()
    assert not part.affordable(space.sample(300, np.random.default_rng(0))).all()


def test_tau_comes_with_how_sure_it_is() -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(size=24)
    guessed = np.round(truth + rng.normal(size=24))  # with ties
    tau, low, high = tau_interval(guessed, truth)
    assert low < tau < high
    drawn = np.random.default_rng(0).integers(24, size=(1000, 24))
    one_by_one = [kendalltau(guessed[rows], truth[rows]).statistic for rows in drawn]
    np.testing.assert_allclose((low, high), np.quantile(one_by_one, [0.05, 0.95]))
    assert np.isnan(tau_interval(np.ones(5), truth[:5])[0])
