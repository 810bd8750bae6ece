"""Recording learning curves and judging their extrapolation."""

import json
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from experiments.learning_curves import judgement, main


def test_records_once_and_keeps_to_its_recipe(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        f"x_{split}": rng.integers(0, 255, (20, 32, 32, 3)).astype(np.uint8) for split in ("train", "val", "test")
    }
    labels = {f"y_{split}": np.arange(20) % 2 for split in ("train", "val", "test")}
    np.savez(tmp_path / "noise.npz", **arrays, **labels)
    out = tmp_path / "curves.json"
    arguments = ["--data", str(tmp_path / "noise.npz"), "--out", str(out), "--networks", "2", "--epochs", "2"]
    first = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert "2 of 2 networks, 2 curves" in first.output
    curves = json.loads(out.read_text())["curves"]
    assert all(len(curve) == 2 for curve in curves.values())
    before = out.read_text()
    assert CliRunner().invoke(main, arguments, catch_exceptions=False).exit_code == 0
    assert out.read_text() == before
    other = CliRunner().invoke(main, [*arguments[:-1], "3"])
    assert other.exit_code == 1
    assert "another recipe" in other.output


def test_judgement_of_curves_that_keep_their_order() -> None:
    end = np.linspace(0.4, 0.9, 12)[:, None]
    curves = 0.1 + (end - 0.1) * (1 - np.exp(-0.7 * np.arange(1, 7)[None]))
    lines = judgement(curves).splitlines()
    assert len(lines) == 1 + 5 + 1
    assert lines[4].split()[3] == "1.00"  # Kendall tau after four epochs
    assert "0 of 2 good ones lost" in lines[-1]
