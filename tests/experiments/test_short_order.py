"""Short trainings beside full ones of the same networks: what is recorded once, and the table that is made of it."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from experiments import short_order
from experiments.short_order import Record, cli, drawn, page, recipes_of
from nas.controller.config import SearchConfig
from nas.controller.planning.throughput import TrainingThroughput
from nas.limits import Limits
from tests.nas.small_runs import write_data

ROOT = Path(__file__).parents[2]


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


def test_the_documented_table_is_of_the_recorded_networks() -> None:
    recorded = json.loads((ROOT / "experiments/data/short_order_imagenette.json").read_text())
    records = [Record(**record) for record in recorded["records"]]
    assert len({record.key for record in records}) == 24
    assert page(records) in (ROOT / "docs/accuracy.md").read_text()


THROUGHPUT = TrainingThroughput("cpu", "fp32", work_s=0.1).to_json()


def test_processes_divide_the_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(short_order, "DRAWN", 24)
    data = write_data(tmp_path / "data.npz")
    config = SearchConfig(data=str(data), space="compact", budget_s=600.0, limits=Limits.of(latency_ms=1.0))
    recipes = recipes_of(config, THROUGHPUT)
    whole = {a.key for a in drawn(recipes, 24, 0, 0, 1)}
    parts = [[a.key for a in drawn(recipes, 24, 0, number, 2)] for number in (0, 1)]
    assert set(parts[0]) | set(parts[1]) == whole
    assert len(parts[0]) + len(parts[1]) == len(whole)
    assert len(drawn(recipes, 5, 0, 1, 2)) == 2


@pytest.mark.slow
def test_a_network_is_trained_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(short_order, "DRAWN", 16)
    data, out = write_data(tmp_path / "data.npz"), tmp_path / "a.json"
    known = {"data": "data.npz", "space": "compact", "budget_s": 60.0, "epochs": 1, "seed": 0, "records": []}
    out.write_text(json.dumps({**known, "throughput": THROUGHPUT}))
    command = ["train", "--data", str(data), "--networks", "1", "--epochs", "1", "--budget", "60s", "--out", str(out)]
    assert CliRunner().invoke(cli, command, catch_exceptions=False).exit_code == 0
    (record,) = json.loads(out.read_text())["records"]
    assert 0 <= record["short"] <= 1
    assert record["full_s"] > 0
    assert CliRunner().invoke(cli, command, catch_exceptions=False).exit_code == 0
    assert json.loads(out.read_text())["records"] == [record]
    assert "holds other trainings" in CliRunner().invoke(cli, [*command, "--epochs", "2"]).output
    assert "short training and MACs" in CliRunner().invoke(cli, ["page", str(out)]).output
