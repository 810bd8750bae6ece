"""Short trainings beside full ones of the same networks: what is recorded once, and the table that is made of it."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from experiments.short_order import Record, cli, page
from tests.nas.small_runs import write_data


def test_the_page_says_how_well_each_estimate_orders() -> None:
    rng = np.random.default_rng(0)
    sizes = np.exp(rng.uniform(16, 19, 24))
    records = [
        Record(key=str(i), macs=s, params=s / 100, short=0.5 + 0.01 * i, short_s=10.0, full=0.6 + 0.01 * i, full_s=99.0)
        for i, s in enumerate(sizes)
    ]
    text = page(records)
    assert "24 networks" in text
    assert "| short training | 1.00 (1.00 to 1.00) |" in text
    assert "in 99 core-seconds each" in text


@pytest.mark.slow
def test_networks_are_trained_once_and_divided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    data = write_data(tmp_path / "data.npz", per_class=30)
    for part, out in (("0/2", "a.json"), ("1/2", "b.json")):
        command = [
            *("train", "--data", str(data), "--networks", "2", "--epochs", "1", "--budget", "60s"),
            *("--part", part, "--out", str(tmp_path / out)),
        ]
        done = CliRunner().invoke(cli, command, catch_exceptions=False)
        assert done.exit_code == 0
    first, second = (json.loads((tmp_path / name).read_text())["records"] for name in ("a.json", "b.json"))
    assert len({r["key"] for r in (*first, *second)}) == len(first) + len(second) == 2
    assert 0 <= first[0]["short"] <= 1
    assert first[0]["full_s"] > 0
    again = CliRunner().invoke(cli, command, catch_exceptions=False)
    assert again.exit_code == 0
    assert json.loads((tmp_path / "b.json").read_text())["records"] == second
    other = CliRunner().invoke(cli, [*command, "--epochs", "2"])
    assert "holds other trainings" in other.output
    shown = CliRunner().invoke(cli, ["page", str(tmp_path / "a.json"), str(tmp_path / "b.json")])
    assert "short training and MACs" in shown.output
