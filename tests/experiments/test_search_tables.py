"""The page that compares samplers: its verdicts and its plot, from figures made here."""

from itertools import product
from pathlib import Path
from xml.etree import ElementTree

import click
import numpy as np
import pytest
from click.testing import CliRunner

from experiments.line_chart import Panel, chart
from experiments.search_tables import ACCURACY, CHOICES, DEVICES, Effort, main, parse_effort


def test_efforts() -> None:
    assert parse_effort("gp=3x100") == ("gp", Effort(3, 100))
    for wrong in ("pg=3x100", "gp=3", "gp=ax4"):
        with pytest.raises(click.BadParameter):
            parse_effort(wrong)


def test_chart_is_valid_and_keeps_lines_inside() -> None:
    x = np.arange(5.0)
    ticks = {"0": 0.0, "5": 5.0, "< 10": 10.0, "outside": 11.0}
    panel = Panel("a < b", {"one": (x, x**2), "two": (x, -x)}, (0.0, 15.0), (0.0, 10.0), ticks)
    root = ElementTree.fromstring(chart([[panel, panel]], "n"))
    lines = [e.get("points", "") for e in root.iter("{http://www.w3.org/2000/svg}polyline")]
    assert len(lines) == 2 * (3 + 2)
    heights = [float(p.split(",")[1]) for line in lines for p in line.split()]
    assert max(heights) - min(heights) == pytest.approx(170)
    texts = [e.text for e in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "outside" not in texts
    assert texts.count("12") == 2, "15 epochs are told in threes"


@pytest.mark.slow
def test_page(tmp_path: Path) -> None:
    """On tables of the real shape and names, filled with formulas."""
    ops = np.array(list(product(range(5), repeat=6)), dtype=np.uint8)
    weights = np.array([0.0, 0.3, 1.0, 2.0, 0.4])[ops]
    rng = np.random.default_rng(0)
    accuracy = 85 + 3 * np.log1p(weights @ np.array([1, 1, 1, 2, 1, 1.0])) + 0.1 * rng.standard_normal(len(ops))
    np.savez(tmp_path / CHOICES.partition(":")[0], ops=ops)
    np.savez(tmp_path / ACCURACY.partition(":")[0], acc200_test=accuracy)
    files: dict[str, dict[str, np.ndarray]] = {}
    for spec in DEVICES.values():
        file, _, column = spec.partition(":")
        noise = np.exp(0.02 * rng.standard_normal(len(ops)))
        files.setdefault(file, {})[column] = (2 + weights.sum(1)) * noise
    for file, columns in files.items():
        np.savez(tmp_path / file, **columns)  # type: ignore[arg-type]
    out = tmp_path / "docs" / "search.md"
    efforts = [part for name in ("surrogate", "gp") for part in ("--effort", f"{name}=1x11")]
    arguments = ["--data", str(tmp_path), "--out", str(out), "--seeds", "1", "--evals", "12", *efforts]
    result = CliRunner().invoke(main, [*arguments, "--timed-evals", "12"], catch_exceptions=False)
    assert result.exit_code == 0
    text = out.read_text()
    for title in DEVICES:
        assert f"## {title}" in text
    assert "(search.svg)" in text
    ElementTree.fromstring(out.with_suffix(".svg").read_text())
