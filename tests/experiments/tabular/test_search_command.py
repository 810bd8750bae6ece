"""Samplers on a complete table made here."""

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from experiments.tabular.__main__ import cli, main
from experiments.tabular.commands.search import load_task
from experiments.tabular.commands.search_runs import MODES, TABLE_SAMPLERS, run_search
from experiments.tabular.table_space import TableSpace
from search_spaces.errors import UserError


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four decisions with values 1, 3, 5, 7; the rows are shuffled."""
    rng = np.random.default_rng(0)
    ops = rng.permutation(np.array(list(product((1, 3, 5, 7), repeat=4))))
    accuracy = 60 + 8 * np.log(ops @ np.array([1.0, 2.0, 1.0, 0.5])) + 0.2 * rng.standard_normal(256)
    latency = 1 + ops @ np.array([0.5, 0.2, 1.0, 0.1]) * np.exp(0.02 * rng.standard_normal(256))
    path = tmp_path_factory.mktemp("tables") / "table.npz"
    np.savez(path, ops=ops.astype(np.uint8), acc=accuracy, lat=latency, short=accuracy[:200], zero=0 * latency)
    return path


def arguments(table: Path, *more: str) -> list[str]:
    return ["search", "--choices", f"{table}:ops", "--accuracy", f"{table}:acc", "--latency", f"{table}:lat", *more]


def test_document(table: Path, tmp_path: Path) -> None:
    options = ["--evals", "25", "--seeds", "2", "--samplers", "surrogate,random,local", "--runs", str(tmp_path / "r")]
    first = CliRunner().invoke(cli, arguments(table, *options, "--json"), catch_exceptions=False)
    result = json.loads(first.stdout)
    assert list(result["samplers"]) == ["surrogate", "random", "local"]
    for by_count in result["samplers"].values():
        assert list(by_count) == ["20", "25"]
        for row in by_count.values():
            assert row["regret"] >= 0
            assert 0 < row["hypervolume"] <= 1
            assert 0 <= row["violations"] <= 25
            assert row["seconds_per_proposal"] > 0
    assert result["samplers"]["surrogate"]["25"]["regret"] <= result["samplers"]["random"]["25"]["regret"]
    assert len(list((tmp_path / "r").glob("*.json"))) == 3 * 2 * 2
    shorter = ["--evals", "20", *options[2:]]
    again = CliRunner().invoke(cli, arguments(table, *shorter, "--json"), catch_exceptions=False)
    for name, by_count in json.loads(again.stdout)["samplers"].items():
        assert by_count["20"]["regret"] == result["samplers"][name]["20"]["regret"], "recorded searches are used"


def test_text(table: Path) -> None:
    result = CliRunner().invoke(cli, arguments(table, "--evals", "6", "--seeds", "1", "--samplers", "random"))
    assert "s / proposal" in result.stdout
    assert "random" in result.stdout


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sampler", TABLE_SAMPLERS)
def test_no_sampler_looks_at_networks_it_has_not_evaluated(sampler: str, mode: str, table: Path) -> None:
    """With other entries for all networks not yet evaluated, the next proposal is the same."""
    task = load_task(f"{table}:ops", f"{table}:acc", f"{table}:lat", 0.5)
    evals = 13
    run = run_search(task, sampler, 1, evals, mode)  # type: ignore[arg-type]
    unseen = np.setdiff1d(np.arange(256), run.rows[: evals - 1])
    changed = np.random.default_rng(2).permutation(unseen)
    accuracy, latency_ms = task.accuracy.copy(), task.latency_ms.copy()
    accuracy[unseen], latency_ms[unseen] = accuracy[changed], latency_ms[changed]
    other = type(task)(task.name, task.space, accuracy, latency_ms, task.limit_ms)
    assert run_search(other, sampler, 1, evals, mode).rows == run.rows  # type: ignore[arg-type]
    assert len(set(run.rows)) == evals


def test_figures_of_everything(table: Path) -> None:
    task = load_task(f"{table}:ops", f"{table}:acc", f"{table}:lat", 0.5)
    every = np.arange(256)
    assert task.regret(every) == 0
    assert task.relative_hypervolume(every) == pytest.approx(1)
    over = every[task.latency_ms > task.limit_ms]
    assert task.regret(over) == pytest.approx(task.best_accuracy - task.accuracy.min())


def test_rows_are_found_by_their_choices(table: Path) -> None:
    with np.load(table) as arrays:
        ops = arrays["ops"].astype(np.int64)
    space = TableSpace.of_table(ops)
    indices = np.searchsorted([1, 3, 5, 7], ops)
    assert (space.row(indices) == np.arange(256)).all()
    assert space.size == 256
    assert space.name == "generic"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (["--samplers", "surrogat"], "unknown sampler 'surrogat'"),
        (["--accuracy", "{t}:short"], "the accuracy column has shape (200,), the table 256 rows"),
        (["--latency", "{t}:zero"], "a latency of 0 ms is not positive"),
        (["--choices", "{t}:ops,acc"], "not a matrix of integers"),
        (["--limit-quantile", "0"], "--limit-quantile 0 is no share"),
        (["--seeds", "0"], "--seeds 0 is no positive number"),
        (["--space", "nb201"], "are not from 'nb201'"),
    ],
)
def test_bad_input_is_one_sentence(
    changed: list[str], message: str, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(table, *[part.format(t=table) for part in changed])) == 1
    assert message in capsys.readouterr().err


def test_a_table_with_gaps_is_refused() -> None:
    with pytest.raises(UserError, match="15 rows for 16 combinations"):
        TableSpace.of_table(np.array(list(product((0, 1), repeat=4)))[:-1])
