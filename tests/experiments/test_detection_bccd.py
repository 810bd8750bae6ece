"""Detectors side by side: tables, verdicts, and trainings that are done once."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from experiments.detection_bccd import main, random_contestants
from experiments.detection_rows import Kind, Row, Tried, agreement_table, best_lr, results_table, verdicts
from nas.controller.planning.plan import nominal_image_s
from nas.errors import UnknownNameError, UserError
from nas.targets.latency import LatencyModel
from nas.targets.profile import DeviceProfile
from nas.targets.registry import bundled_path
from search_spaces import Architecture, load_search_space
from tests.nas.detectors import rectangle_data
from tests.nas.tasks.coco import write_coco

BASELINE = "ssdlite320_mobilenet_v3_large"


def row(name: str, test: tuple[float, ...], p50_ms: float, *, kind: Kind = "searched", epochs: int = 30) -> Row:
    return Row(
        name=name,
        kind=kind,
        resolution=320,
        lr=2e-3,
        epochs=epochs,
        params=1_500_000,
        val=test,
        test=test,
        test_strict=tuple(t / 2 for t in test),
        deployments=("openvino-int8",) * len(test),
        p50_ms=(p50_ms,) * len(test),
        postprocess_ms=(0.5,) * len(test),
        disturbed=False,
    )


def tried(precision: str, torch: float, runtime: float | None, *, chosen: bool = False, reason: str = "") -> Tried:
    name = f"openvino-{precision}"
    return Tried(name=name, precision=precision, torch=torch, runtime=runtime, p50_ms=3.0, chosen=chosen, reason=reason)


SSD = row("ssdlite", (0.60, 0.62), 6.0, kind="well-known")
EXACT = tried("fp32", 0.8, 0.801, reason="slower than openvino-int8")


def test_a_network_has_to_be_better_and_faster() -> None:
    text = verdicts([row("run#1", (0.70, 0.72), 3.0), SSD], {})
    assert "- run#1 against ssdlite: +10.0 points at 0.50 x its latency, 2 seeds: reached" in text
    assert "**missed**" in verdicts([row("run#1", (0.70,), 6.5), SSD], {})
    assert "**missed**" in verdicts([row("run#1", (0.59,), 3.0), SSD], {})
    assert "60 against 30 epochs" in verdicts([row("run#1", (0.70,), 3.0, epochs=60), SSD], {})
    assert "Not judged" in verdicts([SSD], {})


def test_a_network_has_to_be_better_than_a_random_one() -> None:
    found = row("run#1", (0.70,), 6.5)
    assert "at 1.30 x its latency, 1 seed: reached" in verdicts(
        [found, row("random-0", (0.60,), 5.0, kind="random")], {}
    )
    assert "**missed**" in verdicts([found, row("random-0", (0.75,), 9.0, kind="random")], {})


def test_files_have_to_agree_with_torch() -> None:
    good = verdicts([], {"a": [EXACT, tried("int8", 0.8, 0.793, chosen=True)]})
    assert "- a, fp32: 0.10 points, at most 0.2: reached" in good
    assert "- a, openvino-int8 (delivered): 0.70 points, at most 1: reached" in good
    assert "not delivered" not in good
    lossy = tried("int8", 0.8, 0.75, reason="mAP@50 75.0 % is below 79.1 %")
    off = verdicts([], {"a": [tried("fp32", 0.8, 0.79, chosen=True), lossy]})
    assert "- a, fp32: 1.00 points, at most 0.2: **missed**" in off
    assert "loses more than 1 point: openvino-int8" in off


def test_tables_are_in_order() -> None:
    lines = results_table([SSD, row("run#1", (0.7, 0.72), 3.0)]).splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["**run#1**", "ssdlite"]
    assert "71.0 ± 1.4" in lines[2]
    assert len({line.count("|") for line in lines}) == 1
    made = tried("bf16", 0.8, None, reason="could not be made")
    lines = agreement_table({"a": [EXACT, made]}).splitlines()
    assert "| a | openvino-fp32 | 80.00 | 80.10 | +0.10 | 3.00 | no: slower than openvino-int8 |" in lines
    assert "| - | - | 3.00 | no: could not be made |" in lines[-1]


def test_rates_are_compared_on_the_seeds_they_share() -> None:
    assert best_lr({0.1: {0: 0.5, 1: 0.9}, 0.2: {0: 0.6}}) == 0.2
    assert best_lr({0.1: {0: 0.5}}) == 0.1
    with pytest.raises(ValueError, match="no seed in common"):
        best_lr({0.1: {0: 0.5}, 0.2: {1: 0.6}})


def test_random_networks_keep_the_limit_and_are_always_the_same() -> None:
    data, space = rectangle_data(), load_search_space("detect")
    found = random_contestants(2, 12.0, "epyc-zen4", 30.0, data)
    assert [c.name for c in found] == ["random-0", "random-1"]
    assert found == random_contestants(2, 12.0, "epyc-zen4", 30.0, data)
    archs = [c.description.source for c in found]
    assert archs[0] != archs[1]
    model = LatencyModel(DeviceProfile.load(bundled_path("epyc-zen4")))
    for arch in archs:
        assert isinstance(arch, Architecture)
        rows = space.choices([arch])
        assert model.fastest(space, rows, data.output_size)[1].mean[0] < 12.0
        assert nominal_image_s(space.costs(rows, data.output_size))[0] <= 0.03
    with pytest.raises(UnknownNameError, match="'epic'"):
        random_contestants(1, 12.0, "epic", None, data)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_coco(tmp_path_factory.mktemp("data") / "rectangles", {"train": 12, "val": 8, "test": 8}, size=64)


@pytest.mark.slow
def test_from_training_to_table(pictures: Path, tmp_path: Path) -> None:
    space = load_search_space("detect")
    arch = space.architecture([0] * len(space.decisions))
    tiny = tmp_path / "tiny.json"
    tiny.write_text(json.dumps(space.to_json(arch)))
    out = tmp_path / "out"
    runner = CliRunner()
    arguments = ["--data", str(pictures), "--out", str(out)]
    train = ["train", *arguments, "--arch", str(tiny), "--network", BASELINE, "--resolution", "64", "--epochs", "1"]
    train += ["--threads", "1", "--set", "precision=fp32", "--set", "schedule.warmup_epochs=0"]
    train += ["--lr", "0.002"]
    for _ in range(2):
        assert runner.invoke(main, train, catch_exceptions=False).exit_code == 0
    assert len(list(out.glob("*/lr*/seed0/result.json"))) == 2
    done = runner.invoke(main, ["table", *arguments, "--threads", "1", "--sessions", "1"], catch_exceptions=False)
    assert done.exit_code == 0
    text = (out / "results.md").read_text()
    assert "| **tiny** | " in text
    assert f"- tiny against {BASELINE}: " in text
    assert re.search(r"\| \*\*tiny\*\* \| [^|]+ \| \d+ \| \d", text), "its latency was measured"
    with pytest.raises(UserError, match="another recipe"):
        runner.invoke(main, [*train, "--set", "ema_decay=0.9"], catch_exceptions=False)


def test_mistakes_are_named(pictures: Path, tmp_path: Path) -> None:
    runner, arguments = CliRunner(), ["--data", str(pictures), "--out", str(tmp_path)]
    with pytest.raises(UserError, match="no finished training"):
        runner.invoke(main, ["table", *arguments], catch_exceptions=False)
    with pytest.raises(UserError, match="no network is named"):
        runner.invoke(main, ["train", *arguments], catch_exceptions=False)
    assert "ssdlite321" in runner.invoke(main, ["train", *arguments, "--network", "ssdlite321"]).output
