"""The page of accuracy figures: resumable, made of the splits that are there, and it leaves the prose alone."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from experiments import accuracy_tables
from experiments.accuracy_tables import Bar, Benchmark, main, predictor_digest, with_section

PAGE = "# Title\n\nProse.\n\n## Results\nold\n\n## What was tried\nMuch.\n"


def test_only_the_section_is_replaced() -> None:
    assert with_section(PAGE, "Results", "new") == "# Title\n\nProse.\n\n## Results\nnew\n\n## What was tried\nMuch.\n"
    assert with_section("# Title\n", "Results", "new") == "# Title\n\n## Results\nnew\n"
    last = with_section("# T\n\n## Results\nold\n", "Results", "new")
    assert last == "# T\n\n## Results\nnew\n"
    assert with_section(last, "Results", "new") == last


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(0)
    ops = rng.integers(0, 3, (90, 5)).astype(np.uint8)
    np.savez(tmp_path / "t.npz", ops=ops, acc=ops.sum(1) + 0.1 * rng.standard_normal(90), params=ops[:, 0])
    tiny = Benchmark(
        key="tiny", name="Tiny", space="generic", choices="B/t.npz:ops", y="B/t.npz:acc", bars={20: Bar(0.5, 1.1)}
    )
    monkeypatch.setattr(accuracy_tables, "BENCHMARKS", (tiny,))
    return tmp_path


def test_measures_what_is_missing_and_writes_the_page(data: Path, tmp_path: Path) -> None:
    out, checkpoints = tmp_path / "page.md", tmp_path / "splits"
    out.write_text(PAGE)
    arguments = ["--data", str(data), "--out", str(out), "--checkpoints", str(checkpoints), "--seeds", "2"]
    first = CliRunner().invoke(main, [*arguments, "--minutes", "0"], catch_exceptions=False)
    assert "2 splits are still missing" in first.output
    assert CliRunner().invoke(main, arguments, catch_exceptions=False).exit_code == 0
    page = out.read_text()
    row = next(line for line in page.splitlines() if line.startswith("| Tiny | 20 | 2 |"))
    assert "| 0.500 | 1.100 | must |" in row
    assert "What was tried" in page
    files = sorted((checkpoints / predictor_digest()).glob("*.json"))
    assert [file.name for file in files] == ["tiny-20-0.json", "tiny-20-1.json"]
    kept = json.loads(files[0].read_text())
    kept["predictor"]["kendall"] = -1.0  # a split that is there is not measured again
    files[0].write_text(json.dumps(kept))
    CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert "**missed**" in out.read_text()
