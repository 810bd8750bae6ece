"""The comparison with a plain script, on a handful of images."""

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from experiments.time_to_accuracy import main, shifted
from tests.nas.evaluation.small import write_coloured_images


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_coloured_images(tmp_path / "colours.npz", train=96, val=32)


def run(*arguments: object) -> str:
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_both_train_the_same_network_and_rows_are_kept(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    arguments = (data, "--network", "resnet10_w50", "--json", out)
    first = run(*arguments, "--plain", 6, "--ours", 1)
    rows = json.loads(out.read_text())
    assert [(row["by"], row["epochs"]) for row in rows] == [("plain script", 6), ("classification-search", 1)]
    assert rows[0]["accuracy"] > 0.5, "of three classes"
    assert all(row["core_seconds"] > 0 for row in rows)
    assert "| plain script | 6 | 0 |" in first
    assert run(*arguments, "--plain", 6, "--ours", 1) == first, "nothing is made again"
    out.write_text(json.dumps([{**rows[0], "network": "another"}]))
    run(*arguments, "--plain", 6, "--ours", 1)
    assert len(json.loads(out.read_text())) == 3, "rows of another network are other rows"


def test_a_batch_is_shifted_as_a_whole() -> None:
    torch.manual_seed(0)
    inputs = torch.arange(2 * 3 * 8 * 8, dtype=torch.float32).reshape(2, 3, 8, 8)
    assert shifted(inputs, 0).sum() == inputs.sum()
    found = shifted(inputs, 2)
    assert found.shape == inputs.shape
    assert torch.equal(found[1, 2] - found[0, 0], torch.full((8, 8), float(5 * 64))), "both in the same way"
