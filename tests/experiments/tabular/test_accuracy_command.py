"""The table command, on tables made here."""

import json
from pathlib import Path

import numpy as np
import pytest

from experiments.tabular.commands.accuracy import load_table, main, score


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    ops = rng.integers(0, 3, (300, 5))
    accuracy = ops @ np.array([1.0, 2.0, 0.5, 0.1, 1.5]) + 0.2 * rng.standard_normal(300)
    index = rng.permutation(300)[:200]
    proxies = np.column_stack([accuracy, rng.standard_normal(300)])[index]
    path = tmp_path / "table.npz"
    np.savez(path, ops=ops.astype(np.uint8), acc=accuracy, idx=index, prox=proxies, params=ops.sum(1), names=["a"])
    return path


def test_json_has_the_scores_and_the_baselines(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["--choices", f"{table}:ops", "--y", f"{table}:acc", "--n", "40", "--seeds", "2", "--fast", "--json"]
    assert main(args) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["space"] == "generic"
    assert report["kendall"] > 0.8
    assert set(report["baselines"]) == {"params", "gp on one-hot ranks", "histogram boosting"}
    assert report["kendall"] > report["baselines"]["params"]["kendall"]
    assert 0.0 <= report["coverage_90"] <= 1.0
    assert report["test_rows"] == 260


def test_rows_align_the_longer_columns(table: Path) -> None:
    loaded = load_table(f"{table}:ops", f"{table}:acc", f"{table}:prox", f"{table}:idx")
    assert loaded.choices.shape == (200, 5)
    assert loaded.extra is not None
    np.testing.assert_array_equal(loaded.extra[:, 0], loaded.accuracy)
    assert loaded.extra_names == ("prox[0]", "prox[1]")
    assert loaded.costs["params"].shape == (200,)


def test_text_lists_every_predictor(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = f"{table}:ops"
    assert main(["--choices", spec, "--y", f"{table}:acc", "--n", "20", "--seeds", "1", "--fast"]) == 0
    out = capsys.readouterr().out
    for title in ("predictor", "params", "gp on one-hot ranks", "histogram boosting", "candidates per core-s"):
        assert title in out


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (["--choices", "{t}:op"], "did you mean 'ops'"),
        (["--choices", "{t}:acc"], "are not integers"),
        (["--choices", "nowhere.npz:ops"], "there is no file 'nowhere.npz'"),
        (["--choices", "ops"], "names no file"),
        (["--extra", "{t}:prox"], "has 200 rows, the choices have 300"),
        (["--n", "300"], "leaves no test rows"),
        (["--n", "3"], "too few"),
        (["--seeds", "0"], "no positive number"),
        (["--space", "nb201"], "are not from 'nb201'"),
        (["--space", "nb2O1"], "unknown space 'nb2O1'"),
    ],
)
def test_bad_input_is_one_sentence(
    changed: list[str], message: str, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["--choices", f"{table}:ops", "--y", f"{table}:acc", *[part.format(t=table) for part in changed]]
    assert main(args) == 1
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


def test_scores_of_a_perfect_and_of_an_inverted_ranking() -> None:
    accuracy = np.arange(200.0)
    perfect = score(accuracy, np.ones(200), accuracy)
    assert (perfect.kendall, perfect.top1pct_hit, perfect.top1pct_overlap, perfect.regret_of_best) == (1.0, 1, 1, 0)
    assert perfect.coverage_90 == 1.0
    inverted = score(-accuracy, None, accuracy)
    assert (inverted.kendall, inverted.top1pct_hit, inverted.regret_of_best) == (-1.0, 0.0, 199.0)
    assert np.isnan(inverted.coverage_90)
