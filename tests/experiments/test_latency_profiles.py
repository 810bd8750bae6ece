"""The page about a device profile, from profiles of a device with a known latency function."""

from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner

from experiments.latency_few import few_networks_page
from experiments.latency_profiles import cli
from experiments.latency_profiles_report import repetition_rows, write_report
from tests.nas.fake_device import fake_profile


def test_a_repetition_is_judged_like_a_prediction() -> None:
    first = fake_profile(networks=24)
    slower = replace(
        first,
        tables=tuple(
            replace(t, timings=tuple(replace(m, latency_ms=3 * m.latency_ms, reference_ms=2.5) for m in t.timings))
            for t in first.tables
        ),
    )
    assert repetition_rows(first, first)[0].endswith("| 24 | 0.0 | 100 | 100 |")
    assert repetition_rows(first, slower)[0].endswith("| 24 | 20.0 | 0 | 0 |"), (
        "three times slower on a 2.5 times slower host"
    )


def test_report(tmp_path: Path) -> None:
    fake_profile(networks=40).save(tmp_path / "profile.json")
    fake_profile("heldout", networks=52).save(tmp_path / "heldout.json")
    page = tmp_path / "latency.md"
    line = ["report", "--profile", str(tmp_path / "profile.json"), "--heldout", str(tmp_path / "heldout.json")]
    (tmp_path / "speed.md").write_text("## How fast it predicts\n\nvery\n")
    done = CliRunner().invoke(cli, [*line, "--speed", str(tmp_path / "speed.md"), "--out", str(page)])
    assert done.exit_code == 0, done.output
    text = page.read_text()
    assert text.endswith(".svg)\n\n## How fast it predicts\n\nvery\n")
    assert text.count("| all | 52 |") == 2, "both deployments"
    assert "| mobile | 13 |" in text
    plot = (tmp_path / "latency-onnxruntime-fp32-2.svg").read_text()
    assert plot.count('r="3"') == 52
    assert "measured ms" in plot


def test_a_report_on_detectors_names_them(tmp_path: Path) -> None:
    known, unseen = (fake_profile(networks=n, spaces=["detect"]) for n in (40, 52))
    page = tmp_path / "latency.md"
    write_report(known, unseen, page, command="space detect --out here")
    text = page.read_text()
    assert "52 other random networks of detect at 128 to 416 px" in text
    assert "python -m experiments.latency_profiles space detect --out here\n```" in text
    assert text.count("| detect | 52 |") == 2


def test_few_networks_of_a_new_device() -> None:
    """The tables of one thread are those of two, three times as slow."""
    known = fake_profile(networks=64)
    slower = tuple(
        replace(
            t,
            deployment=replace(t.deployment, threads=1),
            timings=tuple(replace(m, latency_ms=3 * m.latency_ms) for m in t.timings),
        )
        for t in known.tables
    )
    page = few_networks_page(replace(known, tables=(*known.tables, *slower)), threads=1, sizes=[5, 12], seeds=1)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines()[2:]]
    assert [(row[0], row[1]) for row in rows] == [
        (name, size) for name in ("onnxruntime-fp32", "onnxruntime-int8") for size in ("5", "12")
    ]
    for row in rows:
        assert float(row[2]) < 5, "the known tables tell all but the factor"
        assert float(row[6]) < 5
        assert float(row[8]) > 10, "the median does not"
        assert (row[4] == "-") == (row[1] == "5"), "too few for a predictor of their own"
