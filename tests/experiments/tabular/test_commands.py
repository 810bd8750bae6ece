"""The table commands on small made-up files: figures, alignment, and what a user can do wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.tabular.__main__ import main
from experiments.tabular.tables import judge, parse_specs, random_split, usable_rows
from search_spaces.errors import UserError


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """120 cells; `gpu` and `cpu` cost by operation, `phone` is a mix of the two, `broken` has holes."""
    rng = np.random.default_rng(3)
    ops = rng.integers(0, 5, (120, 6))
    gpu = 4 + np.array([0.2, 0.3, 1.0, 1.2, 0.8])[ops].sum(1)
    cpu = 4 + np.array([0.0, 0.1, 1.0, 6.0, 0.5])[ops].sum(1)
    phone = 0.5 * gpu + 0.5 * cpu
    broken = gpu.copy()
    broken[:7] = [np.nan, 0, -1, np.nan, 0, np.inf, np.nan]
    path = tmp_path / "cells.npz"
    np.savez(path, ops=ops, gpu=gpu, cpu=cpu, phone=phone, broken=broken, name=np.array(["a"] * 120))
    return path


def _json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_latency_prints_the_promised_figures(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = _json(capsys, "latency", "--choices", f"{table}:ops", "--y", f"{table}:gpu", "--n", "20", "--seeds", "2")
    promised = {"mape", "within_5pct", "within_10pct", "spearman", "kendall", "constant_within_10pct"}
    assert promised <= result.keys()
    assert list(result["methods"]) == ["additive", "constant", "ridge", "gp"]
    assert result["space"] == "nb201"
    assert result["within_10pct"] > 95  # additive without noise
    assert result["within_10pct"] > result["constant_within_10pct"]


def test_the_same_seeds_give_the_same_figures(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("latency", "--choices", f"{table}:ops", "--y", f"{table}:gpu", "--n", "15", "--seeds", "2")
    assert _json(capsys, *arguments)["mape"] == _json(capsys, *arguments)["mape"]


def test_unusable_rows_are_dropped_and_counted(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = _json(capsys, "latency", "--choices", f"{table}:ops", "--y", f"{table}:broken", "--seeds", "1")
    assert (result["rows"], result["dropped"]) == (113, 7)


def test_summed_columns_are_one_device(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = _json(capsys, "latency", "--choices", f"{table}:ops", "--y", f"{table}:gpu+cpu", "--seeds", "1")
    assert [device["y"] for device in result["devices"]] == ["cells.npz:gpu+cpu"]


def test_transfer_matches_rows_of_another_file_by_their_choices(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with np.load(table) as columns:
        order = np.random.default_rng(1).permutation(120)[:90]
        target = tmp_path / "target.npz"
        np.savez(target, ops=columns["ops"][order], phone=columns["phone"][order])
    result = _json(
        capsys,
        *("transfer", "--choices", f"{table}:ops", "--sources", f"{table}:gpu,{table}:cpu"),
        *("--choices-target", f"{target}:ops", "--y", f"{target}:phone", "--n", "10", "--seeds", "2"),
    )
    assert result["spearman"] > 0.95
    # the phone is exactly a mix of the two sources: a row matched wrongly would show here
    assert result["methods"]["nonneg_mix"]["within_5pct"] == 100


def test_transfer_leaves_the_target_out_of_its_sources(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = f"{table}:gpu,cpu,phone"
    result = _json(
        capsys,
        *("transfer", "--choices", f"{table}:ops", "--sources", columns, "--y", columns, "--n", "10", "--seeds", "1"),
    )
    assert [device["sources"] for device in result["devices"]] == [2, 2, 2]


def test_a_table_for_people(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["latency", "--choices", f"{table}:ops", "--y", f"{table}:gpu", "--seeds", "1"]) == 0
    out = capsys.readouterr().out
    assert "Spearman" in out
    assert "additive" in out


@pytest.mark.parametrize(
    ("choices", "y", "sentence"),
    [
        ("{t}:ops", "{t}:gppu", "unknown column of cells.npz 'gppu'"),
        ("{t}:ops", "nowhere.npz:gpu", "no file 'nowhere.npz'"),
        ("{t}:ops", "gpu", "write FILE.npz:COLUMN"),
        ("{t}:ops", "{t}:name", "holds text"),
        ("{t}:ops", "{t}:ops", "is not a vector"),
    ],
)
def test_a_wrong_column_is_a_sentence(
    table: Path, capsys: pytest.CaptureFixture[str], choices: str, y: str, sentence: str
) -> None:
    assert main(["latency", "--choices", choices.format(t=table), "--y", y.format(t=table)]) == 1
    captured = capsys.readouterr()
    assert sentence in captured.err
    assert captured.out == ""


def test_a_pickled_table_is_not_opened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "objects.npz"
    np.savez(path, ops=np.array([{"a": 1}, None], dtype=object))
    assert main(["latency", "--choices", f"{path}:ops", "--y", f"{path}:ops"]) == 1
    assert "holds objects" in capsys.readouterr().err


def test_too_many_training_rows_are_refused(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["latency", "--choices", f"{table}:ops", "--y", f"{table}:gpu", "--n", "120"]) == 1
    assert "leave nothing" in capsys.readouterr().err


def test_wrong_usage_has_its_own_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["latency"]) == 2
    assert "--choices" in capsys.readouterr().err


def test_specs_carry_the_file_on() -> None:
    specs = parse_specs("a.npz:x,y+z,b.npz:w")
    assert [(str(spec.path), spec.columns) for spec in specs] == [
        ("a.npz", ("x",)),
        ("a.npz", ("y", "z")),
        ("b.npz", ("w",)),
    ]


def test_split_has_no_row_twice_and_none_of_a_training_group() -> None:
    groups = np.repeat(np.arange(20), 3)
    split = random_split(np.arange(60), n=10, seed=0, groups=groups)
    assert len(set(split.train)) == 10
    assert not set(groups[split.train]) & set(groups[split.test])


def test_rows_far_below_the_median_can_be_dropped() -> None:
    latency = np.array([10.0, 11.0, 9.0, 0.1])
    assert usable_rows(latency, 0.0).tolist() == [0, 1, 2, 3]
    assert usable_rows(latency, 0.02).tolist() == [0, 1, 2]
    with pytest.raises(UserError, match="no positive value"):
        usable_rows(np.array([0.0, np.nan]), 0.0)


def test_judge_by_hand() -> None:
    figures = judge(np.array([1.04, 2.16, 3.0]), np.array([0.1, 0.01, 0.1]), np.array([1.0, 2.0, 3.0]))
    assert figures["mape"] == pytest.approx(4.0)
    assert figures["within_5pct"] == pytest.approx(200 / 3)
    assert figures["within_10pct"] == pytest.approx(100)
    assert figures["spearman"] == pytest.approx(1)
    assert figures["coverage_90pct"] == pytest.approx(200 / 3)


def test_a_constant_orders_nothing() -> None:
    assert judge(np.ones(4), np.ones(4), np.arange(1.0, 5.0))["spearman"] == 0
