"""The options of `nas search`; the search itself is the controller's and is replaced here."""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import nas.baseline.again  # noqa: F401  before the controller is replaced: it takes names from there
from nas.cli.main import run
from nas.controller.config import SearchConfig
from nas.limits import Limits
from nas.progress import Progress, SilentProgress
from tests.nas.report import documents


@dataclass
class FakeSearch:
    """Stands for `nas.controller.search`: records what it was asked and returns a ready result."""

    document: dict[str, Any] = field(default_factory=documents.document)
    exit_code: int = 0
    run_dir: Path = Path("runs/test")
    config: SearchConfig | None = None
    progress: Progress | None = None

    def run_search(self, config: SearchConfig, progress: Progress) -> "FakeSearch":
        self.config, self.progress = config, progress
        return self


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeSearch:
    fake = FakeSearch()
    module = ModuleType("nas.controller.search")
    module.run_search = fake.run_search  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nas.controller.search", module)
    return fake


def test_defaults(fake: FakeSearch) -> None:
    assert run(["search", "--latency-ms", "10"]) == 0
    assert fake.config == SearchConfig(
        target="local", limits=Limits.of(latency_ms=10.0), data="digits", space="compact", budget_s=None, max_drop=0.01,
        top=None, threads=None, seed=0, out=None, runtimes=None, precisions=None, baselines=False,
        command="nas search --latency-ms 10",
    )  # fmt: skip


def test_every_option_arrives(fake: FakeSearch) -> None:
    line = (
        "search --target xeon-spr --latency-ms 2.5 --data photos --space dense --budget 1h30m --max-drop 0.5 --top 3"
        " --threads 2 --seed 7 --out here --runtime openvino --runtime onnxruntime --precision int8"
        " --resolution 96 --resolution 128 --baselines --quiet"
    )
    assert run(line.split()) == 0
    assert fake.config == SearchConfig(
        target="xeon-spr", limits=Limits.of(latency_ms=2.5), data="photos", space="dense", budget_s=5400.0,
        max_drop=0.005, top=3, threads=2, seed=7, out=Path("here"), runtimes=("openvino", "onnxruntime"),
        precisions=("int8",), allowed={"resolution": (96, 128)}, baselines=True, command="nas " + line,
    )  # fmt: skip
    assert isinstance(fake.progress, SilentProgress)


def test_to_resume_may_be_said_though_it_is_always_done(fake: FakeSearch) -> None:
    assert run(["search", "--latency-ms", "10", "--resume"]) == 0
    assert fake.config == SearchConfig(limits=Limits.of(latency_ms=10.0), command="nas search --latency-ms 10 --resume")


def test_command_is_recorded_so_that_it_can_be_pasted(fake: FakeSearch) -> None:
    run(["search", "--latency-ms", "4", "--data", "my photos; rm"])
    assert fake.config is not None
    assert fake.config.command == "nas search --latency-ms 4 --data 'my photos; rm'"


def test_every_limit_objective_and_budget_arrives(fake: FakeSearch) -> None:
    line = (
        "search --latency-ms 5 --percentile 99 --throughput 300 --max-params 2M --max-size-mb 4.5 --max-memory-mb 64"
        " --min-accuracy 90 --objective latency --max-trials 12 --max-cost 2.5 --price-per-hour 1.25"
    )
    assert run(line.split()) == 0
    assert fake.config == SearchConfig(
        limits=Limits.of(
            latency_ms=5.0, percentile=99, throughput=300.0, max_params=2e6, max_size_mb=4.5, max_memory_mb=64.0,
            min_accuracy=0.9,
        ), objective="latency", max_trials=12, max_cost_usd=2.5, price_per_hour=1.25,
        command="nas " + line,
    )  # fmt: skip
    assert fake.config.seconds == 7200.0


@pytest.mark.parametrize(
    "line",
    ["", "--min-accuracy 90", "--objective latency", "--objective throughput --latency-ms 5", "--max-params 0",
     "--max-cost 2 --latency-ms 5", "--latency-ms 5 --max-size-mb x", "--latency-ms 5 --price-per-hour -1",
     "--max-params 2M --percentile 99"],
)  # fmt: skip
def test_questions_that_make_no_sense(line: str, fake: FakeSearch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["search", *line.split()]) == 1
    assert "hint: " in capsys.readouterr().err
    assert fake.config is None


def test_an_interrupted_search_shows_the_best_so_far(fake: FakeSearch, capsys: pytest.CaptureFixture[str]) -> None:
    fake.exit_code = 130
    assert run(["search", "--latency-ms", "4", "--json"]) == 130
    shown = capsys.readouterr()
    assert json.loads(shown.out)["best"]
    assert "To continue, run: nas search --latency-ms 4 --json" in shown.err


@pytest.mark.parametrize("value", ["abc", "0", "-1", "nan", "inf", "", "1_0", "4ms", "0x10"])
def test_impossible_latency_is_answered_by_a_sentence(
    value: str, fake: FakeSearch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["search", f"--latency-ms={value}"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    error, hint = shown.err.splitlines()
    assert error.startswith("Error: the latency limit")
    assert repr(value) in error
    assert hint.startswith("hint: ")
    assert fake.config is None


@pytest.mark.parametrize(
    ("option", "value"),
    [("--budget", "10"), ("--budget", "0s"), ("--budget", "soon"), ("--max-drop", "-1"), ("--max-drop", "nan")],
)
def test_other_impossible_values(option: str, value: str, fake: FakeSearch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["search", "--latency-ms", "4", f"{option}={value}"]) == 1
    shown = capsys.readouterr()
    assert repr(value) in shown.err
    assert "hint: " in shown.err
    assert fake.config is None


def test_json_is_the_only_thing_on_stdout(fake: FakeSearch, capsys: pytest.CaptureFixture[str]) -> None:
    fake.document["best"][0]["accuracy"]["estimate_std"] = float("nan")
    assert run(["search", "--latency-ms", "4", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["best"][0]["key"] == "mixed:0-1-2-1"
    assert document["best"][0]["accuracy"]["estimate_std"] is None


def test_table_and_exit_code_of_a_missed_limit(fake: FakeSearch, capsys: pytest.CaptureFixture[str]) -> None:
    fake.exit_code = 3
    fake.document["best"] = [documents.winner(within_limit=False, margin_pct=-12.0)]
    assert run(["search", "--latency-ms", "1"]) == 3
    assert "The limit is missed, by 12 %." in " ".join(capsys.readouterr().out.split())
