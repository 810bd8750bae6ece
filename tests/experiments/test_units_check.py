"""The table of networks that were taken apart."""

from pathlib import Path

from click.testing import CliRunner

from experiments.units_check import Row, all_names, main, page


def test_page_counts_what_split(tmp_path: Path) -> None:
    rows = [Row("a", 10, 8, 0.1), Row("b", 3, 2, 0.2), Row("c", 0, 0, 0.3, "cannot be traced")]
    text = page(rows)
    assert "Of 3 networks" in text
    assert " 2 split into units" in text
    assert " 1 of them have" in text
    assert "| c | cannot be traced | - | 0.3 |" in text
    assert len(set(all_names())) == len(all_names()) == 78


def test_a_network_is_taken_apart(tmp_path: Path) -> None:
    line = ["--network", "torchvision:squeezenet1_1", "--out", str(tmp_path / "units.md")]
    done = CliRunner().invoke(main, line, catch_exceptions=False)
    assert done.output == "torchvision:squeezenet1_1: 10\n"
    assert "| torchvision:squeezenet1_1 | 10 | 8 |" in (tmp_path / "units.md").read_text()
